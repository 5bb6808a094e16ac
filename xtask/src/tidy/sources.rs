//! Rules that hold for every source file under version control.

use crate::generate::workspace_root;
use std::path::Path;

/// Names that say nothing about what a file holds.
const EMPTY_NAMES: &[&str] = &[
    "utils", "util", "helpers", "helper", "common", "misc", "mod",
];

/// Where `unsafe` may stand: kernels and mapped files, calls into libibverbs, registered and shared
/// regions.
const UNSAFE_HOMES: &[&str] = &[
    "agent/compute/",
    "agent/verbs/",
    "agent/kv-transfer/src/backend/rdma/completions.rs",
    "agent/kv-transfer/src/memory",
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
