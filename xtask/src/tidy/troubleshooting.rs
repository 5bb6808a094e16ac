//! A page in docs/troubleshooting for each alert of the chart and each reason of a condition, and none beyond.

use crate::generate::workspace_root;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const PAGES: &str = "docs/troubleshooting";
const RULES: &str = "charts/pdserve/rules/pdserve.yaml";
/// Where conditions get their reasons.
const STATUS: &[&str] = &[
    "operator/src/cluster/workers/patches.rs",
    "operator/src/cluster/status.rs",
    "operator/src/cluster/status",
];
/// Names in capitals that are no reasons: types of conditions, their statuses, and the words of events.
const NOT_REASONS: &[&str] = &[
    "DecodeReady",
    "False",
    "ImagesAlike",
    "ModelReady",
    "PeerKeysRotated",
    "PrefillReady",
    "Progressing",
    "Ready",
    "Reconciling",
    "RouterReady",
    "SpecValid",
    "Stalled",
    "StateSlotsFree",
    "True",
    "WeightsServed",
    "WorkersGuarded",
    "Replace",
    "WorkerReplaced",
];

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Rust files at or below `path`, without tests.
fn sources(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let Ok(folder) = std::fs::read_dir(path) else {
        return Vec::new();
    };
    let entries = folder.map(|entry| entry.expect("a folder that can be listed").path());
    let kept = entries.filter(|path| !path.ends_with("tests") && !path.ends_with("tests.rs"));
    kept.flat_map(|path| sources(&path)).collect()
}

/// String literals of the code that read like a reason: `CamelCase`, letters and digits alone.
fn names(code: &str) -> impl Iterator<Item = &str> {
    let code = code.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let literals = lines.flat_map(|line| line.split('"').skip(1).step_by(2));
    literals.filter(|name| {
        name.len() > 2
            && name.starts_with(|first: char| first.is_ascii_uppercase())
            && name.chars().all(|c| c.is_ascii_alphanumeric())
            && name.chars().any(|c| c.is_ascii_lowercase())
    })
}

fn reasons() -> BTreeSet<String> {
    let files = STATUS
        .iter()
        .flat_map(|path| sources(&workspace_root().join(path)));
    let texts: Vec<String> = files.map(|path| read(&path)).collect();
    let found = texts.iter().flat_map(|text| names(text));
    let found = found.filter(|name| !NOT_REASONS.contains(name));
    found.map(str::to_owned).collect()
}

fn alerts() -> BTreeSet<String> {
    let rules = read(&workspace_root().join(RULES));
    let names = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    names.map(str::to_owned).collect()
}

fn pages() -> BTreeSet<String> {
    let folder = workspace_root().join(PAGES);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{PAGES}: {e}"));
    let names = files.map(|file| file.expect("a file").file_name());
    let names = names.filter_map(|name| Some(name.to_str()?.strip_suffix(".md")?.to_owned()));
    names.filter(|name| name != "README").collect()
}

#[test]
fn every_alert_and_every_reason_has_a_page() {
    let (alerts, reasons, pages) = (alerts(), reasons(), pages());
    assert!(alerts.contains("PDSLOBurn") && reasons.contains("KvDoesNotArrive"));
    let named: BTreeSet<&String> = alerts.union(&reasons).collect();
    let missing: Vec<_> = named
        .iter()
        .filter(|name| !pages.contains(**name))
        .collect();
    assert!(missing.is_empty(), "{PAGES}/NAME.md lacks {missing:?}");
    let strays: Vec<_> = pages.iter().filter(|page| !named.contains(page)).collect();
    assert!(
        strays.is_empty(),
        "{PAGES}: neither alert nor reason: {strays:?}"
    );
}

#[test]
fn every_alert_links_to_its_own_page() {
    let rules = read(&workspace_root().join(RULES));
    let blocks = rules.split("- alert: ").skip(1);
    for block in blocks {
        let name = block.lines().next().unwrap_or_default();
        let link = format!("runbook_url: RUNBOOKS/{name}.md");
        assert!(block.contains(&link), "{name} has no {link}");
    }
}

#[test]
fn every_page_says_what_it_means_how_to_look_and_what_to_do() {
    let folder = workspace_root().join(PAGES);
    let index = read(&folder.join("README.md"));
    for name in pages() {
        let page = read(&folder.join(format!("{name}.md")));
        let title = page.lines().find(|line| line.starts_with('#'));
        assert_eq!(title, Some(format!("# {name}").as_str()));
        for heading in ["## What it means", "## How to look", "## What to do"] {
            assert!(page.contains(heading), "{name}: {heading}");
        }
        assert!(
            index.contains(&format!("[{name}]({name}.md)")),
            "{name}: index"
        );
        for link in page
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            assert!(folder.join(link).exists(), "{name}: {link} is not there");
        }
    }
}
