//! One command per habit of this repository.
fn main() {}
