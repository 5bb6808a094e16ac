//! Values as Python writes them.

use super::*;

#[test]
fn containers_are_written_as_python_writes_them() {
    let value: Value = serde_json::from_str(
        r#"{"a": [1, 2.5, true, null, "x"], "it's": "a\"b'\n", "é": {}, "b": "it's"}"#,
    )
    .unwrap();
    assert_eq!(
        text(&value),
        r#"{'a': [1, 2.5, True, None, 'x'], "it's": 'a"b\'\n', 'é': {}, 'b': "it's"}"#
    );
    assert_eq!(text(&Value::from("it's")), "it's");
    assert_eq!(text(&Value::from("\u{1}")), "\u{1}");
    assert_eq!(text(&Value::from_serialize(["\u{1}"])), r"['\x01']");
}
