//! Seeds as `make test` runs them.

mod planted;

use std::path::Path;
use std::process::Command;

/// More of them are `make simulate`'s.
const SEEDS: u64 = 500;
const JOBS: usize = 2;
const FAILURES_MAX: usize = 20;
/// Of those that are run twice.
const TWICE: [u64; 8] = [1, 2, 3, 5, 8, 13, 21, 34];

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_pd-simulation"))
}

#[test]
fn the_invariants_hold_for_every_seed() {
    let sweep = pd_simulation::sweep(program(), 1..1 + SEEDS, JOBS, FAILURES_MAX).unwrap();
    assert_eq!(sweep.failed, [], "again: make simulate SEED=…");
    assert_eq!(sweep.seeds, SEEDS);
}

#[test]
fn a_seed_happens_the_same_way_twice() {
    let run = |seed: u64| {
        let mut command = Command::new(program());
        let output = command
            .args(["--seed", &seed.to_string()])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    for seed in TWICE {
        let first = run(seed);
        assert!(first.contains("hash"), "{first}");
        assert_eq!(first, run(seed));
    }
}
