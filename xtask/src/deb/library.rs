//! The Debian packages of the C library: `cargo xtask deb-library`.
//!
//! ```text
//!   release build ─► libfingerpost_capi.a ─ install.sh ─► libfingerpost.so.0.1.0, .so.0 ─► libfingerpost0
//!                                                    └──► .so, .a, header, .pc, example ─► libfingerpost-dev
//! ```
//!
//! The first is for programs that use the library, the second for compiling them; the soname is in the name of the first, so that
//! two versions can be installed beside each other. As for the program, the same commit and compiler give the same bytes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{Stage, absolute, architecture, cargo, libraries, maintainer, names, run, version};
use crate::{metadata, release};

const RUNTIME: &str = "libfingerpost0";
const DEVELOPMENT: &str = "libfingerpost-dev";

/// The library that is packed, and the folder of the packages.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Pack this static library instead of a new release build
    #[arg(long, value_name = "FILE", value_parser = absolute)]
    archive: Option<PathBuf>,
    /// Append this to the version, such as +git20261130
    #[arg(long, value_name = "TEXT", default_value = "")]
    suffix: String,
    /// The folder of the packages; default: debian in cargo's target folder
    #[arg(short, long, value_name = "FOLDER", value_parser = absolute)]
    output: Option<PathBuf>,
}

/// Builds both packages, and prints their paths.
pub(crate) fn build(arguments: &Arguments) -> Result<()> {
    let target = metadata::target()?;
    let archive = match &arguments.archive {
        Some(archive) => archive.clone(),
        None => {
            let (name, flags) = release::environment()?;
            let words = ["build", "--release", "--package", "fingerpost-capi"];
            run(Command::new(cargo()).args(words).env(name, flags))?;
            target.join("release/libfingerpost_capi.a")
        }
    };
    let output = arguments.output.clone().unwrap_or_else(|| target.join("debian"));
    fs::create_dir_all(&output).with_context(|| format!("making {}", output.display()))?;
    let stage = |package| Stage(target.join(format!("{package}-stage-{}", std::process::id())));
    let (runtime, development) = (stage(RUNTIME), stage(DEVELOPMENT));
    fs::create_dir_all(&development.0)?;
    fs::create_dir_all(&runtime.0)?;
    let packed = pack(&archive, [&runtime, &development], &output, &arguments.suffix);
    for stage in [runtime, development] {
        fs::remove_dir_all(stage.0)?;
    }
    for package in packed? {
        println!("{}", package.display());
    }
    Ok(())
}

fn pack(
    archive: &Path,
    [runtime, development]: [&Stage; 2],
    output: &Path,
    suffix: &str,
) -> Result<[PathBuf; 2]> {
    let triple = run(Command::new("dpkg-architecture").arg("-qDEB_HOST_MULTIARCH"))?;
    let folder = format!("usr/lib/{}", String::from_utf8(triple)?.trim());
    run(Command::new("bash")
        .arg("crates/capi/install.sh")
        .arg(archive)
        .args(["/usr", &format!("/{folder}")])
        .env("DESTDIR", &development.0))?;
    for name in names("crates/capi/examples")? {
        let place = format!("usr/share/doc/{DEVELOPMENT}/examples/{name}");
        development.copy(&format!("crates/capi/examples/{name}"), &place)?;
    }
    development
        .copy("docs/guide/c-library.md", &format!("usr/share/doc/{DEVELOPMENT}/README.md"))?;
    fs::create_dir_all(runtime.0.join(&folder))?;
    let library = format!("libfingerpost.so.{}", env!("CARGO_PKG_VERSION"));
    for name in [&library, "libfingerpost.so.0"] {
        let place = |stage: &Stage| stage.0.join(&folder).join(name);
        fs::rename(place(development), place(runtime))?;
    }
    for stage in [runtime, development] {
        stage.set_folder_modes(&stage.0.join(&folder))?;
    }
    development.set_folder_modes(&development.0.join(&folder).join("pkgconfig"))?;
    development.set_folder_modes(&development.0.join("usr/include"))?;

    let version = version(suffix);
    let needs = libraries(&runtime.0.join(&folder).join(&library))?;
    let short = "longest-prefix-match tables small enough for a CPU's cache";
    let text = " A C library: routes of IPv4 and IPv6 become tables, in which any number of\n \
                threads look addresses up, while one thread changes the routes.\n";
    runtime.describe(RUNTIME, suffix, &format!(
        "Multi-Arch: same\nDepends: {needs}\nSection: libs\nPriority: optional\nDescription: {short}\n{text}"
    ))?;
    development.describe(DEVELOPMENT, suffix, &format!(
        "Multi-Arch: same\nDepends: {RUNTIME} (= {version}), libc6-dev\nSection: libdevel\nPriority: optional\n\
         Description: {short} (development)\n{text} .\n This package has the header, the static library, and the file of pkg-config.\n"
    ))?;
    runtime.write("DEBIAN/shlibs", 0o644, b"libfingerpost 0 libfingerpost0\n")?;
    runtime.write("DEBIAN/triggers", 0o644, b"activate-noawait ldconfig\n")?;
    Ok([runtime.close(RUNTIME, output, suffix)?, development.close(DEVELOPMENT, output, suffix)?])
}

impl Stage {
    /// Writes the copyright, the changelog, and the folder `DEBIAN` with further lines of its file `control`.
    fn describe(&self, package: &str, suffix: &str, lines: &str) -> Result<()> {
        self.copyright(package, suffix)?;
        let (sums, kilobytes) = self.sums()?;
        let control = format!(
            "Package: {package}\nSource: fingerpost\nVersion: {}\nArchitecture: {}\nMaintainer: {}\nInstalled-Size: {kilobytes}\n{lines}",
            version(suffix),
            architecture()?,
            maintainer(),
        );
        self.write("DEBIAN/control", 0o644, control.as_bytes())?;
        self.write("DEBIAN/md5sums", 0o644, sums.as_bytes())
    }
}
