//! What becomes of values that are written as text.

use crate::ToolForm;
use crate::tools::tests::{answer, call};

#[test]
fn values_become_what_the_schema_says() {
    let coder = |key: &str, value: &str| {
        let text = format!("<function=weather><parameter={key}>\n{value}\n</parameter></function>");
        answer(ToolForm::Qwen3Coder, &text)
            .calls
            .remove(0)
            .arguments
    };
    for (key, value, json) in [
        ("city", "3", "{\"city\": \"3\"}"),
        ("city", "a\n\"b\"\n", "{\"city\": \"a\\n\\\"b\\\"\\n\"}"),
        ("city", "null", "{\"city\": \"null\"}"),
        ("note", "null", "{\"note\": null}"),
        ("note", "a", "{\"note\": \"a\"}"),
        ("days", "3", "{\"days\": 3}"),
        ("days", "soon", "{\"days\": \"soon\"}"),
        ("exact", "True", "{\"exact\": true}"),
        ("unit", "C", "{\"unit\": \"C\"}"),
        ("at", "{\"x\": [1]}", "{\"at\": {\"x\": [1]}}"),
        ("at", "[1e999]", "{\"at\": [1e999]}"),
        ("other", "1", "{\"other\": \"1\"}"),
    ] {
        assert_eq!(coder(key, value), json);
    }
}

#[test]
fn marks_inside_strings_of_json_are_part_of_them() {
    let glm = |value: &str| {
        let value = format!("<arg_key>at</arg_key><arg_value>{value}</arg_value>");
        answer(
            ToolForm::Glm45,
            &format!("<tool_call>weather{value}</tool_call>"),
        )
    };
    let json = r#"{"a": ["</arg_value>\"</arg_value>", 1]}"#;
    let arguments = format!("{{\"at\": {json}}}");
    assert_eq!(glm(json).calls, [call("weather", &arguments)]);
    // What is no JSON ends with the first mark.
    for (value, json) in [
        ("{'a': \"b", "\"{'a': \\\"b\""),
        ("\"a\nb", "\"\\\"a\\nb\""),
    ] {
        let arguments = format!("{{\"at\": {json}}}");
        assert_eq!(glm(value).calls, [call("weather", &arguments)]);
    }
    assert_eq!(glm("[}}").calls, [call("weather", "{\"at\": \"[}}\"}")]);
}
