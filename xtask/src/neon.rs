//! `neon`: the library built for AArch64 and tested under emulation.
//!
//! ```text
//!   apt-get download ─► target/neon/toolchain/   rustc, and std for both architectures
//!   apt-get install  ─► a linker and a C library for AArch64, qemu-user
//!   cargo test --target aarch64-unknown-linux-gnu ─► qemu-aarch64
//! ```
//!
//! A std for another target comes with rustup, where rustup can reach its server:
//! then the compiler at hand is taken. Else Debian's is: it has the same compiler as a
//! package for each of its architectures, so that the std of one goes with the compiler
//! of another. These packages are not installed but unpacked in the target folder, for
//! they would put a second `rustc` on the path, and another architecture would have to be
//! made known to dpkg; apt is given lists of its own for that, and needs no rights.
//!
//! An emulator shows neither speed nor the order in which other cores see writes (`loom` tests
//! that; qemu keeps the memory order of the machine it runs on).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::command::CommandLine;
use crate::metadata::{host, target};
use crate::needs;
use crate::programs::KERNEL_ENGINES;
use crate::step::Step;

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// `neon`: what it needs, the operations by themselves, and engines at both levels.
pub(crate) fn steps() -> Result<Vec<Step>> {
    steps_on(&host()?)
}

fn steps_on(host: &str) -> Result<Vec<Step>> {
    if host == TARGET {
        bail!("this machine is an AArch64 itself: `cargo xtask test` has these tests");
    }
    let folder = target()?.join("neon");
    let mut steps = vec![Step::check("packages", |_| needs::cross())];
    let mut env = vec![
        ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc".to_owned()),
        (
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER",
            "qemu-aarch64 -L /usr/aarch64-linux-gnu".to_owned(),
        ),
        ("CARGO_TARGET_DIR", folder.to_string_lossy().into_owned()),
    ];
    if !has_std(Command::new("rustc")) {
        let toolchain = folder.join("toolchain");
        let path = |end: &str| toolchain.join(end).to_string_lossy().into_owned();
        env.push(("RUSTC", path("usr/bin/rustc")));
        env.push(("LD_LIBRARY_PATH", path("usr/lib/x86_64-linux-gnu")));
        steps.push(Step::check("a compiler with a std for AArch64", move |_| unpacked(&toolchain)));
    }
    let step = |name: &str, level: &str, test: &[&str]| {
        let words = ["test", "--package", "fingerpost-fib", "--target", TARGET];
        let mut words = CommandLine::cargo(&[&words, test].concat())
            .env("FINGERPOST_SIMD", level)
            .env("FINGERPOST_ENGINES", KERNEL_ENGINES);
        for (name, value) in &env {
            words = words.env(name, value.as_str());
        }
        Step::cargo_test(name, words, &[])
    };
    steps.extend([
        step("operations of NEON", "neon", &["--lib", "arch::"]),
        step("engines by NEON", "neon", &["--test", "battery"]),
        step("engines by its twins", "base", &["--test", "battery"]),
    ]);
    Ok(steps)
}

/// Returns whether a compiler has a std for AArch64.
fn has_std(mut rustc: Command) -> bool {
    let output = rustc.args(["--print", "target-libdir", "--target", TARGET]).output();
    output.is_ok_and(|output| {
        let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        let names = fs::read_dir(folder).into_iter().flatten().flatten();
        output.status.success()
            && names
                .into_iter()
                .any(|entry| entry.file_name().to_string_lossy().starts_with("libstd-"))
    })
}

/// Downloads Debian's compiler and both of its stds, and unpacks them, if that has not
/// been done.
fn unpacked(toolchain: &Path) -> Result<(), String> {
    let mut rustc = Command::new(toolchain.join("usr/bin/rustc"));
    rustc.env("LD_LIBRARY_PATH", toolchain.join("usr/lib/x86_64-linux-gnu"));
    if has_std(rustc) {
        println!("it is there: {}", toolchain.display());
        return Ok(());
    }
    // Another name until it is whole; what is left of a former attempt goes first.
    let part = toolchain.with_extension("part");
    let _ = fs::remove_dir_all(&part);
    let _ = fs::remove_dir_all(toolchain);
    let apt = Apt::new(&part).map_err(|error| format!("making {}: {error}", part.display()))?;
    // A source that has nothing for this architecture is no reason to stop here.
    let _ = apt.run(&["apt-get", "update", "-qq"]);
    // The compiler's libraries have its version in their names.
    let driver = apt.needed("libstd-rust-web-dev", "libstd-rust-web-1")?;
    let llvm = apt.needed(&driver, "libllvm")?;
    let standard = ["libstd-rust-web-dev:amd64", "libstd-rust-web-dev:arm64"];
    let packages = [&["rustc-web", &driver, &llvm], &standard[..]].concat();
    println!("downloading {}", packages.join(" "));
    apt.run(&[&["apt-get", "download", "-q"], &packages[..]].concat())?;
    let root = part.join("root");
    for package in fs::read_dir(&apt.packages).into_iter().flatten().flatten() {
        let path = package.path();
        apt.run(&["dpkg-deb", "-x", &path.to_string_lossy(), &root.to_string_lossy()])?;
    }
    fs::rename(&root, toolchain)
        .and_then(|()| fs::remove_dir_all(&part))
        .map_err(|error| format!("moving {} to its place: {error}", root.display()))
}

/// apt with lists of its own, of both architectures, and a folder for packages.
struct Apt {
    config: PathBuf,
    packages: PathBuf,
}

impl Apt {
    fn new(folder: &Path) -> std::io::Result<Self> {
        let (config, packages) = (folder.join("apt.conf"), folder.join("packages"));
        for folder in ["lists/partial", "cache/archives/partial", "packages"] {
            fs::create_dir_all(packages.with_file_name(folder))?;
        }
        let text = format!(
            "APT::Architectures {{ \"amd64\"; \"arm64\"; }};\n\
             APT::Sandbox::User \"root\";\n\
             Acquire::Languages \"none\";\n\
             Dir::State::lists \"{0}/lists\";\n\
             Dir::Cache \"{0}/cache\";\n",
            folder.display()
        );
        fs::write(&config, text)?;
        Ok(Self { config, packages })
    }

    /// Runs a program in the folder of packages and returns what it says.
    fn run(&self, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env("APT_CONFIG", &self.config).current_dir(&self.packages);
        let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
        let words = words.join(" ");
        match output {
            Ok(output) if output.status.success() => {
                Ok(String::from_utf8_lossy(&output.stdout).into_owned())
            }
            Ok(output) => Err(format!("{words}: {}: see what it says above", output.status)),
            Err(error) => Err(format!("running {words}: {error}")),
        }
    }

    /// Returns the package with such a name that another depends on.
    fn needed(&self, package: &str, name: &str) -> Result<String, String> {
        let text = self.run(&["apt-cache", "depends", "--important", package])?;
        let found = text.split_whitespace().find(|word| word.starts_with(name));
        found.map(str::to_owned).ok_or_else(|| {
            format!("{package} needs no {name}: Debian 12 has one that does, in bookworm-security")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compiler_that_does_not_run_has_no_std() {
        assert!(!has_std(Command::new("/no/such/rustc")));
        assert!(!has_std(Command::new("false")));
    }

    #[test]
    fn engines_that_have_kernels_run_at_both_levels() {
        assert!(steps_on(TARGET).is_err());
        let steps = steps_on("x86_64-unknown-linux-gnu").unwrap();
        let tests: Vec<String> = steps.iter().filter_map(Step::cargo_test_command).collect();
        for (text, level) in tests.iter().zip(["neon", "neon", "base"]) {
            assert!(text.contains(&format!("FINGERPOST_SIMD={level:?}")), "{text}");
            assert!(text.contains("rank6") && text.contains("qemu-aarch64"), "{text}");
        }
        assert_eq!(tests.len(), 3);
    }
}
