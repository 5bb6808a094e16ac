//! Generated files and tidy tests.
fn main() {}
