//! JSON and texts as the crate takes them.

use super::schema;
use llguidance::JsonCompileOptions;
use serde_json::Value;

/// Between the parts of JSON: a space, or a new line and where it begins. Without a bound, models that are not sure what
/// comes next write spaces to the end of their answer.
const WHITESPACE: &str = r" |\r?\n[ \t]{0,32}";

/// As strings are written, characters have one form each: with `u` a name could be one of the schema's in other letters, and
/// its value not of that name's schema. Control characters without a letter of their own are not written.
const ESCAPES: &str = r#"nrbtf\""#;

/// A schema that was checked, with the options of all that the crate compiles.
pub(super) fn with_options(mut schema: Value) -> Value {
    schema::adapt(&mut schema);
    if schema == Value::Bool(true) {
        schema = Value::Object(serde_json::Map::new());
    }
    let options = JsonCompileOptions {
        whitespace_pattern: Some(WHITESPACE.to_owned()),
        json_allowed_escapes: Some(ESCAPES.to_owned()),
        ..JsonCompileOptions::default()
    };
    options.apply_to(&mut schema);
    schema
}

/// As a string of Lark: JSON's, without control characters.
pub(super) fn quoted(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted.replace('\u{7f}', "\\u007f")
}
