//! Documents: every link and anchor resolves, every page is in the book, what must be short is short, decisions have one
//! form, and what code cites exists.

use crate::generate::workspace_root;
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// Most lines of what a newcomer reads first, and of a decision: a screen.
const LINES_MAX: &[(&str, usize)] = &[("README.md", 120), ("ARCHITECTURE.md", 120)];
const DECISION_LINES_MAX: usize = 40;
const DECISIONS: &str = "docs/decisions/";
const SUMMARY: &str = "docs/SUMMARY.md";
/// Top folders whose paths documents name in backticks.
const FOLDERS: &[&str] = &[
    "agent/",
    "crds/",
    "e2e/",
    "operator/",
    "plugin/",
    "protocol/",
    "router/",
    "xtask/",
];

fn read(path: &str) -> String {
    std::fs::read_to_string(workspace_root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn files(patterns: &[&str]) -> Vec<String> {
    let output = std::process::Command::new("git")
        .args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "--",
        ])
        .args(patterns)
        .current_dir(workspace_root())
        .output()
        .expect("git runs");
    let listed = String::from_utf8(output.stdout).expect("file names are UTF-8");
    let exists = |path: &&str| workspace_root().join(path).is_file();
    listed.lines().filter(exists).map(str::to_owned).collect()
}

/// Lines outside fenced blocks.
fn prose(text: &str) -> Vec<&str> {
    let mut is_fenced = false;
    let outside = |line: &&str| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    };
    text.lines().filter(outside).collect()
}

/// Parts of `line` between `before` and `after`.
fn between<'a>(line: &'a str, before: &str, after: &str) -> Vec<&'a str> {
    let parts = line.split(before).skip(1);
    parts
        .filter_map(|rest| Some(rest.split_once(after)?.0))
        .collect()
}

/// GitHub's anchor of a heading: lower case, spaces as dashes, no other punctuation.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter_map(|c| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
        _ => None,
    });
    kept.collect::<String>().to_lowercase()
}

fn has_anchor(page: &str, wanted: &str) -> bool {
    let text = read(page);
    let headings = prose(&text)
        .into_iter()
        .filter(|line| line.starts_with('#'));
    headings
        .map(|line| anchor(line.trim_start_matches('#')))
        .any(|it| it == wanted)
}

/// `link` as seen from `page`, from the root; `None` where it leaves the repository.
fn target(page: &str, link: &str) -> Option<String> {
    let from = Path::new(page).parent().unwrap_or(Path::new(""));
    let mut path = PathBuf::new();
    for part in from.join(link).components() {
        if part != Component::ParentDir {
            path.push(part);
        } else if !path.pop() {
            return None;
        }
    }
    Some(path.to_str()?.to_owned())
}

fn dead_link(page: &str, link: &str) -> Option<String> {
    if link.contains("://") {
        return None;
    }
    let (path, fragment) = link.split_once('#').unwrap_or((link, ""));
    let file = if path.is_empty() {
        Some(page.to_owned())
    } else {
        target(page, path)
    };
    let is_dead = match file {
        Some(file) if workspace_root().join(&file).exists() => {
            !fragment.is_empty() && !has_anchor(&file, fragment)
        }
        _ => true,
    };
    is_dead.then(|| format!("{page}: {link}"))
}

#[test]
fn every_link_of_a_document_resolves() {
    let mut dead = Vec::new();
    for page in files(&["*.md"]) {
        let text = read(&page);
        let links = prose(&text)
            .into_iter()
            .flat_map(|line| between(line, "](", ")"));
        dead.extend(links.filter_map(|link| dead_link(&page, link)));
    }
    assert_eq!(dead, Vec::<String>::new());
}

#[test]
fn every_page_is_in_the_book() {
    let summary = read(SUMMARY);
    let linked: BTreeSet<String> = summary
        .lines()
        .flat_map(|line| between(line, "](", ")"))
        .filter_map(|link| target(SUMMARY, link))
        .collect();
    let pages = files(&["docs/*.md"])
        .into_iter()
        .filter(|page| page != SUMMARY);
    let missing: Vec<String> = pages.filter(|page| !linked.contains(page)).collect();
    assert_eq!(missing, Vec::<String>::new(), "{SUMMARY} lacks these");
}

#[test]
fn what_is_read_first_is_short() {
    for (path, most) in LINES_MAX {
        let lines = read(path).lines().count();
        assert!(
            lines <= *most,
            "{path} has {lines} lines, {most} are allowed: move details into docs/"
        );
    }
}

#[test]
fn paths_that_documents_name_exist() {
    let mut wrong = Vec::new();
    for page in files(&["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/*.md"]) {
        let text = read(&page);
        let named = prose(&text)
            .into_iter()
            .flat_map(|line| line.split('`').skip(1).step_by(2));
        let is_path =
            |name: &&str| FOLDERS.iter().any(|it| name.starts_with(it)) && !name.contains('*');
        let paths = named.filter(is_path);
        let missing = paths.filter(|path| !workspace_root().join(path).exists());
        wrong.extend(missing.map(|path| format!("{page}: {path}")));
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn decisions_have_one_form() {
    let index = read("docs/decisions/README.md");
    let pages = files(&["docs/decisions/0*.md"]);
    for (number, page) in (1..).zip(&pages) {
        let name = page
            .strip_prefix(DECISIONS)
            .expect("it is below the folder");
        let text = read(page);
        let title = format!("# {number:04}. ");
        assert!(
            text.starts_with(&title),
            "{page}: begins with {title:?}, numbers have no gap"
        );
        assert!(
            index.contains(&format!("({name})")),
            "{page} is not in docs/decisions/README.md"
        );
        let status = text.lines().nth(2).unwrap_or_default();
        assert!(
            status.starts_with("Accepted. Code: `") || status.starts_with("Superseded by ["),
            "{page}: its third line is \"Accepted. Code: `PATH`\" or \"Superseded by [NNNN](FILE)\", not {status:?}"
        );
        let headings: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("## "))
            .collect();
        let all = [
            "## Context",
            "## Decision",
            "## Consequences",
            "## Measured",
        ];
        assert!(
            headings == all || headings == all[..3],
            "{page}: {headings:?} are not {all:?}"
        );
        let lines = text.lines().count();
        assert!(
            lines <= DECISION_LINES_MAX,
            "{page} has {lines} lines, a screen has {DECISION_LINES_MAX}"
        );
    }
}

/// Pages of docs/ that `line` names, each with its anchor or an empty one.
fn cited(line: &str) -> impl Iterator<Item = (String, &str)> {
    line.split("docs/").skip(1).filter_map(|rest| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "/-_".contains(c);
        let (path, rest) = rest.split_once(".md")?;
        let anchor = rest.strip_prefix('#').unwrap_or_default();
        let end = anchor.find(|c| !is_part(c)).unwrap_or(anchor.len());
        path.chars()
            .all(is_part)
            .then(|| (format!("docs/{path}.md"), &anchor[..end]))
    })
}

/// Why a citation in `line` of a source file does not resolve.
fn dangling(line: &str, decisions: &[String], invariants: usize) -> Option<String> {
    for (page, anchor) in cited(line) {
        if !workspace_root().join(&page).exists() {
            return Some(format!("{page} does not exist"));
        }
        if !anchor.is_empty() && !has_anchor(&page, anchor) {
            return Some(format!("{page} has no #{anchor}"));
        }
    }
    let lower = line.to_lowercase();
    let number = |word: &str| {
        let rest = lower.split_once(word)?.1;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        (!digits.is_empty()).then_some(digits)
    };
    if let Some(decision) = number("decision ") {
        let prefix = format!("{DECISIONS}{decision}-");
        if !decisions.iter().any(|page| page.starts_with(&prefix)) {
            return Some(format!("there is no decision {decision}"));
        }
    }
    if let Some(invariant) = number("invariant ")
        && !invariant
            .parse()
            .is_ok_and(|it: usize| (1..=invariants).contains(&it))
    {
        return Some(format!("ARCHITECTURE.md has no invariant {invariant}"));
    }
    // Sections of papers that the repository does not hold; those of standards are named with them.
    let is_foreign = line.contains('§') && !line.contains("RFC ");
    (is_foreign || lower.contains("seed 0"))
        .then(|| "it cites what is not in the repository".to_owned())
}

fn invariants() -> usize {
    let text = read("ARCHITECTURE.md");
    let section = text
        .split("## Invariants")
        .nth(1)
        .expect("a section of invariants");
    let section = section.split("\n## ").next().unwrap_or_default();
    let is_item = |line: &&str| line.starts_with(|c: char| c.is_ascii_digit());
    section.lines().filter(is_item).count()
}

#[test]
fn every_citation_resolves() {
    let (decisions, invariants) = (files(&["docs/decisions/0*.md"]), invariants());
    let mut wrong = Vec::new();
    let sources = [
        "*.rs", "*.cu", "*.cuh", "*.sh", "*.py", "*.toml", "Makefile", "*.md",
    ];
    for path in files(&sources) {
        if path.starts_with("xtask/src/tidy/") || path == "CHANGELOG.md" {
            continue;
        }
        for (number, line) in (1..).zip(read(&path).lines()) {
            if let Some(why) = dangling(line, &decisions, invariants) {
                wrong.push(format!("{path}:{number}: {why}"));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn a_dangling_citation_is_found() {
    let decisions = files(&["docs/decisions/0*.md"]);
    let dangling = |line| dangling(line, &decisions, 11);
    assert_eq!(dangling("/// Source: docs/sglang-protocol.md#rooms."), None);
    assert_eq!(
        dangling("// Decision 0022, invariant 10; RFC 9112 §6."),
        None
    );
    for (line, why) in [
        ("/// Source: docs/sglang-protocol.md#room.", "has no #room"),
        ("//! See docs/nowhere.md.", "does not exist"),
        ("// Decision 9999.", "no decision 9999"),
        ("// invariant 12", "no invariant 12"),
        ("// Source: reference §1.8.", "not in the repository"),
    ] {
        assert!(dangling(line).is_some_and(|it| it.contains(why)), "{line}");
    }
}
