//! Which texts are arguments that are written one by one, and what is refused of them.

use super::super::tests::compiled;
use super::*;
use crate::grammar::calls::{Arguments, Around, ToolCall};
use crate::grammar::tests::{has_text, has_tokens, tokens};
use crate::grammar::{Grammar, GrammarError};
use serde_json::json;

/// A call as Qwen's coders write it; `texts` are read as strings, or as null where so.
fn coder(schema: Value, texts: &[(&str, bool)]) -> Result<Grammar, GrammarError> {
    let call = ToolCall {
        begin: "<f>\n".to_owned(),
        behind_number: None,
        arguments: Arguments::Keyed(KeyedArguments {
            before_key: "<p=".to_owned(),
            before_value: ">\n".to_owned(),
            end: "\n</p>\n".to_owned(),
            has_free_breaks: false,
            schema,
            texts: mk_texts(texts),
        }),
        end: "</f>".to_owned(),
    };
    compiled(vec![call], marks())
}

/// As GLM writes it.
fn glm(schema: Value, texts: &[(&str, bool)]) -> Grammar {
    let call = ToolCall {
        begin: "<c>f\n".to_owned(),
        behind_number: None,
        arguments: Arguments::Keyed(KeyedArguments {
            before_key: "<k>".to_owned(),
            before_value: "</k>\n<v>".to_owned(),
            end: "</v>\n".to_owned(),
            has_free_breaks: true,
            schema,
            texts: mk_texts(texts),
        }),
        end: "</c>".to_owned(),
    };
    compiled(vec![call], marks()).expect("a grammar")
}

fn mk_texts(texts: &[(&str, bool)]) -> Vec<TextParameter> {
    let text = |&(name, or_null): &(&str, bool)| TextParameter {
        name: name.to_owned(),
        or_null,
    };
    texts.iter().map(text).collect()
}

fn marks() -> Around {
    Around::Marks {
        open: "\n".to_owned(),
        between: Some("\n".to_owned()),
        close: String::new(),
    }
}

fn written(arguments: &[(&str, &str)]) -> String {
    let of = |(key, value): &(&str, &str)| format!("<p={key}>\n{value}\n</p>\n");
    let arguments: String = arguments.iter().map(of).collect();
    format!("\n<f>\n{arguments}</f>")
}

#[test]
fn parameters_come_in_the_schemas_order_and_optional_ones_may_be_left_out() {
    let schema = json!({"type": "object", "properties": {
        "text": {"type": "string"}, "n": {"type": "integer"}, "list": {"type": "array", "items": {"type": "string"}},
    }, "required": ["text"]});
    let grammar = coder(schema, &[("text", false)]).expect("a grammar");
    for arguments in [
        &[("text", "a"), ("n", "5"), ("list", r#"["a</p>", "b"]"#)][..],
        &[("text", ""), ("list", "[]")],
        &[("text", "a\n<p=n>\n\"b\" </f> ü\n"), ("n", "-1")],
    ] {
        let text = written(arguments);
        assert!(has_text(&grammar, &text), "{text}");
        assert!(has_text(&grammar, &format!("{text}{text}")), "{text}");
    }
    for arguments in [
        &[][..],
        &[("n", "5")],
        &[("text", "a"), ("n", "five")],
        &[("n", "5"), ("text", "a")],
        &[("text", "a"), ("other", "1")],
        &[("text", "a</p>")],
        &[("text", "a"), ("list", "[1]")],
    ] {
        let text = written(arguments);
        assert!(!has_text(&grammar, &text), "{text}");
    }
}

#[test]
fn line_breaks_may_be_free() {
    let schema = json!({"properties": {"a": {"type": "string"}, "b": {"type": "boolean"}}});
    let grammar = glm(schema, &[("a", false)]);
    for text in [
        "<c>f</c>",
        "\n<c>f\n</c>",
        "<c>f<k>a</k><v>x\n\n</v><k>b</k><v>true</v></c><c>f</c>",
        "<c>f\n<k>a</k>\n<v></v>\n<k>b</k>\n<v>false</v>\n</c>\n<c>f\n</c>",
    ] {
        assert!(has_text(&grammar, text), "{text}");
    }
    assert!(!has_text(&grammar, "<c>f<k>a</k><v>a</v>b</v></c>"));
}

#[test]
fn bounds_of_strings_are_kept() {
    for (schema, kept, lost) in [
        (
            json!({"enum": ["a", "ab"]}),
            &["a", "ab"][..],
            &["", "b", "a "][..],
        ),
        (json!({"const": "a/\"b\"\n"}), &["a/\"b\"\n"], &["a"]),
        (json!({"pattern": "b+"}), &["b", "abbc"], &["", "ac"]),
        (json!({"pattern": "^b|c$"}), &["ba", "ac"], &["ab", "ca"]),
        (
            json!({"pattern": "^/\\d{2}$"}),
            &["/12"],
            &["a/12", "/123", "12"],
        ),
        (
            json!({"minLength": 1, "maxLength": 2}),
            &["é", "ab"],
            &["", "abc"],
        ),
        (
            json!({"pattern": "^a", "maxLength": 2}),
            &["ab"],
            &["ba", "abc"],
        ),
        (
            json!({"format": "date"}),
            &["2026-02-28"],
            &["2026-02-30", "soon"],
        ),
        (
            json!({"anyOf": [{"const": "a"}, {"pattern": "^b"}]}),
            &["a", "bc"],
            &["ab"],
        ),
        (json!({"allOf": [{"$ref": "#/$defs/c"}]}), &["c"], &["a"]),
    ] {
        let mut root = json!({"properties": {"a": schema}, "required": ["a"],
            "$defs": {"c": {"type": "string", "enum": ["c"]}}});
        if root["properties"]["a"]["anyOf"].is_null() && root["properties"]["a"]["allOf"].is_null()
        {
            root["properties"]["a"]["type"] = json!("string");
        }
        let grammar = coder(root.clone(), &[("a", false)]).expect("a grammar");
        for text in kept {
            assert!(
                has_text(&grammar, &written(&[("a", text)])),
                "{root}: {text}"
            );
        }
        for text in lost {
            assert!(
                !has_text(&grammar, &written(&[("a", text)])),
                "{root}: {text}"
            );
        }
    }
}

#[test]
fn long_strings_are_held() {
    for a in [
        json!({"type": "string", "minLength": 300, "maxLength": 900}),
        json!({"type": "string", "pattern": "^[a-z]+$", "minLength": 300}),
    ] {
        let grammar = coder(json!({"properties": {"a": a}}), &[("a", false)]).expect("a grammar");
        let long = "a".repeat(300);
        assert!(has_text(&grammar, &written(&[("a", &long)])));
        assert!(!has_text(&grammar, &written(&[("a", &long[1..])])));
    }
}

#[test]
fn formats_are_kept() {
    for (format, kept, lost) in [
        ("date-time", "2026-02-28T12:30:00.5Z", "2026-02-28 12:30"),
        ("time", "23:59:59+01:00", "24:00:00Z"),
        ("email", "a.b+c@d-e.org", "a@-b"),
        ("hostname", "a-1.b", "a..b"),
        ("ipv4", "127.0.0.255", "127.0.0.256"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
        ("uri", "https://a.b/c?d=%20#e", "a.b/c"),
    ] {
        let root = json!({"properties": {"a": {"type": "string", "format": format}}});
        let grammar = coder(root, &[("a", false)]).expect("a grammar");
        assert!(has_text(&grammar, &written(&[("a", kept)])), "{kept}");
        assert!(!has_text(&grammar, &written(&[("a", lost)])), "{lost}");
    }
}

#[test]
fn marks_that_are_tokens_are_written_as_tokens() {
    let call = ToolCall {
        begin: "f".to_owned(),
        behind_number: None,
        arguments: Arguments::Keyed(KeyedArguments {
            before_key: "<k>".to_owned(),
            before_value: "</k>".to_owned(),
            end: "<|im_start|>;".to_owned(),
            has_free_breaks: false,
            schema: json!({"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}),
            texts: mk_texts(&[("a", false)]),
        }),
        end: "!".to_owned(),
    };
    let grammar = compiled(vec![call], marks()).expect("a grammar");
    // Token 1 is special.
    let of = |texts: &[&str]| {
        let texts = texts.iter().map(|text| tokens(text));
        has_tokens(&grammar, &texts.collect::<Vec<_>>().join(&1))
    };
    assert!(of(&["\nf<k>a</k>x; y", ";<k>b</k>5", ";!"]) && of(&["\nf<k>a</k>", ";!"]));
    assert!(!of(&["\nf<k>a</k>x;!"]) && !of(&["\nf<k>a</k>x", "!"]));
}

#[test]
fn null_is_written_where_it_is_read() {
    let allows = |schema: Value, text: &str| {
        let root = json!({"properties": {"a": schema}, "required": ["a"]});
        let grammar = coder(root, &[("a", true)]).expect("a grammar");
        has_text(&grammar, &written(&[("a", text)]))
    };
    let either = json!({"anyOf": [{"const": "x"}, {"type": "null"}]});
    assert!(allows(either.clone(), "null") && allows(either.clone(), "x"));
    assert!(!allows(either, "y"));
    let some = json!({"type": ["string", "null"], "enum": ["x", "y"]});
    assert!(allows(some.clone(), "x") && !allows(some, "null"));
    let none = json!({"type": ["string", "null"], "pattern": "l$", "enum": ["x", null, "null"]});
    assert!(allows(none.clone(), "null") && !allows(none, "x"));
}

#[test]
fn listed_values_of_several_types_stand_as_they_are_read() {
    let root = json!({"properties": {"a": {"enum": [1, "b", "1", null, "True", [2], "12"]}}});
    let grammar = coder(root, &[]).expect("a grammar");
    for value in ["1", "b", "\"1\"", "null", "\"True\"", "[2]", "\"12\""] {
        assert!(has_text(&grammar, &written(&[("a", value)])), "{value}");
    }
    for value in ["\"b\"", "True", "12", "2", ""] {
        assert!(!has_text(&grammar, &written(&[("a", value)])), "{value}");
    }
}

#[test]
fn what_a_schema_refers_to_comes_with_it() {
    let root = json!({"properties": {"a": {"$ref": "#/$defs/list"}},
        "$defs": {"list": {"type": "array", "items": {"$ref": "#/$defs/list"}}}});
    let grammar = coder(root, &[]).expect("a grammar");
    assert!(has_text(&grammar, &written(&[("a", "[[], [[]]]")])));
    assert!(!has_text(&grammar, &written(&[("a", "[1]")])));
}

#[test]
fn what_is_not_enforced_of_a_parameter_is_refused_by_its_place() {
    for (a, problem) in [
        (
            json!({"type": "string", "pattern": "a\\b"}),
            "#/properties/a: pattern a\\b cannot",
        ),
        (
            json!({"type": "string", "pattern": "(?=a)"}),
            "#/properties/a: pattern (?=a) cannot",
        ),
        (
            json!({"type": "string", "pattern": "\\pL".repeat(1000)}),
            "it is too large",
        ),
        (
            json!({"type": "string", "format": "colour"}),
            "#/properties/a: format colour cannot",
        ),
        (
            json!({"type": "string", "enum": ["x", "</p>"]}),
            "cannot write \"</p>\"",
        ),
        (
            json!({"type": "string", "anyOf": [{}]}),
            "type beside anyOf",
        ),
        (
            json!({"allOf": [{"const": "a"}, {"pattern": "b"}]}),
            "allOf of several",
        ),
        (
            json!({"oneOf": [{"const": "a"}, {"pattern": "b"}]}),
            "oneOf of several",
        ),
        (json!({"type": "string", "const": 5}), "the schema has none"),
        (
            json!({"type": "string", "pattern": "^a", "enum": ["b"]}),
            "it allows no string",
        ),
        (
            json!({"type": "string", "uniqueItems": true}),
            "uniqueItems",
        ),
        (
            json!({"$ref": "#/$defs/b", "minLength": 1}),
            "minLength beside $ref",
        ),
        (json!({"$ref": "#/$defs/a"}), "more than 256 schemas"),
    ] {
        let root = json!({"properties": {"a": a}, "$defs": {"b": {"type": "string"},
            "a": {"anyOf": [{"$ref": "#/$defs/a"}, {"const": "a"}]}}});
        let refused = coder(root, &[("a", false)])
            .expect_err("it is refused")
            .to_string();
        assert!(refused.contains(problem), "{refused}");
    }
}

#[test]
fn what_is_not_enforced_of_all_parameters_is_refused_by_its_place() {
    let long = "a".repeat(300);
    for (root, problem) in [
        (
            json!({"properties": {"a>b": {}}}),
            "at #/properties/a>b: this form cannot write its name",
        ),
        (
            json!({"properties": {(long): {}}}),
            "this form cannot write its name",
        ),
        (json!({"anyOf": [{}]}), "at #: anyOf cannot"),
        (json!({"minProperties": 1}), "at #: minProperties cannot"),
        (
            json!({"additionalProperties": {"type": "string"}}),
            "at #: additionalProperties",
        ),
        (json!({"type": "array"}), "arguments are an object"),
        (
            json!({"required": ["a"], "additionalProperties": false}),
            "`a` is required, and no property",
        ),
        (
            json!({"properties": {"a": {"items": {"$ref": "#/properties/a"}}}}),
            "at #/properties/a: at #/items: $ref",
        ),
    ] {
        let refused = coder(root, &[]).expect_err("it is refused").to_string();
        assert!(refused.contains(problem), "{refused}");
    }
}
