//! One turn of a conversation, as chat templates read it.

use minijinja::Value;
use minijinja::value::ValueKind;
use serde::Serialize;
use std::collections::BTreeMap;

/// A turn: its role, its text, and further fields that the template may read.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Message {
    pub role: String,
    pub content: String,
    /// `name`, `tool_calls`, `tool_call_id`, `reasoning_content` and the like.
    #[serde(flatten)]
    fields: BTreeMap<String, Value>,
}

const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

// === impl Message ===

impl Message {
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            content: content.into(),
            fields: BTreeMap::new(),
        }
    }

    /// With the client's other fields. Null ones are absent to a template. Arguments of tool calls,
    /// which the API carries as JSON in a string, become the objects that templates expect.
    #[must_use]
    pub fn with_fields(self, fields: impl IntoIterator<Item = (String, Value)>) -> Self {
        let given = fields.into_iter().filter(|(_, value)| !value.is_none());
        let given = with_names_of_reasoning(given.collect()).into_iter();
        let read = given.map(|(name, value)| match name.as_str() {
            "tool_calls" => (name, each(&value, read_call)),
            _ => (name, value),
        });
        Self {
            fields: read.collect(),
            ..self
        }
    }
}

/// Clients have three names for what a model thought; templates find it by two of them, as in Hugging Face's.
fn with_names_of_reasoning(mut fields: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    let given = REASONING.iter().find_map(|name| fields.get(*name).cloned());
    if let Some(given) = given {
        for name in ["reasoning_content", "thinking"] {
            fields
                .entry(name.to_owned())
                .or_insert_with(|| given.clone());
        }
    }
    fields
}

fn read_call(call: &Value) -> Value {
    with_field(call, "function", |function| {
        with_field(function, "arguments", read_arguments)
    })
}

/// A string that is not a JSON object stays unchanged.
fn read_arguments(arguments: &Value) -> Value {
    let text = arguments.as_str().unwrap_or_default();
    let read = serde_json::from_str(text).ok();
    let object = read.filter(|read: &Value| read.kind() == ValueKind::Map);
    object.unwrap_or_else(|| arguments.clone())
}

/// The list `value` with each element changed; anything else as it is.
fn each(value: &Value, change: impl Fn(&Value) -> Value) -> Value {
    match value.try_iter() {
        Ok(elements) if value.kind() == ValueKind::Seq => {
            elements.map(|element| change(&element)).collect()
        }
        Ok(_) | Err(_) => value.clone(),
    }
}

/// The object `value` with one field changed, in its place; anything else as it is.
fn with_field(value: &Value, name: &str, change: impl Fn(&Value) -> Value) -> Value {
    let names = match value.try_iter() {
        Ok(names) if value.kind() == ValueKind::Map => names,
        Ok(_) | Err(_) => return value.clone(),
    };
    let fields = names.map(|key| {
        let field = value.get_item(&key).unwrap_or_default();
        let is_it = key.as_str() == Some(name);
        (key, if is_it { change(&field) } else { field })
    });
    fields.collect()
}

#[cfg(test)]
mod tests;
