//! Facts about Prometheus text.

use super::*;
use proptest::prelude::*;

fn one(line: &str) -> Option<Sample<'_>> {
    samples(line).next()?.ok()
}

#[test]
fn labels_may_hold_quotes_braces_commas_and_newlines() {
    let sample = one(r#"a{x="q\"},{",y="2",z="\\n\n"} 3 1700000000"#).unwrap();
    assert_eq!((sample.name, sample.value), ("a", 3.0));
    assert_eq!(sample.label("x").unwrap(), "q\"},{");
    assert_eq!(sample.label("y").unwrap(), "2");
    assert_eq!(sample.label("z").unwrap(), "\\n\n");
    assert_eq!(sample.label("absent"), None);
}

#[test]
fn comments_and_empty_lines_are_no_samples() {
    let text = "# TYPE a gauge\n\n  \na 1\nb{} 1e3\n";
    let read: Vec<_> = samples(text).map(Result::unwrap).collect();
    assert_eq!(read.len(), 2);
    assert!(!read[0].has_labels() && read[1].has_labels());
}

#[test]
fn a_line_that_is_no_sample_is_named() {
    for line in [
        "a",
        "a b",
        "1a 1",
        "a{x=\"1\" 1",
        "a 1 x",
        "a 1 2 3",
        "{} 1",
        "a{}1",
    ] {
        let text = format!("ok 1\n{line}\n");
        let last = samples(&text).last();
        assert_eq!(last, Some(Err(MalformedLine { line: 2 })), "{line}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_without_panic(text in "[ -~\n{}\"\\\\]{0,80}") {
        for sample in samples(&text).flatten() {
            let _ = sample.label("x");
        }
    }

    #[test]
    fn what_is_written_is_read(value in "[a-z\"\\\\\n}]{0,12}", number in -1e9..1e9f64) {
        let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let line = format!("name{{label=\"{escaped}\"}} {number}");
        let sample = one(&line).unwrap();
        prop_assert_eq!(sample.value, number);
        prop_assert_eq!(sample.label("label").unwrap(), value);
    }
}
