//! Checks a document against the generated OpenAPI schema, as an apiserver would: types, required
//! and unknown fields, enums, bounds, patterns. The schema is read, never restated here.

use crate::field::{FieldError, FieldPath};
use crate::json_order::by_name;
use crate::manifest;
use regex::Regex;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// The generated schema, and at its root what every Kubernetes object has.
static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let mut schema = manifest::open_api_schema();
    schema["properties"]["apiVersion"] = json!({"type": "string"});
    schema["properties"]["kind"] = json!({"type": "string"});
    schema["properties"]["metadata"] = json!({"type": "object"});
    schema
});

/// Edits that a mistyped field name may be away from the name that is suggested.
const SUGGESTION_EDITS_MAX: usize = 3;

/// All that is wrong with a `PDDeployment` document, in the order of its fields.
pub fn check(document: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_node(document, &SCHEMA, &FieldPath::default(), &mut errors);
    errors
}

fn check_node(value: &Value, schema: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if value.is_null() && schema["nullable"] == true {
        return;
    }
    if schema["x-kubernetes-int-or-string"] == true {
        if !value.is_i64() && !value.is_string() {
            errors.push(path.error(format!(
                "expected a number or a string, got {}",
                kind(value)
            )));
        }
        return;
    }
    let expected = schema["type"].as_str().unwrap_or("object");
    match (expected, value) {
        ("object", Value::Object(fields)) => check_object(fields, schema, path, errors),
        ("array", Value::Array(items)) => check_array(items, schema, path, errors),
        ("string", Value::String(text)) => check_string(text, schema, path, errors),
        ("integer", Value::Number(number)) if number.is_i64() || number.is_u64() => {
            check_range(number.as_f64().unwrap_or(f64::MAX), schema, path, errors);
        }
        ("number", Value::Number(number)) => {
            check_range(number.as_f64().unwrap_or(f64::MAX), schema, path, errors);
        }
        ("boolean", Value::Bool(_)) => {}
        (expected, value) => {
            let article = if expected.starts_with(['a', 'i', 'o']) {
                "an"
            } else {
                "a"
            };
            errors.push(path.error(format!(
                "expected {article} {expected}, got {}",
                kind(value)
            )));
            return;
        }
    }
    check_enum(value, schema, path, errors);
}

fn check_object(
    fields: &Map<String, Value>,
    schema: &Value,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let empty = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&empty);
    let open = schema["properties"].is_null() && schema["additionalProperties"].is_null()
        || schema["x-kubernetes-preserve-unknown-fields"] == true;
    for required in schema["required"].as_array().into_iter().flatten() {
        let name = required.as_str().unwrap_or_default();
        if !fields.contains_key(name) {
            errors.push(path.child(name).error("required, but not given"));
        }
    }
    if let Some(max) = schema["maxProperties"].as_u64()
        && fields.len() as u64 > max
    {
        errors.push(path.error(format!(
            "has {} entries, at most {max} are allowed",
            fields.len()
        )));
    }
    for (name, value) in by_name(fields) {
        let path = path.child(name);
        match (properties.get(name), schema.get("additionalProperties")) {
            (Some(schema), _) => check_node(value, schema, &path, errors),
            (None, Some(values @ Value::Object(_))) => check_node(value, values, &path, errors),
            (None, _) if open => {}
            (None, _) => errors.push(unknown_field(name, properties, &path)),
        }
    }
}

fn unknown_field(name: &str, known: &Map<String, Value>, path: &FieldPath) -> FieldError {
    let nearest = known
        .keys()
        .map(|known| (edits(name, known), known))
        .min()
        .filter(|(edits, _)| *edits <= SUGGESTION_EDITS_MAX.min(name.len() / 2));
    path.error(match nearest {
        Some((_, known)) => format!("unknown field; did you mean {known}?"),
        None => {
            let names: Vec<&str> = known.keys().map(String::as_str).collect();
            format!("unknown field; known here: {}", names.join(", "))
        }
    })
}

/// Edits between two names; case and dashes count for nothing, so `min_replicas` is near.
fn edits(a: &str, b: &str) -> usize {
    let plain = |s: &str| s.replace(['_', '-'], "").to_lowercase();
    strsim::damerau_levenshtein(&plain(a), &plain(b))
}

fn check_array(items: &[Value], schema: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(max) = schema["maxItems"].as_u64()
        && items.len() as u64 > max
    {
        errors.push(path.error(format!(
            "has {} items, at most {max} are allowed",
            items.len()
        )));
    }
    for (i, item) in items.iter().enumerate() {
        check_node(item, &schema["items"], &path.index(i), errors);
    }
}

fn check_string(text: &str, schema: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let chars = text.chars().count() as u64;
    if let Some(min) = schema["minLength"].as_u64().filter(|min| chars < *min) {
        errors.push(path.error(format!(
            "has {chars} characters, at least {min} are required"
        )));
    }
    if let Some(max) = schema["maxLength"].as_u64().filter(|max| chars > *max) {
        errors.push(path.error(format!("has {chars} characters, at most {max} are allowed")));
    }
    if let Some(pattern) = schema["pattern"].as_str() {
        let regex = Regex::new(pattern).expect("patterns of the schema are tested to compile");
        if !regex.is_match(text) {
            errors.push(path.error(format!("{text:?} does not match {pattern}")));
        }
    }
}

fn check_range(number: f64, schema: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(min) = schema["minimum"].as_f64().filter(|min| number < *min) {
        errors.push(path.error(format!("{number} is below the least allowed, {min}")));
    }
    if let Some(max) = schema["maximum"].as_f64().filter(|max| number > *max) {
        errors.push(path.error(format!("{number} is above the largest allowed, {max}")));
    }
}

fn check_enum(value: &Value, schema: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(allowed) = schema["enum"].as_array() else {
        return;
    };
    if !allowed.contains(value) {
        let words: Vec<String> = allowed.iter().map(plain).collect();
        errors.push(path.error(format!(
            "{} is not one of {}",
            plain(value),
            words.join(", ")
        )));
    }
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing; remove the field or give it a value",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a number with a fraction",
        Value::Number(_) => "a number; quote it to make it a string",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests;
