//! What the crate reads looser than the standard, and what it reads here.

use super::*;

fn adapted(mut schema: Value) -> Value {
    adapt(&mut schema);
    schema
}

fn matches(pattern: &str, text: &str) -> bool {
    regex::Regex::new(pattern)
        .expect("an expression")
        .is_match(text)
}

#[test]
fn formats_of_times_are_expressions_wherever_a_schema_is() {
    let date = json!({"type": "string", "format": "date"});
    let schema = adapted(json!({
        "properties": {"enum": date, "a": {"anyOf": [date, {"items": date}]}},
        "$defs": {"b": date},
        "parts": {"c": date},
        "const": date,
    }));
    let as_pattern = json!({"type": "string", "pattern": format!("^{DAY}$")});
    for place in [
        "/properties/enum",
        "/properties/a/anyOf/0",
        "/properties/a/anyOf/1/items",
        "/$defs/b",
        "/parts/c",
    ] {
        assert_eq!(schema.pointer(place), Some(&as_pattern), "{place}");
    }
    assert_eq!(schema["const"], date);
    let schema = adapted(json!({"format": "time", "pattern": "Z$"}));
    assert_eq!(
        schema,
        json!({"pattern": "Z$", "allOf": [{"pattern": format!("^{TIME}$")}]})
    );
    let other = json!({"format": "uuid", "uniqueItems": true});
    assert_eq!(adapted(other.clone()), other);
    assert_eq!(adapted(json!({"uniqueItems": false})), json!({}));
}

#[test]
fn days_and_seconds_that_were_never_are_refused() {
    let day = format!("^{DAY}$");
    let leap = |year: u32| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    for year in 0..10_000 {
        assert_eq!(
            matches(&day, &format!("{year:04}-02-29")),
            leap(year),
            "{year}"
        );
    }
    assert!(matches(&day, "2023-02-28") && !matches(&day, "2023-04-31"));
    let time = format!("^{TIME}$");
    for text in ["23:59:60Z", "23:59:60.5+00:00", "12:00:59.123-23:59"] {
        assert!(matches(&time, text), "{text}");
    }
    for text in ["22:59:60Z", "23:59:60+01:00", "24:00:00Z", "12:00:00"] {
        assert!(!matches(&time, text), "{text}");
    }
}

#[test]
fn expressions_match_what_they_match_in_ecmascript() {
    for (pattern, text, expected) in [
        (r"^\s$", "\u{feff}", true),
        (r"^\s$", "\u{85}", false),
        (r"^\S$", "\u{feff}", false),
        (r"^[\s\S]$", "\r", true),
        (r"^[^\s]$", "\u{feff}", false),
        ("^.$", "\u{2028}", false),
        (r"^\.$", ".", true),
        ("^[.]$", "a", false),
        ("^[^]$", "\n", true),
        ("^[]$", "a", false),
        ("^[[]$", "[", true),
        ("^[a&&b]$", "&", true),
        (r"^[\]s.]+$", "s].", true),
        (r"^\\s$", "\\s", true),
    ] {
        assert_eq!(
            matches(&as_ecma(pattern), text),
            expected,
            "{pattern} {text:?}"
        );
    }
    let names = adapted(json!({"patternProperties": {"^.$": {"pattern": r"\s"}}}));
    assert!(names.pointer("/patternProperties/^.$").is_none(), "{names}");
}
