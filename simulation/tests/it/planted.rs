//! The planted faults that `make planted` finds.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// At least so many are wanted.
const PLANTED_MIN: usize = 20;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("planted")
}

fn names() -> BTreeSet<String> {
    let files = std::fs::read_dir(folder()).expect("the folder is here");
    let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
    names
        .filter_map(|name| name.strip_suffix(".patch").map(str::to_owned))
        .collect()
}

#[test]
fn every_planted_fault_applies() {
    let names = names();
    assert!(names.len() >= PLANTED_MIN, "{names:?}");
    for name in names {
        let mut git = Command::new("git");
        git.args(["apply", "--check"])
            .arg(folder().join(format!("{name}.patch")))
            .current_dir(folder().join("../.."));
        let output = git.output().unwrap();
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {why}");
    }
}

#[test]
fn every_planted_fault_is_in_the_table() {
    let table = std::fs::read_to_string(folder().join("README.md")).unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| "));
    let rows = rows.filter_map(|row| row.split(" |").next());
    let listed: BTreeSet<String> = rows
        .filter(|name| name.starts_with(|first: char| first.is_ascii_digit()))
        .map(str::to_owned)
        .collect();
    assert_eq!(listed, names());
}
