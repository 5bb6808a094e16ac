//! How values are read, by their schemas.

use super::*;
use serde_json::json;

#[test]
fn strings_are_text_wherever_their_schema_says_so() {
    let root = json!({"$defs": {
        "colour": {"enum": ["red", "1"]},
        "same": {"$ref": "#/$defs/same"},
    }});
    let text = |or_null| Written::Text { or_null };
    for (schema, expected) in [
        (json!({"type": "string"}), text(false)),
        (json!({"type": ["string", "null"]}), text(true)),
        (json!({"type": ["string", "integer"]}), text(false)),
        (json!({"enum": ["a", "b"]}), text(false)),
        (json!({"enum": ["a", null]}), text(true)),
        (json!({"enum": ["a", 1]}), Written::Json),
        (json!({"const": "a"}), text(false)),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
            text(true),
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}),
            Written::Json,
        ),
        (json!({"$ref": "#/$defs/colour"}), text(false)),
        (json!({"allOf": [{"$ref": "#/$defs/colour"}]}), text(false)),
        (json!({"$ref": "#/$defs/same"}), Written::Json),
        (json!({"$ref": "#/$defs/none"}), Written::Json),
        (json!({"type": "integer"}), Written::Json),
        (json!({}), Written::Json),
        (json!(true), Written::Json),
    ] {
        assert_eq!(written(&schema, &root), expected, "{schema}");
    }
    // Looked into no more than so often.
    let wide = json!({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}});
    assert_eq!(written(&json!({"$ref": "#/$defs/a"}), &wide), Written::Json);
}
