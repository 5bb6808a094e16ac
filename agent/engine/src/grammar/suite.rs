//! Grammars beside the JSON-Schema-Test-Suite: for each schema whether it is compiled or refused, and whether an answer may be
//! its values, in any of the ways to write one. `make schemas-suite` walks the whole suite and prints a table.

use super::tests::{compile, has_text, mk_grammars};
use super::{GrammarSource, Grammars};
use serde::Deserialize;
use serde_json::Value;
use std::fmt::{Display, Formatter, Result as FmtResult};
use std::fs;
use std::path::Path;

mod writings;

use writings::writings;

/// Tests of one schema, as the suite has them.
#[derive(Deserialize)]
struct Group {
    description: String,
    schema: Value,
    tests: Vec<Test>,
}

#[derive(Deserialize)]
struct Test {
    description: String,
    data: Value,
    valid: bool,
}

/// The results of a file.
#[derive(Default)]
struct Tally {
    schemas: usize,
    refused: usize,
    /// Of schemas that were compiled.
    values: usize,
    right: usize,
    /// Valid, and an answer may be it in other words: another order of keys, `1` for `1.0`.
    rewritten: usize,
    /// Valid, and no answer may be it.
    stricter: usize,
    /// Not valid, and an answer may be it.
    wrong: usize,
}

/// A file's tally, and why it is so, a line each.
struct Report {
    keyword: String,
    tally: Tally,
    notes: Vec<String>,
}

const DRAFT7: &str = "http://json-schema.org/draft-07/schema#";

// === impl Report ===

impl Report {
    fn of(grammars: &Grammars, file: &Path, draft: Option<&str>) -> Self {
        let text = fs::read_to_string(file).expect("a file of the suite");
        let groups: Vec<Group> = serde_json::from_str(&text).expect("groups of tests");
        let keyword = file.file_stem().expect("a file").to_string_lossy();
        let mut report = Self {
            keyword: keyword.into_owned(),
            tally: Tally::default(),
            notes: Vec::new(),
        };
        for group in groups {
            report.group(grammars, group, draft);
        }
        report
    }

    fn group(&mut self, grammars: &Grammars, mut group: Group, draft: Option<&str>) {
        if let (Some(draft), Some(keywords)) = (draft, group.schema.as_object_mut()) {
            keywords.entry("$schema").or_insert(draft.into());
        }
        self.tally.schemas += 1;
        let source = GrammarSource::JsonSchema(group.schema.to_string());
        let grammar = match compile(grammars, source) {
            Ok(grammar) => grammar,
            Err(error) => {
                self.tally.refused += 1;
                self.notes
                    .push(format!("refused: {}: {error}", group.description));
                return;
            }
        };
        for Test {
            description,
            data,
            valid,
        } in group.tests
        {
            self.tally.values += 1;
            let written = writings(&data);
            let place = written.iter().position(|text| has_text(&grammar, text));
            let (count, what) = match (valid, place) {
                (true, Some(0)) | (false, None) => (&mut self.tally.right, None),
                (true, Some(_)) => (&mut self.tally.rewritten, Some("rewritten")),
                (true, None) => (&mut self.tally.stricter, Some("stricter")),
                (false, Some(_)) => (&mut self.tally.wrong, Some("WRONG")),
            };
            *count += 1;
            if let Some(what) = what {
                let text = place.map_or_else(|| data.to_string(), |place| written[place].clone());
                let of = &group.description;
                self.notes
                    .push(format!("{what}: {of}: {description}: {text:.200}"));
            }
        }
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        let Tally {
            schemas,
            refused,
            values,
            right,
            rewritten,
            stricter,
            wrong,
        } = self.tally;
        let Self { keyword, .. } = self;
        write!(
            f,
            "| {keyword:<28} | {schemas:>7} | {refused:>7} | {values:>6} | {right:>5} | {rewritten:>9} | {stricter:>8} | {wrong:>5} |"
        )
    }
}

fn reports(folder: &Path, draft: Option<&str>) -> Vec<Report> {
    let files = fs::read_dir(folder).expect("a folder of the suite");
    let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    let grammars = mk_grammars();
    let files = files
        .iter()
        .filter(|file| file.extension().is_some_and(|end| end == "json"));
    files
        .map(|file| Report::of(&grammars, file, draft))
        .collect()
}

#[test]
fn the_sample_of_the_suite_is_enforced() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/grammar/suite/sample");
    let reports: Vec<_> = reports(&folder, None)
        .iter()
        .map(Report::to_string)
        .collect();
    insta::assert_snapshot!(reports.join("\n"));
}

#[test]
#[allow(clippy::print_stdout, reason = "a table for people")]
fn schemas_of_the_suite_allow_no_wrong_value() {
    // Only `make schemas-suite` fetches it.
    let Some(folder) = std::env::var_os("PDSERVE_SCHEMA_SUITE") else {
        return;
    };
    let mut wrong = 0;
    for (name, draft) in [
        ("draft2020-12", None),
        ("draft2020-12/optional", None),
        ("draft2020-12/optional/format", None),
        ("draft7", Some(DRAFT7)),
    ] {
        println!(
            "\n| {name:<28} | schemas | refused | values | right | rewritten | stricter | wrong |\n|---|---|---|---|---|---|---|---|"
        );
        let reports = reports(&Path::new(&folder).join(name), draft);
        reports.iter().for_each(|report| println!("{report}"));
        for Report {
            keyword,
            tally,
            notes,
        } in &reports
        {
            println!("\n{keyword}");
            notes.iter().for_each(|note| println!("    {note}"));
            wrong += tally.wrong;
        }
    }
    assert_eq!(wrong, 0, "values that their schemas do not allow");
}
