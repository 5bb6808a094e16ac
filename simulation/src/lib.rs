//! A deployment in one process, whose every run follows from a seed: the product's own code on simulated hosts, with a
//! simulated network, clock and source of randomness, and faults.
//!
//! 1. `libc` takes over the C library's clock and random numbers, `pd-net` has the sockets; product code needs no more.
//! 2. `world` lets time pass for `host`s and for the `network` between them.
//! 3. `scenario` draws a deployment, its `client`s' requests and its `faults` from the seed, runs them and has
//!    `invariants` judge them.
//! 4. `sweep` runs many seeds, each in a process of its own: what a process keeps for itself (tokio's counter of
//!    generators, once-made statics) would else depend on the seeds before.

mod client;
mod engine;
mod faults;
mod health;
mod host;
mod invariants;
mod libc;
mod log;
mod network;
mod plan;
mod reference;
mod scenario;
mod software;
mod stranger;
mod sweep;
mod trace;
mod worker;
mod world;

pub use scenario::{Report, run};
pub use sweep::{Sweep, sweep};
