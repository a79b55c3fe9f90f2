//! Tests of flow programs; the essay of each file states what it compares them with.
//!
//! The installed clang compiles the shipped programs once a test run.

mod differential;
mod fuzz;
mod hostile;
mod matrix;

use std::process::Command;
use std::sync::OnceLock;

use super::insn::Insn;
use super::object::Code;
use super::shipped::{CLANG, HEADERS, SOURCES};
use super::{Machine, Program};

/// A temporary folder, removed on drop.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("fingerpost-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Compiles a program with the documented arguments, for one version of the instruction set.
fn compile(name: &str, text: &str, cpu: &str) -> Vec<u8> {
    let folder = Folder::new(&format!("{name}-{cpu}"));
    for (header, text) in HEADERS {
        std::fs::write(folder.0.join(header), text).unwrap();
    }
    std::fs::write(folder.0.join("program.c"), text).unwrap();
    let clang = Command::new("clang")
        .args(CLANG)
        .args(["-Werror", &format!("-mcpu={cpu}"), "program.c", "-o", "program.o"])
        .current_dir(&folder.0)
        .output()
        .expect("clang is installed: apt-get install clang");
    assert!(clang.status.success(), "{name}: {}", String::from_utf8_lossy(&clang.stderr));
    std::fs::read(folder.0.join("program.o")).unwrap()
}

/// Returns the shipped programs as object files, for the oldest and newest instruction set.
pub(crate) fn objects() -> &'static [(String, Vec<u8>)] {
    static OBJECTS: OnceLock<Vec<(String, Vec<u8>)>> = OnceLock::new();
    OBJECTS.get_or_init(|| {
        let each = SOURCES.iter().flat_map(|source| {
            ["v1", "v3"].map(|cpu| {
                (format!("{} {cpu}", source.name), compile(source.name, source.text, cpu))
            })
        });
        each.collect()
    })
}

/// Returns a shipped program.
pub(crate) fn shipped(name: &str) -> Program {
    let (_, object) = objects().iter().find(|(of, _)| of.starts_with(name)).unwrap();
    Program::load(object).unwrap()
}

fn code(insns: &[Insn]) -> Code {
    Code { insns: insns.to_vec(), rodata: Vec::new() }
}

const fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Insn {
    Insn { code, dst, src, off, imm }
}

#[test]
fn shipped_programs_pass_the_verifier_and_are_short() {
    for (name, object) in objects() {
        let program = Program::load(object).unwrap_or_else(|error| panic!("{name}: {error}"));
        let (longest, steps) = (program.packet().longest(), program.packet().steps());
        assert!(longest <= 1000 && steps < 20_000, "{name}: {longest}, {steps}");
    }
}

#[test]
fn damaged_object_files_are_rejected_or_valid() {
    let (_, object) = &objects()[0];
    assert!(Program::load(&[]).is_err());
    // Truncated at each length, and with each byte changed: an error, or a valid program.
    let mut passed = 0;
    for cut in 0..object.len() {
        passed += u32::from(Program::load(&object[..cut]).is_ok());
    }
    assert_eq!(passed, 0);
    let mut rng = fastrand::Rng::with_seed(3);
    for at in 0..object.len() {
        let mut object = object.clone();
        object[at] ^= 1 << rng.u8(..8);
        if let Ok(program) = Program::load(&object) {
            passed += 1;
            let mut machine = Machine::default();
            machine.init(&program, 1, &mut [0; 64]);
            assert_eq!(machine.faults(), 0);
        }
    }
    assert!(passed > 100, "{passed}: changes of unused section names pass too");
}
