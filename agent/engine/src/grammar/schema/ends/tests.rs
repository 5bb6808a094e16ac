//! Which schemas have a value that ends.

use super::*;
use serde_json::json;

/// A schema whose values hold `inner`, which may refer to it.
fn holding(inner: Value) -> Value {
    json!({"$ref": "#/$defs/a", "$defs": {"a": inner}})
}

#[test]
fn a_schema_that_needs_itself_never_ends() {
    let again = || json!({"$ref": "#/$defs/a"});
    for endless in [
        holding(json!({"type": "object", "properties": {"x": again()}, "required": ["x"]})),
        holding(json!({"type": "array", "items": again(), "minItems": 1})),
        holding(json!({"type": "array", "prefixItems": [{}, again()], "minItems": 2})),
        holding(json!({"type": "object", "additionalProperties": again(), "required": ["x"]})),
        holding(json!({"type": "object", "additionalProperties": again(), "minProperties": 1})),
        holding(json!({"anyOf": [again(), {"allOf": [{"type": "string"}, again()]}]})),
        json!({"type": "object", "properties": {"x": {"$ref": "#"}}, "required": ["x"]}),
        json!({
            "$ref": "#/$defs/a",
            "$defs": {
                "a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/b"}}, "required": ["b"]},
                "b": {"type": "array", "items": {"$ref": "#/$defs/a"}, "minItems": 1},
            },
        }),
    ] {
        assert!(!has_end(&endless), "{endless}");
    }
}

#[test]
fn a_schema_that_may_stop_ends() {
    let again = || json!({"$ref": "#/$defs/a"});
    for ending in [
        json!(true),
        json!({}),
        holding(json!({"type": "object", "properties": {"x": again()}})),
        holding(json!({"type": "array", "items": again()})),
        holding(json!({"type": "array", "prefixItems": [{}, again()], "minItems": 1})),
        holding(
            json!({"type": ["object", "null"], "properties": {"x": again()}, "required": ["x"]}),
        ),
        holding(
            json!({"anyOf": [{"type": "object", "properties": {"x": again()}, "required": ["x"]}, {"type": "null"}]}),
        ),
        holding(json!({"enum": [1], "$comment": "its values are given"})),
        // `b` is known to end in a second look alone.
        json!({
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/a"}},
            "required": ["a"],
            "$defs": {
                "a": {"anyOf": [{"$ref": "#/$defs/b"}, {"$ref": "#/$defs/c"}]},
                "b": {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "required": ["a"]},
                "c": {"type": "integer"},
            },
        }),
    ] {
        assert!(has_end(&ending), "{ending}");
    }
}
