//! Which texts are arguments in Python, and what is refused of them.

use super::super::tests::compiled;
use super::*;
use crate::grammar::calls::{Arguments, Around, ToolCall};
use crate::grammar::tests::has_text;
use crate::grammar::{Grammar, GrammarError};

fn of(schema: Value) -> Result<Grammar, GrammarError> {
    let call = |name: &str, schema| ToolCall {
        begin: format!("{name}("),
        behind_number: None,
        arguments: Arguments::Python(schema),
        end: ")".to_owned(),
    };
    let around = Around::Marks {
        open: "[".to_owned(),
        between: Some(", ".to_owned()),
        close: "]".to_owned(),
    };
    compiled(vec![call("f", schema), call("ff", json!({}))], around)
}

#[track_caller]
fn assert_allows(schema: Value, kept: &[&str], lost: &[&str]) {
    let grammar = of(schema.clone()).unwrap_or_else(|why| panic!("{schema}: {why}"));
    for arguments in kept {
        assert!(
            has_text(&grammar, &format!("[f({arguments})]")),
            "{schema}: {arguments}"
        );
        assert!(
            has_text(&grammar, &format!("[ff(), f({arguments})]")),
            "{schema}: {arguments}"
        );
    }
    for arguments in lost {
        assert!(
            !has_text(&grammar, &format!("[f({arguments})]")),
            "{schema}: {arguments}"
        );
    }
}

#[test]
fn arguments_come_in_the_schemas_order_with_commas_between() {
    let schema = json!({"properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}, "c": {"type": "string"}},
        "required": ["b"]});
    assert_allows(
        schema,
        &[
            "b=True",
            "a=1, b=False",
            "b=True, c=\"x\"",
            "a=-2, b=True,c=\"\\\"\\\\ é\\n\"",
        ],
        &[
            "",
            "a=1",
            "b=true",
            "b=True, a=1",
            "b=True,",
            "b=True, c='x'",
            "a=1 b=True",
            "b=True, d=1",
        ],
    );
    let optional = json!({"properties": {"a": {"type": "null"}, "b": {"type": "number"}}});
    assert_allows(
        optional,
        &["", "a=None", "b=1.5e-3", "a=None, b=0"],
        &["a=null", "b=.5", "b=1,"],
    );
}

/// Values of one parameter that the grammar allows, and such that it does not.
fn one(schema: Value, kept: &[&str], lost: &[&str]) {
    let root = json!({"properties": {"a": schema}, "required": ["a"], "$defs": {"d": {"enum": [1, "x", null]}}});
    let [kept, lost] = [kept, lost].map(|texts| {
        let texts = texts.iter().map(|text| format!("a={text}"));
        texts.collect::<Vec<_>>()
    });
    let texts = |texts: &[String]| -> Vec<&'static str> {
        let leak = |text: &String| &*Box::leak(text.clone().into_boxed_str());
        texts.iter().map(leak).collect()
    };
    assert_allows(root, &texts(&kept), &texts(&lost));
}

#[test]
fn values_are_literals_of_their_schemas() {
    one(
        json!({"type": "integer", "minimum": 3, "maximum": 12}),
        &["3", "12"],
        &["2", "13"],
    );
    one(
        json!({"type": "string", "pattern": "^[a\"]+$", "maxLength": 2}),
        &["\"a\\\"\""],
        &["\"b\"", "\"aaa\""],
    );
    one(
        json!({"enum": [true, "a\"b", {"k": [1, null]}]}),
        &["True", "\"a\\\"b\"", "{\"k\": [1, None]}"],
        &["true"],
    );
    one(
        json!({"type": "integer", "enum": [1, "1"]}),
        &["1"],
        &["\"1\""],
    );
    one(
        json!({"$ref": "#/$defs/d"}),
        &["1", "\"x\"", "None"],
        &["2"],
    );
    one(
        json!({"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        &["1", "None"],
        &["True"],
    );
    one(
        json!({"oneOf": [{"type": "integer"}, {"type": "null"}]}),
        &["1", "None"],
        &["True"],
    );
    one(
        json!({"type": ["boolean", "string"]}),
        &["True", "\"\""],
        &["None"],
    );
    one(
        json!({"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3}),
        &["[True]", "[True, False,True]"],
        &["[]", "[True, True, True, True]", "[1]", "[True,]"],
    );
    one(
        json!({"items": {"type": "integer"}}),
        &["[]", "[1, 2, 3]"],
        &["1", "[None]"],
    );
    one(
        json!({"properties": {"x": {"type": "integer"}, "y": {}}, "required": ["x"]}),
        &["{\"x\": 1}", "{\"x\":1, \"y\": [True, {\"z\": None}]}"],
        &["{}", "{\"y\": 1}", "{\"x\": 1, \"z\": 1}"],
    );
    one(
        json!({"type": "object", "additionalProperties": {"type": "integer"}}),
        &["{}", "{\"x\": 1, \"y\": 2}"],
        &["{\"x\": None}"],
    );
    one(json!({}), &["1", "[\"a\", {}]", "None"], &["null", "x"]);
}

#[test]
fn what_is_not_enforced_is_refused_by_its_place() {
    let deep = (0..40).fold(
        json!({"type": "null"}),
        |inner, _| json!({"type": "array", "items": inner}),
    );
    for (a, problem) in [
        (
            json!({"type": "array", "prefixItems": [{}]}),
            "at #/properties/a: prefixItems",
        ),
        (
            json!({"type": "array", "minItems": 5000}),
            "bounds of up to 4096 items",
        ),
        (
            json!({"type": "object", "patternProperties": {"^x": {}}}),
            "patternProperties",
        ),
        (
            json!({"properties": {"x": {}}, "additionalProperties": {"type": "null"}}),
            "additionalProperties with a schema",
        ),
        (
            json!({"minimum": 1, "maxLength": 1}),
            "keywords of several types",
        ),
        (
            json!({"enum": ["a"], "minLength": 1}),
            "minLength beside a list of values",
        ),
        (json!({"type": "null", "enum": [1]}), "it allows no value"),
        (
            json!({"allOf": [{"type": "null"}, {}]}),
            "allOf of these schemas",
        ),
        (
            json!({"oneOf": [{"type": "integer"}, {"type": "number"}]}),
            "oneOf of these schemas",
        ),
        (
            json!({"type": "array", "items": {"$ref": "#/properties/a"}}),
            "leads back to itself",
        ),
        (deep, "more than 32 schemas deep"),
    ] {
        let refused = of(json!({"properties": {"a": a}}))
            .expect_err("it is refused")
            .to_string();
        assert!(refused.contains(problem), "{refused}");
    }
    let refused = of(json!({"properties": {"a-b": {}}}))
        .expect_err("it is no name")
        .to_string();
    assert!(
        refused.contains("at #/properties/a-b: an argument's name"),
        "{refused}"
    );
    let twice = |i: usize| json!({"anyOf": [{"$ref": format!("#/$defs/a{i}")}, {"$ref": format!("#/$defs/a{i}")}]});
    let definitions: Map<String, Value> =
        (0..30).map(|i| (format!("a{i}"), twice(i + 1))).collect();
    let wide = json!({"properties": {"a": twice(0)}, "$defs": definitions});
    let refused = of(wide).expect_err("it is large").to_string();
    assert!(refused.contains("#"), "{refused}");
}
