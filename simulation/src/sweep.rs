//! Many seeds, each in a process of its own.

use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The result of many seeds.
#[derive(Debug, Default)]
pub struct Sweep {
    pub seeds: u64,
    /// The line of each seed that failed.
    pub failed: Vec<(u64, String)>,
}

/// Runs seeds by `program`, `jobs` at a time, in order; none is begun after `failures_max` have failed.
///
/// # Errors
/// The program cannot be started.
pub fn sweep(
    program: &Path,
    seeds: Range<u64>,
    jobs: usize,
    failures_max: usize,
) -> io::Result<Sweep> {
    let next = AtomicU64::new(seeds.start);
    let failures = AtomicUsize::new(0);
    let sweep = Mutex::new(Sweep::default());
    let work = || -> io::Result<()> {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || failures.load(Ordering::Relaxed) >= failures_max {
                return Ok(());
            }
            let output = Command::new(program)
                .args(["--seed", &seed.to_string()])
                .output()?;
            let mut sweep = sweep.lock();
            sweep.seeds += 1;
            if !output.status.success() {
                failures.fetch_add(1, Ordering::Relaxed);
                let line = String::from_utf8_lossy(&output.stdout).trim().to_owned();
                sweep.failed.push((seed, line));
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })?;
    let mut sweep = sweep.into_inner();
    sweep.failed.sort_unstable();
    Ok(sweep)
}
