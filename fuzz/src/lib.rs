//! Fuzz targets as tests. `cargo test` runs a target over its corpus, over inputs near those, and over some random bytes;
//! under libFuzzer (`make fuzz`) the same test runs for as long as one likes. A target panics where a property does not
//! hold; that no input takes memory out of proportion is a property of all of them. Why so: docs/decisions/0065.

mod near;
mod random;

pub use bolero;

use random::Draw;
use std::fs;
use std::panic::{self, AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Random inputs of a target in `cargo test`.
pub const RANDOM_INPUTS: usize = 128;
/// Longest random input.
pub const RANDOM_BYTES_MAX: usize = 2048;

/// What takes longer is shown by `make fuzz COVERAGE=0`.
const SLOW: Duration = Duration::from_secs(2);

/// Bytes of memory that an input may take at its peak: `base`, and `per_byte` for each of its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub base: u64,
    pub per_byte: u64,
}

/// Defines the body of a test in a module `fuzz`: `fuzz!("name", memory, target)`. The corpus lies beside the source
/// file, in `__fuzz__/name/corpus`.
#[macro_export]
macro_rules! fuzz {
    ($name:literal, $memory:expr, $target:expr) => {
        let target: fn(&[u8]) = $target;
        let memory: $crate::Memory = $memory;
        $crate::replay(env!("CARGO_MANIFEST_DIR"), file!(), $name, memory, target);
        $crate::bolero::check!(name = $name)
            .with_iterations($crate::RANDOM_INPUTS)
            .with_test_time(std::time::Duration::MAX)
            .with_max_len($crate::RANDOM_BYTES_MAX)
            .for_each(move |bytes: &[u8]| $crate::run(memory, bytes, target));
    };
}

/// Runs what a target compares with, whose memory does not count.
pub fn oracle<T>(compare: impl FnOnce() -> T) -> T {
    let mut result = None;
    allocation_counter::opt_out(|| result = Some(compare()));
    result.expect("it ran")
}

static UNCOUNTED: Once = Once::new();

/// The message of a panic that the product catches does not count: with a backtrace it takes 50 MB once.
fn leave_messages_out() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        allocation_counter::opt_out(|| print(info));
    }));
}

/// Runs `target` over one input.
///
/// # Panics
/// The target did, or took more than `memory`.
pub fn run(memory: Memory, bytes: &[u8], target: fn(&[u8])) {
    UNCOUNTED.call_once(leave_messages_out);
    let mut ended = Ok(());
    let measured = allocation_counter::measure(|| {
        // A panic would leave the counter on.
        ended = catch_unwind(AssertUnwindSafe(|| target(bytes)));
    });
    if let Err(panic) = ended {
        resume_unwind(panic);
    }
    let (used, len) = (measured.bytes_max, bytes.len());
    let max = memory.base + memory.per_byte * len as u64;
    assert!(
        used <= max,
        "an input of {len} bytes took {used} bytes of memory; at most {max} were expected"
    );
}

/// Runs `target` over every file of the corpus and over inputs near them, unless libFuzzer does so better.
///
/// # Panics
/// The target did, or took more than `memory`; the input is printed. There is no corpus.
pub fn replay(manifest_dir: &str, file: &str, name: &str, memory: Memory, target: fn(&[u8])) {
    let is_listing = std::env::var_os("CARGO_BOLERO_SELECT").is_some();
    if is_listing || std::env::var_os("BOLERO_LIBFUZZER_ARGS").is_some() {
        return;
    }
    let folder = corpus(manifest_dir, file, name);
    let files = inputs(&folder);
    assert!(!files.is_empty(), "no inputs in {}", folder.display());
    let read =
        |path: &PathBuf| fs::read(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    let known: Vec<Vec<u8>> = files.iter().map(read).collect();
    for (path, bytes) in files.iter().zip(&known) {
        let inputs = std::iter::once(bytes.clone()).chain(near::inputs(bytes));
        for (nr, input) in inputs.enumerate() {
            run_shown(memory, &input, target, || {
                format!("{name}: input {nr} near {}", path.display())
            });
        }
    }
    if let Some(seconds) = seconds() {
        run_for(seconds, name, memory, target, &known);
    }
}

/// `make fuzz COVERAGE=0` says how long random changes are tried.
fn seconds() -> Option<u64> {
    std::env::var("PDSERVE_FUZZ_SECONDS").ok()?.parse().ok()
}

fn run_for(seconds: u64, name: &str, memory: Memory, target: fn(&[u8]), known: &[Vec<u8>]) {
    let started = Instant::now();
    let seed = SystemTime::now().duration_since(UNIX_EPOCH);
    let seed = seed.map_or(1, |since| since.as_secs() | 1);
    let (mut draw, mut runs) = (Draw(seed), 0_u64);
    while started.elapsed() < Duration::from_secs(seconds) {
        let input = draw.input(known);
        run_shown(memory, &input, target, || {
            format!("{name}: seed {seed}, run {runs}")
        });
        runs += 1;
    }
    eprintln!(
        "{name:<26} {runs:>9} runs, {:>6}/s, seed {seed}",
        runs / seconds.max(1)
    );
}

/// Shows the input that fails.
fn run_shown(memory: Memory, input: &[u8], target: fn(&[u8]), which: impl Fn() -> String) {
    let started = Instant::now();
    let ran = catch_unwind(AssertUnwindSafe(|| run(memory, input, target)));
    if let Err(panic) = ran {
        eprintln!("{}: {}", which(), input.escape_ascii());
        resume_unwind(panic);
    }
    if seconds().is_some() && started.elapsed() > SLOW {
        eprintln!(
            "{} took {:?}: {}",
            which(),
            started.elapsed(),
            input.escape_ascii()
        );
    }
}

/// Where bolero looks for the inputs of a target, too.
fn corpus(manifest_dir: &str, file: &str, name: &str) -> PathBuf {
    let mut roots = Path::new(manifest_dir).ancestors();
    let source = roots.find_map(|root| Some(root.join(file)).filter(|path| path.exists()));
    let source = source.unwrap_or_else(|| panic!("{file} is not above {manifest_dir}"));
    source.with_file_name("__fuzz__").join(name).join("corpus")
}

fn inputs(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests;
