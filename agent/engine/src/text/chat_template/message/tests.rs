//! What a template reads of a turn.

use super::*;

fn fields(json: &str) -> BTreeMap<String, Value> {
    serde_json::from_str(json).unwrap()
}

fn with(json: &str) -> Value {
    Value::from_serialize(Message::new("assistant", "").with_fields(fields(json)))
}

#[test]
fn arguments_of_tool_calls_are_objects_in_their_order() {
    let turn = with(
        r#"{"tool_calls": [{"id": "c1", "type": "function",
            "function": {"name": "f", "arguments": "{\"z\": 1, \"a\": [2]}"}}]}"#,
    );
    assert_eq!(
        turn.get_attr("tool_calls").unwrap().to_string(),
        r#"[{"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"z": 1, "a": [2]}}}]"#
    );
}

#[test]
fn arguments_that_are_no_object_stay_text() {
    for arguments in ["", "now", "[1]", "5"] {
        let call = Value::from_serialize(BTreeMap::from([("arguments", arguments)]));
        assert_eq!(with_field(&call, "arguments", read_arguments), call);
    }
    let odd = with(r#"{"tool_calls": "none"}"#);
    assert_eq!(odd.get_attr("tool_calls").unwrap().as_str(), Some("none"));
}

#[test]
fn null_fields_are_absent() {
    let turn = with(r#"{"name": "ada", "refusal": null}"#);
    assert_eq!(turn.get_attr("name").unwrap().as_str(), Some("ada"));
    assert!(turn.get_attr("refusal").unwrap().is_undefined());
}
