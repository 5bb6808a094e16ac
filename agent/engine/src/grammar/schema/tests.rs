//! What is refused of schemas, and where that is said to be.

use super::*;
use serde_json::json;

fn refusal(schema: &Value) -> String {
    check(schema).expect_err("it is refused").to_string()
}

#[test]
fn usual_schemas_pass() {
    let schema = json!({
        "$defs": {
            "node": {
                "type": "object",
                "title": "Node",
                "properties": {
                    "value": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null},
                    "kind": {"type": "string", "enum": ["a", "b"]},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
                    "contains": {"type": "string"},
                },
                "required": ["value"],
                "additionalProperties": false,
            }
        },
        "$ref": "#/$defs/node",
        "x-order": 3,
    });
    check(&schema).expect("it can be enforced");
}

#[test]
fn what_is_not_enforced_is_refused_by_its_place() {
    for (keyword, value) in [
        ("not", json!({"type": "null"})),
        ("if", json!({})),
        ("uniqueItems", json!(true)),
        ("contains", json!({})),
        ("dependentRequired", json!({})),
        ("unevaluatedProperties", json!(false)),
        ("x-guidance", json!({"lenient": true})),
    ] {
        let schema = json!({"properties": {"a": {"items": {keyword: value}}}});
        let refusal = refusal(&schema);
        assert!(
            refusal.starts_with("at #/properties/a/items: "),
            "{refusal}"
        );
        assert!(refusal.contains(keyword), "{refusal}");
    }
    check(&json!({"uniqueItems": false})).expect("nothing is asked");
    // Not keywords here.
    check(&json!({"properties": {"not": {}}, "const": {"if": 1}})).expect("names and values");
}

#[test]
fn only_references_within_the_schema_are_followed() {
    for reference in [
        "http://example.com/schema",
        "#name",
        "#/$defs/none",
        "other.json",
    ] {
        let refusal = refusal(&json!({"items": {"$ref": reference}}));
        assert!(refusal.starts_with("at #/items: $ref"), "{refusal}");
        assert!(refusal.contains(reference), "{refusal}");
    }
    check(&json!({"items": {"$ref": "#"}})).expect("the whole");
}

#[test]
fn copies_are_bounded() {
    // Each refers to the next twice, beside another keyword: 2^40 schemas.
    let next = |i: usize| json!({"$ref": format!("#/$defs/a{}", i + 1), "type": "object"});
    let mut defs: Map<String, Value> = (0..40)
        .map(|i| {
            (
                format!("a{i}"),
                json!({"properties": {"l": next(i), "r": next(i)}}),
            )
        })
        .collect();
    defs.insert("a40".to_owned(), json!({"type": "object"}));
    let problem = refusal(&json!({"$defs": defs, "$ref": "#/$defs/a0", "type": "object"}));
    assert!(problem.contains("schemas, with copies"), "{problem}");
    // Each alternative gets a copy of what is beside it.
    let many = vec![json!({"type": "object"}); 2000];
    let large: Map<String, Value> = (0..2000).map(|i| (format!("p{i}"), json!({}))).collect();
    let problem = refusal(&json!({"type": "object", "properties": large, "anyOf": many}));
    assert!(problem.contains("schemas, with copies"), "{problem}");
    let problem = refusal(&json!({"allOf": [{"$ref": "#"}, {"type": "object"}]}));
    assert!(problem.contains("refers to itself"), "{problem}");
}

#[test]
fn wide_schemas_are_refused_by_what_is_wide() {
    let properties: Map<String, Value> = (0..65).map(|i| (format!("p{i}"), json!(true))).collect();
    let problem = refusal(&json!({"properties": properties, "minProperties": 1}));
    assert!(
        problem.contains("64 properties of which a number is wanted"),
        "{problem}"
    );
    let problem = refusal(&json!({"oneOf": vec![json!({}); 257]}));
    assert!(problem.contains("256 schemas in oneOf"), "{problem}");
    let patterns: Map<String, Value> = (0..33).map(|i| (format!("^p{i}$"), json!({}))).collect();
    let problem = refusal(&json!({"patternProperties": patterns}));
    assert!(problem.contains("32 patternProperties"), "{problem}");
    let problem = refusal(&json!({"anyOf": vec![json!({}); NODES_MAX]}));
    assert!(problem.contains("16384 schemas"), "{problem}");
}

#[test]
fn numbers_that_the_crate_would_round_are_refused() {
    let large = 9_007_199_254_740_993_u64;
    for schema in [
        json!({"const": large}),
        json!({"enum": ["a", {"b": [-9_007_199_254_740_993_i64]}]}),
        json!({"maximum": large}),
        json!({"exclusiveMaximum": i64::MAX}),
        json!({"exclusiveMinimum": 1e17}),
        json!({"minimum": u64::MAX}),
    ] {
        assert!(refusal(&schema).contains("beyond 2^53"), "{schema}");
    }
    for schema in [
        json!({"const": large - 1}),
        json!({"minimum": i64::MIN, "maximum": i64::MAX}),
        json!({"minimum": 0, "maximum": u64::MAX}),
        json!({"maximum": 1e17}),
    ] {
        check(&schema).expect("exact");
    }
}

#[test]
fn constants_that_are_not_written_are_refused() {
    for text in ["a\u{0}", "\u{7f}", "\u{1b}"] {
        let problem = refusal(&json!({"items": {"enum": [1, ["b", {"c": text}]]}}));
        assert!(
            problem.starts_with("at #/items: it has a constant"),
            "{problem}"
        );
    }
    check(&json!({"const": "\u{8}\t\n\u{c}\r\u{80}"}))
        .expect("each has a letter, or stands for itself");
}

#[test]
fn names_that_may_come_twice_are_not_counted() {
    for schema in [
        json!({"minProperties": 2}),
        json!({"minProperties": 3, "required": ["a", "a"]}),
        json!({"minProperties": 2, "additionalProperties": false, "patternProperties": {"a": {}}}),
    ] {
        assert!(refusal(&schema).contains("minProperties"), "{schema}");
    }
    for schema in [
        json!({"minProperties": 1}),
        json!({"minProperties": 2, "required": ["a"]}),
        json!({"minProperties": 2, "additionalProperties": false, "properties": {"a": {}, "b": {}}}),
    ] {
        check(&schema).expect("each counts once");
    }
}

#[test]
fn references_below_an_id_are_refused() {
    let part = json!({"$id": "part.json", "items": {"$ref": "#/$defs/a"}});
    let problem = refusal(&json!({"$defs": {"a": {}}, "properties": {"b": part}}));
    assert!(
        problem.starts_with("at #/properties/b: references below its $id"),
        "{problem}"
    );
    check(&json!({"$id": "a.json", "properties": {"b": {"$id": "b.json", "items": {}}}}))
        .expect("no reference");
}
