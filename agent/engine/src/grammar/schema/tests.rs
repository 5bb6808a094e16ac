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
