//! `fingerpost program`: shipped programs compile and pass; invalid ones are refused with the
//! instruction and the reason, and leave no file.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn folder(name: &str) -> Folder {
    let path = std::env::temp_dir().join(format!("fingerpost-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    Folder(path)
}

fn fingerpost(within: &Path, words: &[&str]) -> Output {
    let program = Command::new(env!("CARGO_BIN_EXE_fingerpost"));
    { program }.arg("program").args(words).current_dir(within).output().unwrap()
}

fn stdout_of(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn listed_programs_build_and_pass_the_check() {
    let folder = folder("program");
    let list = stdout_of(&fingerpost(&folder.0, &["list"]));
    assert_eq!(list.lines().count(), 6);
    for line in list.lines() {
        let name = line.split_whitespace().nth(1).unwrap();
        let built = stdout_of(&fingerpost(&folder.0, &["build", name]));
        assert!(built.starts_with(&format!("{name}.o: valid\n  init ")), "{built}");
        // The written file is the checked one.
        assert_eq!(stdout_of(&fingerpost(&folder.0, &["check", &format!("{name}.o")])), built);
    }
    let json = stdout_of(&fingerpost(&folder.0, &["check", "-j", "web.o"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json["sections"]["pkt"]["longest"].as_u64().unwrap() > 50, "{json}");
    // From the source that it writes.
    let source = stdout_of(&fingerpost(&folder.0, &["source", "dns"]));
    std::fs::write(folder.0.join("mine.c"), source).unwrap();
    stdout_of(&fingerpost(&folder.0, &["build", "mine.c", "-o", "other.o"]));
    assert!(folder.0.join("other.o").exists());
}

#[test]
fn invalid_programs_are_refused_and_leave_no_file() {
    let folder = folder("hostile");
    let begin = "#include \"flow.h\"\n\
                 SECTION(\"init\") uint64_t a(struct gk_bpf_init_ctx *c) { return c->now == 0; }\n\
                 SECTION(\"pkt\") uint64_t b(struct gk_bpf_pkt_ctx *ctx) { ";
    let bodies = [
        ("loop", "volatile int i = 0; for (;;) i++;", "infinite loop"),
        ("bounds", "return pkt_ctx_to_pkt(ctx)->l3[0];", "1 bytes of the packet at 0"),
        (
            "cookie",
            "return ((uint8_t *)pkt_ctx_to_cookie(ctx))[ctx->now];",
            "arithmetic with a pointer",
        ),
        ("leak", "return (uint64_t)pkt_ctx_to_pkt(ctx)->l3;", "pointer would leave"),
        ("division", "return 7 / ctx->l4_proto;", "can be zero"),
        ("unknown", "extern int bpf_redirect(int); return bpf_redirect(3);", "`bpf_redirect`"),
        ("global", "static volatile int seen; return seen++;", "only the cookie lasts"),
        (
            "stack",
            "volatile uint8_t a[400]; a[2 * ctx->l4_proto] = 1; return 0;",
            "of the stack at",
        ),
    ];
    for (name, body, reason) in bodies {
        let body = format!("(void)ctx; {body}");
        let file = format!("{name}.c");
        std::fs::write(folder.0.join(&file), format!("{begin}{body} }}\n")).unwrap();
        let output = fingerpost(&folder.0, &["build", &file]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(reason), "{name}: {error}");
        assert!(error.contains("pkt, instruction"), "{name}: {error}");
        assert!(!folder.0.join(format!("{name}.o")).exists());
    }
    let output = fingerpost(&folder.0, &["check", "loop.c"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("not an object file"));
}
