//! The Debian package of the program: `cargo xtask deb`. Those of the C library are in `deb/library.rs`.
//!
//! ```text
//!   release build ─► program, manual pages, completions ─┐
//!   packaging/: units, user, folders, configuration ─────┼─► a folder of target ─► dpkg-deb ─► fingerpost_*.deb
//!   dashboards, rules of Prometheus ──────────────────────┤
//!   README, guide, changelog, bill of materials ─────────┘
//! ```
//!
//! The program and the manual are those of the release build. The units start `/usr/bin/fingerpost` where those of a manual
//! installation start `/usr/local/bin/fingerpost`. The files of `/etc/fingerpost` are conffiles. The package enables no service:
//! each needs its configuration first.
//!
//! The same commit and compiler give the same bytes: the owner of all files is root, their time is that of the last commit, or
//! `SOURCE_DATE_EPOCH`, and the program has no path of this machine (`release`).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{audit_data, licenses, metadata, release, sbom};

mod library;

pub(crate) use library::{Arguments as LibraryArguments, build as build_library};

/// The units, and the services of the package.
const UNITS: [&str; 6] = [
    "fingerpost.service",
    "fingerpost-block.service",
    "fingerpost-gate.service",
    "fingerpost-grantor.service",
    "fingerpost-ipfix.service",
    "fingerpost-sflow.service",
];
/// The scripts of the package.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];
/// The completions: the shell, and the file.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/fingerpost"),
    ("zsh", "usr/share/zsh/vendor-completions/_fingerpost"),
    ("fish", "usr/share/fish/vendor_completions.d/fingerpost.fish"),
];
/// The folder of dashboards and rules.
const SHARED: &str = "usr/share/fingerpost";
/// The folder of the documentation.
const DOCUMENTATION: &str = "usr/share/doc/fingerpost";

/// The program that is packed, and the folder of the package.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Pack this program instead of a new release build
    #[arg(long, value_name = "FILE", value_parser = absolute)]
    program: Option<PathBuf>,
    /// Append this to the version, such as +git20261130
    #[arg(long, value_name = "TEXT", default_value = "")]
    suffix: String,
    /// The folder of the package; default: debian in cargo's target folder
    #[arg(short, long, value_name = "FOLDER", value_parser = absolute)]
    output: Option<PathBuf>,
}

/// A folder that becomes the root of the package.
struct Stage(PathBuf);

/// Builds the package, and prints its path.
pub(crate) fn build(arguments: &Arguments) -> Result<()> {
    let target = metadata::target()?;
    let program = match &arguments.program {
        Some(program) => {
            if let Err(warning) = release::check(program) {
                eprintln!("warning: {warning}");
            }
            program.clone()
        }
        None => {
            let (name, flags) = release::environment()?;
            run(Command::new(cargo()).args(release::WORDS).env(name, flags))?;
            let program = target.join("release/fingerpost");
            release::check(&program)?;
            program
        }
    };
    let output = arguments.output.clone().unwrap_or_else(|| target.join("debian"));
    fs::create_dir_all(&output).with_context(|| format!("making {}", output.display()))?;
    let stage = Stage(target.join(format!("debian-stage-{}", std::process::id())));
    fs::create_dir_all(&stage.0).with_context(|| format!("making {}", stage.0.display()))?;
    let packed = stage.pack(&program, &output, &arguments.suffix);
    fs::remove_dir_all(&stage.0)?;
    println!("{}", packed?.display());
    Ok(())
}

impl Stage {
    /// Fills the folder, and packs it.
    fn pack(&self, program: &Path, output: &Path, suffix: &str) -> Result<PathBuf> {
        self.write("usr/bin/fingerpost", 0o755, &read(program)?)?;
        let program = self.0.join("usr/bin/fingerpost");
        let contents = sbom::Contents::of(&licenses::read()?)?;
        audit_data::add(&program, &contents)?;
        let units: Vec<_> = UNITS.iter().map(|unit| (unit, format!("packaging/{unit}"))).collect();
        for (unit, from) in &units {
            let text = read_text(from)?.replace("/usr/local/bin/", "/usr/bin/");
            self.write(&format!("usr/lib/systemd/system/{unit}"), 0o644, text.as_bytes())?;
        }
        self.copy("packaging/fingerpost.sysusers", "usr/lib/sysusers.d/fingerpost.conf")?;
        self.copy("packaging/fingerpost.tmpfiles", "usr/lib/tmpfiles.d/fingerpost.conf")?;
        let mut conffiles = String::new();
        for name in names("packaging/etc")? {
            self.copy(&format!("packaging/etc/{name}"), &format!("etc/fingerpost/{name}"))?;
            conffiles.push_str(&format!("/etc/fingerpost/{name}\n"));
        }
        let manual = self.0.join("usr/share/man/man1");
        fs::create_dir_all(&manual)?;
        run(Command::new(&program).arg("man").arg("--dir").arg(&manual))?;
        for (shell, file) in COMPLETIONS {
            let text = run(Command::new(&program).args(["completions", shell]))?;
            self.write(file, 0o644, &text)?;
        }
        for folder in ["grafana", "prometheus"] {
            for name in names(&format!("packaging/{folder}"))? {
                let from = format!("packaging/{folder}/{name}");
                self.copy(&from, &format!("{SHARED}/{folder}/{name}"))?;
            }
        }
        self.documentation(suffix, &contents)?;
        run(Command::new("gzip").args(["-9nr"]).arg(&manual))?;
        self.set_manual_modes(&manual)?;
        self.control(&program, suffix, &conffiles)?;
        self.close("fingerpost", output, suffix)
    }

    /// Packs the folder, whose file DEBIAN/control is written.
    fn close(&self, package: &str, output: &Path, suffix: &str) -> Result<PathBuf> {
        let file = output.join(format!("{package}_{}_{}.deb", version(suffix), architecture()?));
        run(Command::new("dpkg-deb")
            .args(["--root-owner-group", "-Zxz", "--build"])
            .args([&self.0, &file])
            .env("SOURCE_DATE_EPOCH", epoch()?))?;
        Ok(file)
    }

    /// Writes the documentation: the guide, the changelog, the licenses and the bill of materials.
    fn documentation(&self, suffix: &str, contents: &sbom::Contents) -> Result<()> {
        let to = |name: &str| format!("{DOCUMENTATION}/{name}");
        self.copy("README.md", &to("README.md"))?;
        self.copy("CHANGELOG.md", &to("CHANGELOG.md"))?;
        self.copyright("fingerpost", suffix)?;
        for name in names("docs/guide")? {
            self.copy(&format!("docs/guide/{name}"), &to(&format!("guide/{name}")))?;
        }
        let bill = serde_json::to_vec_pretty(&sbom::document(contents)?)?;
        self.write(&to("sbom.cdx.json"), 0o644, &bill)
    }

    /// Writes the copyright and Debian's changelog of a package.
    fn copyright(&self, package: &str, suffix: &str) -> Result<()> {
        let to = |name: &str| format!("usr/share/doc/{package}/{name}");
        self.copy("packaging/debian/copyright", &to("copyright"))?;
        let date = run(Command::new("date").args(["-uR", "-d"]).arg(format!("@{}", epoch()?)))?;
        let changes = format!(
            "fingerpost ({}) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- {}  {}",
            version(suffix),
            maintainer(),
            String::from_utf8(date)?
        );
        self.write(&to("changelog"), 0o644, changes.as_bytes())?;
        run(Command::new("gzip").arg("-9n").arg(self.0.join(to("changelog"))))?;
        Ok(())
    }

    /// Writes the folder `DEBIAN`.
    fn control(&self, program: &Path, suffix: &str, conffiles: &str) -> Result<()> {
        let (sums, kilobytes) = self.sums()?;
        let control = format!(
            "Package: fingerpost\nVersion: {}\nArchitecture: {}\nMaintainer: {}\n\
             Installed-Size: {kilobytes}\nDepends: {}, systemd\nSuggests: nats-server\nSection: net\nPriority: optional\n\
             Description: software router and DDoS gate whose routing table fits in the CPU's cache\n \
             Fingerpost forwards packets by AF_XDP or in the driver, by the routes that\n \
             BIRD or FRR have put into the kernel. As a gate it lets flows pass that a\n \
             grantor in the protected network has granted. It drops packets of listed\n \
             sources in the driver.\n",
            version(suffix),
            architecture()?,
            maintainer(),
            libraries(program)?,
        );
        self.write("DEBIAN/control", 0o644, control.as_bytes())?;
        self.write("DEBIAN/conffiles", 0o644, conffiles.as_bytes())?;
        self.write("DEBIAN/md5sums", 0o644, sums.as_bytes())?;
        for script in SCRIPTS {
            let text = read_text(&format!("packaging/debian/{script}"))?;
            let text = text.replace("@UNITS@", &UNITS.join(" "));
            self.write(&format!("DEBIAN/{script}"), 0o755, text.as_bytes())?;
        }
        Ok(())
    }

    /// Returns the checksums of all files but the conffiles, which change, and the size of all in units of 1024 bytes.
    fn sums(&self) -> Result<(String, u64)> {
        let mut files = Vec::new();
        list(&self.0, &mut files)?;
        files.sort_unstable();
        let mut names = Vec::new();
        let mut kilobytes = 0;
        for file in &files {
            kilobytes += file.metadata()?.len().div_ceil(1024);
            let name = file.strip_prefix(&self.0)?;
            if !name.starts_with("etc") {
                names.push(name);
            }
        }
        let sums = run(Command::new("md5sum").args(names).current_dir(&self.0))?;
        Ok((String::from_utf8(sums)?, kilobytes))
    }

    /// Sets the modes of the manual pages, which the program has written by the user's mask.
    fn set_manual_modes(&self, manual: &Path) -> Result<()> {
        let mut pages = Vec::new();
        list(manual, &mut pages)?;
        for page in pages {
            fs::set_permissions(&page, fs::Permissions::from_mode(0o644))?;
        }
        self.set_folder_modes(manual)
    }

    /// Sets the modes of a folder and of those above it.
    fn set_folder_modes(&self, folder: &Path) -> Result<()> {
        for folder in folder.ancestors().take_while(|folder| folder.starts_with(&self.0)) {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
        }
        Ok(())
    }

    fn copy(&self, from: &str, to: &str) -> Result<()> {
        self.write(to, 0o644, &read(from)?)
    }

    /// Writes a file, and its folder, with modes that do not depend on the user's mask.
    fn write(&self, name: &str, mode: u32, bytes: &[u8]) -> Result<()> {
        let path = self.0.join(name);
        let folder = path.parent().context("a file has a folder")?;
        fs::create_dir_all(folder)?;
        fs::write(&path, bytes).with_context(|| format!("writing {}", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        self.set_folder_modes(folder)
    }
}

/// Returns the version of the package.
fn version(suffix: &str) -> String {
    format!("{}{suffix}", env!("CARGO_PKG_VERSION"))
}

/// Returns the maintainer, as Debian's tools do by `DEBFULLNAME` and `DEBEMAIL`.
fn maintainer() -> String {
    let stated = |name, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let name = stated("DEBFULLNAME", "The Fingerpost developers");
    format!("{name} <{}>", stated("DEBEMAIL", "fingerpost@localhost"))
}

/// Returns Debian's name of this machine's architecture.
fn architecture() -> Result<String> {
    let name = run(Command::new("dpkg").arg("--print-architecture"))?;
    Ok(String::from_utf8(name)?.trim().to_owned())
}

/// Returns the packages of the shared libraries that the program needs.
fn libraries(program: &Path) -> Result<String> {
    let folder = std::env::temp_dir().join(format!("fingerpost-deb-{}", std::process::id()));
    fs::create_dir_all(folder.join("debian"))?;
    // dpkg-shlibdeps reads the names of the packages from this file.
    fs::write(
        folder.join("debian/control"),
        "Source: fingerpost\n\nPackage: fingerpost\nArchitecture: any\n",
    )?;
    let found = run(Command::new("dpkg-shlibdeps").arg("-O").arg(program).current_dir(&folder));
    fs::remove_dir_all(&folder)?;
    let text = String::from_utf8(found?)?;
    let line = text.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    line.map(str::to_owned).context("dpkg-shlibdeps names no packages")
}

/// Returns the time of the files, in seconds.
fn epoch() -> Result<String> {
    if let Ok(stated) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(stated);
    }
    let time = run(Command::new("git").args(["log", "-1", "--format=%ct"]))
        .context("the time of the last commit; without a repository, set SOURCE_DATE_EPOCH")?;
    Ok(String::from_utf8(time)?.trim().to_owned())
}

/// Returns the path that a name means in the folder of the caller, which this process leaves.
fn absolute(name: &str) -> std::io::Result<PathBuf> {
    std::path::absolute(name)
}

fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// Lists the names in a folder, in their order.
fn names(folder: &str) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {folder}"))?;
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    Ok(names)
}

/// Adds the files below a folder, without symbolic links.
fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            list(&entry.path(), files)?;
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    Ok(())
}

fn read(path: impl AsRef<Path>) -> Result<Vec<u8>> {
    let path = path.as_ref();
    fs::read(path).with_context(|| format!("reading {}", path.display()))
}

fn read_text(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {path}"))
}

/// Runs a command, and returns its output.
fn run(command: &mut Command) -> Result<Vec<u8>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("running {name}"))?;
    if !output.status.success() {
        bail!("{name}: {}", output.status);
    }
    Ok(output.stdout)
}
