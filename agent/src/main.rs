//! Node agent: HTTP API, bootstrap server, wiring of engine and KV transfer.
fn main() {}
