//! What a schema says of an object that is written name by name.

use crate::grammar::schema::{OWN, SchemaError, error};
use serde_json::{Map, Value};

/// A property, in the schema's order.
#[derive(Debug)]
pub(super) struct Parameter<'a> {
    pub(super) name: &'a str,
    pub(super) schema: &'a Value,
    pub(super) is_required: bool,
    /// A JSON pointer to its schema.
    pub(super) path: String,
}

/// What no schema speaks of may be anything.
const ANY: &Value = &Value::Bool(true);

/// Keywords that say of a value what their own schemas say.
pub(super) const APPLYING: [&str; 6] = ["anyOf", "oneOf", "allOf", "$ref", "enum", "const"];
/// Keywords of objects beside those that are read here.
const OBJECTS: [&str; 3] = ["patternProperties", "minProperties", "maxProperties"];

/// The named properties of `schema`, whose values are objects: it has them and no others, whether others are forbidden or
/// not.
///
/// # Errors
/// Names a keyword that would not be kept.
pub(super) fn of_object<'a>(
    schema: &'a Value,
    path: &str,
) -> Result<Vec<Parameter<'a>>, SchemaError> {
    let Value::Object(keywords) = schema else {
        return Ok(Vec::new());
    };
    refuse(keywords, path, "", APPLYING.into_iter().chain(OBJECTS))?;
    let kind = keywords.get("type");
    let kinds = kind.map(|kind| {
        kind.as_array()
            .map_or(std::slice::from_ref(kind), Vec::as_slice)
    });
    let is_object = |kinds: &[Value]| kinds.iter().any(|kind| kind.as_str() == Some("object"));
    if !kinds.is_none_or(is_object) {
        return Err(error(path, "arguments are an object; give that type"));
    }
    let others = keywords.get("additionalProperties");
    if others.is_some_and(|others| others.as_object().is_some_and(|others| !others.is_empty())) {
        let problem = "additionalProperties with a schema cannot be enforced in this form; name the properties";
        return Err(error(path, problem));
    }
    let properties = keywords.get("properties").and_then(Value::as_object);
    let required = keywords.get("required").and_then(Value::as_array);
    let required = required.into_iter().flatten().filter_map(Value::as_str);
    let required: Vec<&str> = required.collect();
    let named = properties
        .into_iter()
        .flatten()
        .map(|(name, schema)| Parameter {
            name,
            schema,
            is_required: required.contains(&name.as_str()),
            path: format!("{path}/properties/{name}"),
        });
    let mut parameters: Vec<_> = named.collect();
    for name in &required {
        if parameters.iter().any(|known| known.name == *name) {
            continue;
        }
        if others == Some(&Value::Bool(false)) {
            let problem =
                format!("`{name:.100}` is required, and no property; add it or let it be");
            return Err(error(path, problem));
        }
        parameters.push(Parameter {
            name,
            schema: ANY,
            is_required: true,
            path: format!("{path}/required"),
        });
    }
    Ok(parameters)
}

/// # Errors
/// When the schema has one of the keywords.
pub(super) fn refuse(
    keywords: &Map<String, Value>,
    path: &str,
    beside: &str,
    mut refused: impl Iterator<Item = &'static str>,
) -> Result<(), SchemaError> {
    match refused.find(|name| keywords.contains_key(*name)) {
        Some(name) => {
            let problem = format!("{name}{beside} cannot be enforced in this form; leave it out");
            Err(error(path, problem))
        }
        None => Ok(()),
    }
}

/// The one keyword of [`APPLYING`] that a schema has, whose schemas are all that it says of its values.
///
/// # Errors
/// When it says something beside.
pub(super) fn applying(
    keywords: &Map<String, Value>,
    path: &str,
) -> Result<Option<&'static str>, SchemaError> {
    let schemas = APPLYING.into_iter().take(4);
    let Some(name) = schemas.clone().find(|name| keywords.contains_key(*name)) else {
        return Ok(None);
    };
    let others = APPLYING.into_iter().filter(|other| *other != name);
    refuse(
        keywords,
        path,
        &format!(" beside {name}"),
        others.chain(OWN),
    )?;
    Ok(Some(name))
}
