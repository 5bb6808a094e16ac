//! JSON's types as Python writes them, and which keywords speak of each.

use crate::grammar::schema::{SchemaError, error};
use serde_json::{Map, Value};

/// Keywords of each type.
pub(super) const TYPES: [(&str, &[&str]); 5] = [
    ("string", &["minLength", "maxLength", "pattern", "format"]),
    ("integer", NUMBERS),
    ("number", NUMBERS),
    (
        "array",
        &[
            "items",
            "minItems",
            "maxItems",
            "prefixItems",
            "additionalItems",
        ],
    ),
    (
        "object",
        &[
            "properties",
            "required",
            "additionalProperties",
            "patternProperties",
            "minProperties",
            "maxProperties",
        ],
    ),
];
const NUMBERS: &[&str] = &[
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
];

/// The types of a schema that names none: that of which its keywords speak; any for one without keywords.
pub(super) fn untyped(
    keywords: &Map<String, Value>,
    path: &str,
) -> Result<Vec<&'static str>, SchemaError> {
    let speaks = |own: &[&str]| own.iter().any(|name| keywords.contains_key(*name));
    let kinds = TYPES
        .iter()
        .filter(|(kind, own)| *kind != "integer" && speaks(own));
    let kinds: Vec<_> = kinds.map(|(kind, _)| *kind).collect();
    if kinds.len() > 1 {
        return Err(error(
            path,
            "it has keywords of several types; give the type that is meant",
        ));
    }
    Ok(kinds)
}

/// Whether no value is of two of the schemas, by their types.
pub(super) fn are_apart(schemas: &[Value]) -> bool {
    let mut seen = Vec::new();
    schemas.iter().all(|schema| {
        let kind = match schema["type"].as_str() {
            Some("integer") => Some("number"),
            kind => kind,
        };
        kind.is_some_and(|kind| {
            let is_new = !seen.contains(&kind);
            seen.push(kind);
            is_new
        })
    })
}

pub(super) fn is_of(value: &Value, kind: Option<&str>) -> bool {
    match value {
        Value::Null => kind == Some("null"),
        Value::Bool(_) => kind == Some("boolean"),
        Value::Number(number) => {
            let is_whole = number.as_f64().is_some_and(|number| number.fract() == 0.0);
            kind == Some("number") || kind == Some("integer") && is_whole
        }
        Value::String(_) => kind == Some("string"),
        Value::Array(_) => kind == Some("array"),
        Value::Object(_) => kind == Some("object"),
    }
}

/// A value in Python.
pub(super) fn literal(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(_) | Value::String(_) => value.to_string(),
        Value::Array(values) => {
            let values: Vec<_> = values.iter().map(literal).collect();
            format!("[{}]", values.join(", "))
        }
        Value::Object(values) => {
            let pair = |(name, value): (&String, &Value)| {
                format!("{}: {}", Value::from(name.as_str()), literal(value))
            };
            let pairs: Vec<_> = values.iter().map(pair).collect();
            format!("{{{}}}", pairs.join(", "))
        }
    }
}
