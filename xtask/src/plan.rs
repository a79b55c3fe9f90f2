//! The steps of each verb, in the order in which they run.
//!
//! The checks that fail fastest come first: formatting before lints, lints before tests. loom, and the builds
//! for the sanitizers, run in the time that documentation, lints and builds leave idle, where those wait for their last
//! crates; nothing with a deadline does, since for minutes an idle process would not run at all. The tests that run
//! alone come between the builds and the tests that run beside others; the virtual machine runs beside tests that compute.
//! Builds with other flags (loom, the sanitizers, libFuzzer) get folders of their own under the target folder, so that
//! a change between them rebuilds nothing.

use std::process::Command;

use anyhow::{Context, Result};

use crate::command::{CommandLine, NOT_INCREMENTAL};
use crate::programs::{Programs, Target};
use crate::step::Step;
use crate::{
    abi, changes, cycles, house, language, licenses, metadata, needs, release, sanitizers, simd,
    smoke as scripts,
};

/// Whether `test` runs the tests that need root.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Smoke {
    Run,
    Skip,
}

const NOT_ROOT: &str = "needs root (network namespaces, AF_XDP sockets): run it as root, \
                        or leave this part out with `cargo xtask test --no-smoke`";
const ASKED_FOR: &str = "left out: --no-smoke";

/// The smoke tests of the quick loop: forwarding, the kernel's routes, the gate.
const QUICK_SMOKE: [&str; 3] = ["forward", "rules", "gate"];

/// Lists the steps of `check`: formatting, rules, documentation and lints.
pub(crate) fn check() -> Result<Vec<Step>> {
    let mut steps = fast_checks()?;
    steps.extend(documentation_and_lints(&[]));
    Ok(steps)
}

/// Lists the checks that compile nothing.
fn fast_checks() -> Result<Vec<Step>> {
    let metadata = metadata::read()?;
    Ok(vec![
        Step::check("rustfmt and clippy are installed", |_| needs::components()),
        Step::command("formatting", CommandLine::cargo(&["fmt", "--all", "--check"])),
        Step::check("rules of the house", {
            let metadata = metadata.clone();
            move |_| house::check(&metadata)
        }),
        Step::check("no cycles", move |_| cycles::check(&metadata)),
        Step::check("language", |_| language::check()),
        Step::check("C interface", |_| abi::check()),
        Step::check("licenses", |_| licenses::check()),
    ])
}

/// Lists the checks that compile, with `env` for cargo.
fn documentation_and_lints(env: &[(&'static str, &'static str)]) -> [Step; 2] {
    let cargo = |words: &[&str]| {
        env.iter()
            .fold(CommandLine::cargo(words), |command, (name, value)| command.env(name, *value))
    };
    let documentation = cargo(&["doc", "--workspace", "--no-deps"]);
    let lints = cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    [
        Step::command("documentation", documentation.env("RUSTDOCFLAGS", "-D warnings")),
        Step::command("lints", lints),
    ]
}

/// Lists the steps of `test`: everything.
pub(crate) fn test(smoke: Smoke) -> Result<Vec<Step>> {
    let mut steps = fast_checks()?;
    steps.extend(sanitizers::loom()?.into_iter().map(Step::idle));
    steps.extend(sanitizers::builds()?.map(Step::idle));
    let [documentation, lints] = documentation_and_lints(&[NOT_INCREMENTAL]);
    steps.extend([documentation.among_idle(), lints.concurrent()]);
    let with_root = smoke == Smoke::Run;
    let programs = Programs::new(&[], true)?;
    let build = programs.build(&[NOT_INCREMENTAL]);
    if with_root {
        // Beside the lints, the last of the checks.
        steps.push(packages().concurrent());
    }
    steps.push(build.among_idle());
    if with_root && needs::is_root() {
        steps.push(release_build().concurrent());
    }
    // Alone, for the sake of its deadlines. All before it must have ended: the release build, too, for the smoke tests.
    steps.extend(sanitizers::thread()?);
    let scripts = scripts::scripts(&[])?;
    let smoke = if with_root { smoke_steps(&scripts)? } else { SmokeSteps::default() };
    if with_root {
        steps.extend(root_tests(&programs));
        steps.extend(smoke.alone);
        // The virtual machine uses little more than one processor.
        steps.extend(smoke.guests.map(Step::among_idle));
        steps.extend(smoke.among_idle);
    }
    // The longest first, so that the cores end together.
    let mut idle = sanitizers::address()?;
    idle.push(programs.doc_tests(&[NOT_INCREMENTAL]));
    idle.extend(simd::steps(&programs));
    idle.extend(programs.steps(|target| !target.needs_root));
    steps.extend(idle.into_iter().map(Step::idle));
    if with_root {
        // Most smoke tests wait for packets and timers: they run beside the tests above.
        steps.extend(smoke.beside);
    } else {
        let skip = |target: &Target| {
            Step::skipped(&format!("root tests {} {}", target.package, target.name), ASKED_FOR)
        };
        steps.extend(programs.targets().filter(|target| target.needs_root).map(skip));
        for script in scripts {
            steps.push(Step::skipped(&format!("smoke {}", script.name), ASKED_FOR));
        }
    }
    Ok(steps)
}

/// Lists the steps of `quick`: format, lints, the tests of the packages that changed, three smoke tests.
pub(crate) fn quick(packages: &[String]) -> Result<Vec<Step>> {
    let mut steps = check()?;
    let packages =
        if packages.is_empty() { changes::packages()? } else { changes::named(packages)? };
    if packages.is_empty() {
        println!("no package has changed since the last commit of the main branch");
    } else {
        let programs = Programs::new(&packages, false)?;
        steps.push(programs.build(&[]));
        steps.extend(
            programs.steps(|target| target.kind != "test").into_iter().map(Step::concurrent),
        );
    }
    if needs::is_root() {
        // The program of the tests' profile: a release build takes minutes.
        steps.push(Step::command(
            "build",
            CommandLine::cargo(&["build", "--package", "fingerpost"]),
        ));
        let binaries = binaries("debug")?;
        let quick = QUICK_SMOKE.map(str::to_owned);
        steps.extend(scripts::scripts(&quick)?.iter().map(|script| script.step(&binaries)));
    } else {
        steps.extend(QUICK_SMOKE.map(|name| Step::skipped(&format!("smoke {name}"), NOT_ROOT)));
    }
    Ok(steps)
}

/// Runs the tests that talk to the kernel.
fn root_tests(programs: &Programs) -> Vec<Step> {
    if needs::is_root() {
        return programs.steps(|target| target.needs_root);
    }
    let fail = |target: &Target| {
        let name = format!("root tests {} {}", target.package, target.name);
        Step::check(&name, |_| Err(NOT_ROOT.to_owned()))
    };
    programs.targets().filter(|target| target.needs_root).map(fail).collect()
}

/// Installs the packages that the root tests and the smoke tests call.
fn packages() -> Step {
    Step::check("packages", |_| needs::packages())
}

/// Lists the steps of `smoke`: the packages, the builds, and the scripts.
pub(crate) fn smoke(only: &[String]) -> Result<Vec<Step>> {
    let scripts = scripts::scripts(only)?;
    let mut steps = vec![packages()];
    if needs::is_root() {
        steps.push(release_build());
        steps.extend(bench_build(&scripts));
    }
    let smoke = smoke_steps(&scripts)?;
    steps.extend(smoke.beside);
    steps.extend(smoke.among_idle);
    steps.extend(smoke.alone);
    steps.extend(smoke.guests);
    Ok(steps)
}

/// Lists the steps of `vm`: the packages, the builds, and scripts in virtual machines.
pub(crate) fn vm(only: &[String]) -> Result<Vec<Step>> {
    let mut scripts = scripts::scripts(only)?;
    scripts.retain(|script| !only.is_empty() || script.runs_in_a_vm());
    let mut steps = vec![packages(), release_build()];
    steps.extend(bench_build(&scripts));
    let binaries = binaries("release")?;
    steps.extend(scripts::vm_step(&scripts.iter().collect::<Vec<_>>(), &binaries));
    Ok(steps)
}

/// Builds the program that most scripts test, in release, as the README's and the guide's commands do.
fn release_build() -> Step {
    Step::command("release build", CommandLine::cargo(&release::WORDS))
}

/// Builds `fingerpost-bench`, the C library and the Python module if one of `scripts` runs the former, in the profile of the tests, as `test`
/// does with its tests: the scripts compare answers and measure no time.
fn bench_build(scripts: &[scripts::Script]) -> Option<Step> {
    let packages = ["fingerpost-bench", "fingerpost-capi", "fingerpost-python"];
    let words: Vec<_> = std::iter::once("build")
        .chain(packages.iter().flat_map(|name| ["--package", name]))
        .collect();
    scripts
        .iter()
        .any(scripts::Script::runs_bench)
        .then(|| Step::command("build of fingerpost-bench", CommandLine::cargo(&words)))
}

/// Returns the programs that the scripts run: `fingerpost` of a build of `profile`.
fn binaries(profile: &str) -> Result<scripts::Binaries> {
    let target = metadata::target()?;
    Ok(scripts::Binaries {
        program: target.join(profile).join("fingerpost"),
        bench: target.join("debug/fingerpost-bench"),
    })
}

/// The steps of smoke tests, on the release build.
#[derive(Default)]
struct SmokeSteps {
    /// Those that may run beside other steps.
    beside: Vec<Step>,
    /// Those that run beside idle steps only.
    among_idle: Vec<Step>,
    /// Those that run alone.
    alone: Vec<Step>,
    /// Those in virtual machines.
    guests: Option<Step>,
}

fn smoke_steps(scripts: &[scripts::Script]) -> Result<SmokeSteps> {
    if !needs::is_root() {
        let fail = |script: &scripts::Script| {
            Step::check(&format!("smoke {}", script.name), |_| Err(NOT_ROOT.to_owned()))
        };
        let alone = scripts.iter().map(fail).collect();
        return Ok(SmokeSteps { alone, ..SmokeSteps::default() });
    }
    let binaries = binaries("release")?;
    let (guests, others): (Vec<_>, Vec<_>) =
        scripts.iter().partition(|script| script.runs_in_a_vm());
    let (alone, beside): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|script| script.runs_alone());
    let (among_idle, beside): (Vec<_>, Vec<_>) =
        beside.into_iter().partition(|script| script.runs_among_idle());
    let step = |script: &&scripts::Script| script.step(&binaries);
    Ok(SmokeSteps {
        beside: beside.iter().map(step).map(Step::concurrent).collect(),
        among_idle: among_idle.iter().map(step).map(Step::among_idle).collect(),
        alone: alone.iter().map(step).collect(),
        guests: scripts::vm_step(&guests, &binaries),
    })
}

/// Lists the steps of `exhaustive`: the tests that are too long for every day.
pub(crate) fn exhaustive(engines: Option<&str>) -> Vec<Step> {
    let step = |name: &str, package: &str, features: &str, test: &str| {
        let package = ["test", "--package", package, "--release"];
        let test = ["--features", features, "--test", test, "--", "--nocapture"];
        // One test at a time: each has threads of its own, and gigabytes.
        let words = [&package[..], &test[..], &["--test-threads=1"]].concat();
        let mut command = CommandLine::cargo(&words);
        if let Some(names) = engines {
            command = command.env("FINGERPOST_ENGINES", names);
        }
        Step::cargo_test(name, command, &[])
    };
    let fib = |name: &str, test: &str| step(name, "fingerpost-fib", "exhaustive", test);
    let mut steps = vec![
        fib("every address of IPv4", "full_space"),
        fib("full tables, streams and memory", "full"),
        fib("64 FIBs", "many_fibs"),
        fib("8 FIBs that share", "fibs_full"),
        fib("estimates of the engine's choice", "estimates"),
    ];
    let in_kernel = "full tables in the kernel";
    steps.push(if needs::is_root() {
        step(in_kernel, "fingerpost-xdp", "exhaustive,root-tests", "root_full")
    } else {
        Step::skipped(in_kernel, "needs root (CAP_BPF, CAP_PERFMON)")
    });
    steps
}

/// Passes the words on to `fingerpost-bench`, without steps and counts.
pub(crate) fn bench(args: &[String]) -> Result<bool> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let status = Command::new(cargo)
        .args(["run", "--release", "--package", "fingerpost-bench", "--"])
        .args(args)
        .status()
        .context("running cargo")?;
    Ok(status.success())
}
