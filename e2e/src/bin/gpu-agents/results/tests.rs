//! Facts about going on with a run.

use super::*;

fn part(name: &'static str, ran_as: &str, verdict: Verdict) -> PartResult {
    PartResult {
        name,
        ran_as: ran_as.to_owned(),
        verdict,
        seconds: 1.5,
        checks: vec![Check {
            name: "tokens".to_owned(),
            verdict,
            seconds: 1.0,
            note: String::new(),
        }],
    }
}

#[test]
fn only_what_ended_well_with_the_same_settings_is_not_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.json");
    let mut results = Results::open(&path, "b1").unwrap();
    results.enter(part("golden", "cuda", Verdict::Ok));
    results.enter(part("pair", "cuda", Verdict::Failed));
    results.enter(part("load", "cuda 20 s", Verdict::Ok));
    results.enter(part("sanitizer", "cuda", Verdict::Skipped));
    results.write(&path).unwrap();

    let results = Results::open(&path, "b1").unwrap();
    assert!(results.has_ok("golden", "cuda"));
    assert!(!results.has_ok("golden", "cpu"));
    assert!(!results.has_ok("pair", "cuda"));
    assert!(!results.has_ok("load", "cuda 180 s"));
    assert!(!results.has_ok("sanitizer", "cuda"));
    let of_another_build = Results::open(&path, "b2").unwrap();
    assert!(!of_another_build.has_ok("golden", "cuda"));
}

#[test]
fn a_part_that_ran_again_stands_in_its_place() {
    let mut results = Results::default();
    results.enter(part("golden", "cuda", Verdict::Failed));
    results.enter(part("pair", "cuda", Verdict::Ok));
    assert_eq!(results.verdict(), Verdict::Failed);
    results.enter(part("golden", "cuda", Verdict::Ok));
    assert_eq!(results.verdict(), Verdict::Ok);
    let table = results.table();
    let rows: Vec<&str> = table.lines().skip(2).collect();
    assert!(
        rows[0].starts_with("golden") && rows[1].starts_with("pair"),
        "{table}"
    );
    assert!(
        rows[2].starts_with("all            ok           3.0"),
        "{table}"
    );
}

#[test]
fn a_file_of_something_else_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.json");
    std::fs::write(&path, "{}").unwrap();
    assert!(Results::open(&path, "b1").is_err());
}
