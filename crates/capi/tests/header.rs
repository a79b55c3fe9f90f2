//! The header is what cbindgen makes of the code. `FINGERPOST_WRITE_HEADER=1` writes it.

use std::path::Path;
use std::{env, fs};

/// The files with exported functions, in the header's order.
const ORDER: [&str; 9] =
    ["status", "prefix", "table", "visit", "labels", "load", "reader", "image", "statistics"];

#[test]
fn header_is_that_of_the_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml");
    let files = ORDER.iter().map(|name| root.join("src").join(name).with_extension("rs"));
    let made =
        files.fold(cbindgen::Builder::new(), cbindgen::Builder::with_src).with_config(config);
    let mut bytes = Vec::new();
    made.generate().expect("the code has no syntax that cbindgen lacks").write(&mut bytes);
    // A heading of Rust, whose text is for callers in C.
    let made = String::from_utf8(bytes).expect("UTF-8").replace("// # Safety\n//\n", "");
    let path = root.join("include/fingerpost.h");
    if env::var_os("FINGERPOST_WRITE_HEADER").is_some() {
        fs::write(&path, &made).expect("the header can be written");
    }
    let ours = fs::read_to_string(&path).expect("the header can be read");
    assert!(
        ours == made,
        "{} is not that of the code: run this test with FINGERPOST_WRITE_HEADER=1",
        path.display()
    );
}
