//! Dual-dispatch router with an OpenAI API.
fn main() {}
