//! The Makefile's selections of packages give external crates the same features, so that no command compiles again what
//! another one has compiled.

use crate::generate::workspace_root;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// External crate → its features, as one word each; a crate that is built twice (for the host, too) has two.
type Features = BTreeMap<String, BTreeSet<String>>;

/// The words of a selection of the Makefile, its references expanded, without CUDA.
fn selection(name: &str) -> Vec<String> {
    let makefile = std::fs::read_to_string(workspace_root().join("Makefile"))
        .unwrap_or_else(|why| panic!("Makefile: {why}"));
    let value = makefile
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name} = ")));
    let value = value.unwrap_or_else(|| panic!("the Makefile has no {name}"));
    value
        .split_whitespace()
        .flat_map(|word| match word {
            "$(KERNELS)" => Vec::new(),
            _ => match word.strip_prefix("$(").and_then(|w| w.strip_suffix(')')) {
                Some(name) => selection(name),
                None => vec![word.to_owned()],
            },
        })
        .collect()
}

fn features(selection: &[String], edges: &str) -> Features {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--prefix", "none", "-e", edges])
        .args(["-f", "{p}|{f}"])
        .args(selection)
        .current_dir(workspace_root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut features = Features::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let line = line.replace(" (*)", "").replace(" (proc-macro)", "");
        // Our own crates are named with their folder.
        if let Some((package, with)) = line.split_once('|').filter(|(p, _)| !p.contains('(')) {
            features
                .entry(package.to_owned())
                .or_default()
                .insert(with.to_owned());
        }
    }
    features
}

/// Every crate that `part` compiles is one that `whole` compiles, with the same features.
fn assert_within(whole: &Features, part: &Features, name: &str) {
    for (package, with) in part {
        let known = whole.get(package).cloned().unwrap_or_default();
        let known_here = known.is_empty() || with.is_subset(&known);
        assert!(
            known_here,
            "{name} compiles {package} with {with:?}, and the whole selection with {known:?}: give both the same \
             features, in [workspace.dependencies] or by the selection"
        );
    }
}

#[test]
fn release_commands_compile_external_crates_alike() {
    let whole = features(&selection("RELEASE_SET"), "no-dev");
    let demo = features(&selection("DEMO_SET"), "no-dev");
    assert_within(&whole, &demo, "DEMO_SET");
}

#[test]
fn every_command_selects_what_another_one_has_compiled() {
    let makefile = std::fs::read_to_string(workspace_root().join("Makefile")).unwrap();
    let ci = std::fs::read_to_string(workspace_root().join(".ci/run")).unwrap();
    let targets: BTreeSet<&str> = ci
        .split([';', '\n', '&'])
        .filter_map(|step| step.trim().strip_prefix("make "))
        .filter_map(|step| step.split(' ').next())
        .collect();
    let mut target = "";
    for line in makefile.lines() {
        if !line.starts_with(['\t', '#', ' ']) {
            target = line.split(':').next().unwrap_or_default();
        }
        let is_step = targets.contains(target) || ["binaries", "kube", "plugin"].contains(&target);
        let compiles = ["build", "test", "run"].iter().any(|command| {
            let by =
                ["cargo", "cargo-tests.sh", "$(TESTS)"].map(|cargo| format!("{cargo} {command}"));
            by.iter().any(|by| line.contains(by))
        });
        assert!(
            !(is_step && compiles) || line.contains("_SET)"),
            "make {target} selects packages of its own: {}",
            line.trim()
        );
    }
}

#[test]
fn tests_compile_each_of_our_crates_as_a_development_build_does() {
    let read = |path: &str| std::fs::read_to_string(workspace_root().join(path)).unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--no-deps", "--format-version=1"])
        .current_dir(workspace_root())
        .output()
        .expect("cargo runs");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    let names: BTreeSet<_> = packages.map(|p| p["name"].as_str().unwrap()).collect();
    let development = read("Cargo.toml");
    let expected: Vec<String> = names
        .iter()
        .map(|name| {
            let own = format!("[profile.dev.package.{name}]\nopt-level = ");
            let own = development.split_once(&own);
            let level = own.and_then(|(_, rest)| rest.lines().next()).unwrap_or("0");
            format!("{name} = {{ opt-level = {level}")
        })
        .collect();
    let tests = read("xtask/tests.toml");
    let lines = tests.lines().filter(|line| line.contains(" = {"));
    let named: Vec<_> = lines.filter_map(|line| line.split(',').next()).collect();
    assert_eq!(
        named, expected,
        "xtask/tests.toml names each crate once, by name"
    );
}
