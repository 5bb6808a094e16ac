//! Rules that hold for every source file under version control.

use crate::generate::workspace_root;
use std::path::Path;

/// Names that say nothing about what a file holds.
const EMPTY_NAMES: &[&str] = &[
    "utils", "util", "helpers", "helper", "common", "misc", "mod",
];

/// Where `unsafe` may stand: kernels and mapped files, calls into libibverbs, registered and shared
/// regions, and what a simulation defines in the C library's place.
const UNSAFE_HOMES: &[&str] = &[
    "agent/compute/",
    "agent/verbs/",
    // One call of the allocator.
    "allocator/",
    "agent/kv-transfer/src/transport/rdma/completions.rs",
    "agent/kv-transfer/src/memory",
    // The C library's clock and random numbers, which a simulation defines.
    "simulation/src/libc.rs",
];

fn rust_files() -> Vec<(String, String)> {
    let output = std::process::Command::new("git")
        .args(["ls-files", "*.rs"])
        .current_dir(workspace_root())
        .output()
        .expect("git runs");
    let listed = String::from_utf8(output.stdout).expect("file names are UTF-8");
    listed
        .lines()
        .filter_map(|path| {
            let text = std::fs::read_to_string(workspace_root().join(path)).ok()?;
            Some((path.to_owned(), text))
        })
        .collect()
}

fn offenders(rule: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let files = rust_files();
    assert!(!files.is_empty(), "git lists no source file");
    files
        .into_iter()
        .filter(|(path, text)| !rule(path, text))
        .map(|(path, _)| path)
        .collect()
}

#[test]
fn every_file_opens_with_a_module_header() {
    assert_eq!(
        offenders(|_, text| text.starts_with("//!")),
        Vec::<String>::new()
    );
}

#[test]
fn every_file_is_named_by_a_noun() {
    let named = |path: &str, _: &str| {
        let stem = Path::new(path)
            .file_stem()
            .and_then(|s| s.to_str())
            .unwrap_or_default();
        !EMPTY_NAMES.contains(&stem)
    };
    assert_eq!(offenders(named), Vec::<String>::new());
}

#[test]
fn unsafe_stands_only_where_it_may() {
    let word = ["unsafe ", "unsafe{"];
    let tidy = |path: &str, text: &str| {
        UNSAFE_HOMES.iter().any(|home| path.starts_with(home))
            || path.starts_with("xtask/src/tidy")
            || !text
                .lines()
                .map(str::trim_start)
                .any(|line| !line.starts_with("//") && word.iter().any(|w| line.contains(w)))
    };
    assert_eq!(offenders(tidy), Vec::<String>::new());
}

#[test]
fn no_test_is_ignored() {
    let tidy =
        |path: &str, text: &str| path.starts_with("xtask/src/tidy") || !text.contains("#[ignore");
    assert_eq!(offenders(tidy), Vec::<String>::new());
}

/// Crates whose sockets and clocks come from `net.rs` and `clock.rs`, which a simulation of the whole system replaces.
const SEAMS: &[&str] = &["agent/kv-transfer/src/", "router/src/"];
/// How a socket is opened or a clock read past them.
const SEAM_CALLS: &[&str] = &[
    "TcpStream::connect",
    "TcpListener::bind",
    "HttpConnector",
    "SystemTime::now",
    "std::time::Instant",
    "std::time::{Duration, Instant",
    "tokio::time::Instant",
    "tokio::net::Tcp",
    "tokio::net::{Tcp",
];

#[test]
fn sockets_and_clocks_come_from_the_seams() {
    let tidy = |path: &str, text: &str| {
        let home = SEAMS.iter().find(|home| path.starts_with(**home));
        let is_seam = |home: &&str| ["net.rs", "clock.rs"].contains(&path.trim_start_matches(home));
        home.is_none_or(is_seam)
            || path.contains("tests")
            || !SEAM_CALLS.iter().any(|call| text.contains(call))
    };
    assert_eq!(offenders(tidy), Vec::<String>::new());
}

#[test]
fn a_choice_by_a_bool_is_an_if() {
    let tidy = |path: &str, text: &str| {
        path.starts_with("xtask/src/tidy")
            || !text
                .lines()
                .map(str::trim_start)
                .any(|line| line.starts_with("true => "))
    };
    assert_eq!(offenders(tidy), Vec::<String>::new());
}

/// The end of a `use` statement, whether it is a line or a list over several.
fn is_import(line: &str) -> bool {
    (line.starts_with("use ") && line.ends_with(';')) || line == "};"
}

#[test]
fn imports_of_a_file_are_one_block() {
    let tidy = |_: &str, text: &str| {
        let gaps = text
            .split("\n\n")
            .map(|part| part.lines().last().unwrap_or_default());
        let starts = text
            .split("\n\n")
            .skip(1)
            .map(|part| part.lines().next().unwrap_or_default());
        !gaps
            .zip(starts)
            .any(|(end, start)| is_import(end) && start.starts_with("use "))
    };
    assert_eq!(offenders(tidy), Vec::<String>::new());
}

/// Most lines of a file, and those that are longer and only shrink.
const LINES_MAX: usize = 400;
const LONGER: &[(&str, usize)] = &[
    ("agent/compute/proof/src/emulation.rs", 560),
    ("agent/compute/proof/src/speed.rs", 458),
    ("agent/compute/src/cuda/gpu.rs", 555),
    ("agent/kv-transfer/examples/soak/worker.rs", 534),
    (
        "agent/kv-transfer/src/transport/rdma/dispatch/tests.rs",
        510,
    ),
    ("agent/kv-transfer/src/ranks/tests.rs", 445),
    ("agent/kv-transfer/src/tests/faults.rs", 427),
    ("agent/kv-transfer/src/tests/fixture.rs", 423),
    ("agent/verbs/src/ffi.rs", 438),
    ("operator/src/controller/autoscale/tests/simulator.rs", 437),
    ("operator/src/controller/plan/tests.rs", 451),
];

#[test]
fn no_file_is_longer_than_a_reader_can_hold() {
    let tidy = |path: &str, text: &str| {
        let longer = LONGER.iter().find(|(long, _)| *long == path);
        text.lines().count() <= longer.map_or(LINES_MAX, |(_, lines)| *lines)
    };
    assert_eq!(offenders(tidy), Vec::<String>::new());
}

#[test]
fn a_queue_without_a_capacity_says_what_bounds_it() {
    let tidy = |path: &str, text: &str| {
        let lines: Vec<&str> = text.lines().collect();
        let is_argued = |at: usize| {
            let above = &lines[at.saturating_sub(4)..at];
            above
                .iter()
                .any(|line| line.contains("// ") && line.to_lowercase().contains("bound"))
        };
        let is_open =
            |line: &str| line.contains("unbounded_channel()") || line.contains("::unbounded()");
        let is_exempt =
            path.contains("tests") || path.starts_with("xtask/") || path.starts_with("e2e/");
        is_exempt || (0..lines.len()).all(|at| !is_open(lines[at]) || is_argued(at))
    };
    assert_eq!(offenders(tidy), Vec::<String>::new());
}
