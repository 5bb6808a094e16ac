//! The keywords of one schema, without the schemas in it: what of them is not enforced.

use super::{SchemaError, error, within};
use crate::grammar::source::REGEX_BYTES_MAX;
use serde_json::{Map, Number, Value};
use std::collections::HashSet;

/// Keywords of any draft that constrain and are not enforced.
const REFUSED: [&str; 19] = [
    "$dynamicRef",
    "$recursiveRef",
    "contains",
    "contentSchema",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "disallow",
    "divisibleBy",
    "else",
    "extends",
    "if",
    "maxContains",
    "minContains",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// With a least or greatest number of properties, for which the grammar has a way for each of them.
const COUNTED_PROPERTIES_MAX: usize = 64;
const ONE_OF_MAX: usize = 256;
/// The crate computes in `f64`, which has all whole numbers up to this one.
const EXACT_MAX: u64 = 1 << 53;

/// # Errors
/// Says which of them is refused, and why.
pub(super) fn check(keywords: &Map<String, Value>, path: &str) -> Result<(), SchemaError> {
    if let Some(refused) = REFUSED.iter().find(|name| keywords.contains_key(**name)) {
        let problem =
            format!("{refused} cannot be enforced; leave it out, and check the answer yourself");
        return Err(error(path, problem));
    }
    if keywords.contains_key("x-guidance") {
        return Err(error(
            path,
            "x-guidance is refused: what it sets is this server's; leave it out",
        ));
    }
    if keywords.get("uniqueItems") == Some(&Value::Bool(true)) {
        return Err(error(
            path,
            "uniqueItems cannot be enforced; leave it out, and check the answer yourself",
        ));
    }
    let pattern = keywords.get("pattern").and_then(Value::as_str);
    let patterns = keywords.get("patternProperties").and_then(Value::as_object);
    let patterns = patterns.into_iter().flat_map(Map::keys).map(String::as_str);
    let longest = pattern.into_iter().chain(patterns).map(str::len).max();
    let len = longest.unwrap_or(0) as u64;
    within(path, "bytes in a pattern", len, REGEX_BYTES_MAX as u64)?;
    let one_of = keywords.get("oneOf").and_then(Value::as_array);
    within(
        path,
        "schemas in oneOf",
        one_of.map_or(0, Vec::len) as u64,
        ONE_OF_MAX as u64,
    )?;
    counts(keywords, path)?;
    numbers(keywords, path)?;
    let constants = ["const", "enum"].iter();
    let mut constants = constants.filter_map(|name| keywords.get(*name));
    if !constants.all(is_writable) {
        let problem =
            "it has a constant with a control character that answers do not write; leave it out";
        return Err(error(path, problem));
    }
    let is_resource = keywords.get("$id").and_then(Value::as_str);
    if path != "#"
        && is_resource.is_some_and(|id| !id.starts_with('#'))
        && keywords.values().any(has_reference)
    {
        let problem = "references below its $id begin there, which is not followed; leave $id out";
        return Err(error(path, problem));
    }
    Ok(())
}

/// Of properties.
fn counts(keywords: &Map<String, Value>, path: &str) -> Result<(), SchemaError> {
    let counts = ["minProperties", "maxProperties"];
    if counts.iter().any(|name| keywords.contains_key(*name)) {
        let properties = keywords.get("properties").and_then(Value::as_object);
        let len = properties.map_or(0, Map::len) as u64;
        let what = "properties of which a number is wanted";
        within(path, what, len, COUNTED_PROPERTIES_MAX as u64)?;
    }
    let list = |name: &str| keywords.get(name).and_then(Value::as_array);
    let required: HashSet<_> = list("required").into_iter().flatten().collect();
    let least = keywords.get("minProperties").and_then(Value::as_u64);
    let has_others = keywords.get("additionalProperties") != Some(&Value::Bool(false))
        || keywords.contains_key("patternProperties");
    if has_others && least.unwrap_or(0) > required.len() as u64 + 1 {
        let problem = "minProperties is enforced up to one more than are required, as other names may come twice; \
            require more, or leave it out";
        return Err(error(path, problem));
    }
    Ok(())
}

/// That the crate reads the numbers as they are written.
fn numbers(keywords: &Map<String, Value>, path: &str) -> Result<(), SchemaError> {
    let is_bound_exact = |name: &str| match keywords.get(name) {
        Some(Value::Number(number)) => is_exact(number) || is_end(name, number),
        // The crate refuses what is no number.
        Some(_) | None => true,
    };
    let bounds = [
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
    ];
    let inexact = bounds.into_iter().find(|name| !is_bound_exact(name));
    let constants = ["const", "enum"].into_iter();
    let mut constants = constants.filter(|name| keywords.get(*name).is_some_and(has_inexact));
    if let Some(name) = inexact.or_else(|| constants.next()) {
        let problem = format!("{name} has a number beyond 2^53, which cannot be enforced exactly");
        return Err(error(path, problem));
    }
    Ok(())
}

fn is_exact(number: &Number) -> bool {
    let whole = number.as_i64().map(i64::unsigned_abs).or(number.as_u64());
    let is_small = number
        .as_f64()
        .is_some_and(|number| number.abs() <= EXACT_MAX as f64);
    whole.map_or(is_small, |whole| whole <= EXACT_MAX)
}

/// A bound that is exact although it is large: a fraction's, or where the crate's integers end.
fn is_end(name: &str, number: &Number) -> bool {
    let is_least_or_greatest = matches!(number.as_i64(), Some(i64::MIN | i64::MAX));
    match name {
        "minimum" => number.is_f64() || is_least_or_greatest,
        "maximum" => number.is_f64() || is_least_or_greatest || number.as_u64() == Some(u64::MAX),
        _ => false,
    }
}

fn has_inexact(value: &Value) -> bool {
    match value {
        Value::Number(number) => !number.is_f64() && !is_exact(number),
        Value::Array(items) => items.iter().any(has_inexact),
        Value::Object(named) => named.values().any(has_inexact),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

/// Whether its texts have no control character that `compile::ESCAPES` has no letter for.
fn is_writable(value: &Value) -> bool {
    match value {
        Value::String(text) => text
            .chars()
            .all(|c| !c.is_ascii_control() || "\x08\t\n\x0c\r".contains(c)),
        Value::Array(items) => items.iter().all(is_writable),
        Value::Object(named) => named.values().all(is_writable),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

/// Whether it has a reference to a part of the schema.
fn has_reference(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_reference),
        Value::Object(named) => {
            let reference = named.get("$ref").and_then(Value::as_str);
            reference.is_some_and(|to| to.starts_with('#')) || named.values().any(has_reference)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
