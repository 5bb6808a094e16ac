//! Plain English: the words that `docs/glossary.md` has rewritten are in no file, neither in prose nor in names.

use crate::generate::workspace_root;

/// Where the words stand, between two marks.
const GLOSSARY: &str = "docs/glossary.md";
const MARKS: (&str, &str) = ("<!-- words -->", "<!-- /words -->");

/// Written by others or in the past, and this file, which needs the words.
const EXEMPT: &[&str] = &[
    "CHANGELOG.md",
    "LICENSE",
    "Cargo.lock",
    "bench/results/",
    GLOSSARY,
    "xtask/src/tidy/prose.rs",
];

/// What is still to be rewritten. Entries only leave this list.
const PENDING: &[&str] = &["e2e/", "scripts/"];

/// Lower-case words of a line; `snake_case` and `camelCase` names are several.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for letter in line.chars() {
        if !letter.is_alphabetic() || (letter.is_uppercase() && was_lower) {
            words.push(String::new());
        }
        if letter.is_alphabetic() {
            let word = words.last_mut().expect("there is always a word");
            word.extend(letter.to_lowercase());
        }
        was_lower = letter.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

fn rewritten(glossary: &str) -> Vec<String> {
    let (_, rest) = glossary
        .split_once(MARKS.0)
        .expect("the glossary's first mark");
    let (list, _) = rest
        .split_once(MARKS.1)
        .expect("the glossary's second mark");
    let phrases = list.split('`').skip(1).step_by(2);
    phrases.map(|phrase| format!(" {phrase} ")).collect()
}

fn found<'a>(line: &str, phrases: &'a [String]) -> Option<&'a str> {
    let line = format!(" {} ", words(line).join(" "));
    let phrase = phrases.iter().find(|phrase| line.contains(phrase.as_str()));
    phrase.map(|phrase| phrase.trim())
}

#[test]
fn words_that_the_glossary_rewrites_are_in_no_file() {
    let root = workspace_root();
    let glossary = std::fs::read_to_string(root.join(GLOSSARY)).expect("the glossary");
    let phrases = rewritten(&glossary);
    let listed = std::process::Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .expect("git runs");
    let listed = String::from_utf8(listed.stdout).expect("file names are UTF-8");
    let skipped = |path: &str| {
        EXEMPT
            .iter()
            .chain(PENDING)
            .any(|home| path.starts_with(home))
    };
    let mut wrong = Vec::new();
    for path in listed.lines().filter(|path| !skipped(path)) {
        // What is not text has no words.
        let Ok(text) = std::fs::read_to_string(root.join(path)) else {
            continue;
        };
        for (number, line) in text.lines().enumerate() {
            if let Some(phrase) = found(line, &phrases) {
                wrong.push(format!(
                    "{path}:{}: {phrase:?}: {}",
                    number + 1,
                    line.trim()
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "see {GLOSSARY}, \"Words that are rewritten\":\n{}",
        wrong.join("\n")
    );
}

#[test]
fn names_are_words_too() {
    let phrases = rewritten("<!-- words -->`told` `for ever`<!-- /words -->");
    assert_eq!(found("fn told_once() {", &phrases), Some("told"));
    assert_eq!(found("struct ToldOnce;", &phrases), Some("told"));
    assert_eq!(found("// It waits for ever.", &phrases), Some("for ever"));
    assert_eq!(found("// untold", &phrases), None);
}
