//! What is known of a request's tools: their names, and what the values of their parameters are, for forms that write all
//! of them as text.

use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// The parameters of a request's tools.
#[derive(Clone, Debug, Default)]
pub struct ToolTypes {
    tools: HashSet<String>,
    parameters: HashMap<(String, String), Written>,
}

/// How a value that was written as text becomes JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// A string; or null, where that is among its types.
    Text { or_null: bool },
    /// JSON, and a string where it is none.
    Json,
}

/// Most schemas that are looked into for one value: references may lead in circles.
const SCHEMAS_MAX: usize = 256;

/// The types of a schema's values.
#[derive(Clone, Copy, Debug, Default)]
struct Kinds {
    string: bool,
    null: bool,
    other: bool,
}

// === impl ToolTypes ===

impl ToolTypes {
    /// Of tools by name, each with the JSON schema of its parameters.
    pub fn new<'a>(tools: impl IntoIterator<Item = (&'a str, &'a Value)>) -> Self {
        let mut types = Self::default();
        for (tool, root) in tools {
            types.tools.insert(tool.to_owned());
            let properties = root.get("properties").and_then(Value::as_object);
            for (name, schema) in properties.into_iter().flatten() {
                let written = written(schema, root);
                types
                    .parameters
                    .insert((tool.to_owned(), name.clone()), written);
            }
        }
        types
    }

    /// Whether a tool of this name is among them.
    pub(crate) fn has(&self, tool: &str) -> bool {
        self.tools.contains(tool)
    }

    /// How a value of a tool's parameter is read. One that no schema speaks of is a string.
    pub fn written(&self, tool: &str, parameter: &str) -> Written {
        let key = (tool.to_owned(), parameter.to_owned());
        let known = self.parameters.get(&key).copied();
        known.unwrap_or(Written::Text { or_null: false })
    }
}

fn written(schema: &Value, root: &Value) -> Written {
    // A list of types that has strings is read as one, with all else that it has.
    let (kinds, is_text) = match types(schema) {
        Some(kinds) => (kinds, kinds.string),
        None => {
            let kinds = Kinds::of(schema, root, &mut { SCHEMAS_MAX });
            (kinds, kinds.string && !kinds.other)
        }
    };
    if is_text {
        Written::Text {
            or_null: kinds.null,
        }
    } else {
        Written::Json
    }
}

/// What the keyword `type` says, if it is there.
fn types(schema: &Value) -> Option<Kinds> {
    let kind = schema.get("type")?;
    let kinds = kind.as_array();
    let kinds = kinds.map_or(std::slice::from_ref(kind), Vec::as_slice);
    Some(kinds.iter().fold(Kinds::default(), |all, kind| {
        let of = match kind.as_str() {
            Some("string") => Kinds::STRING,
            Some("null") => Kinds::NULL,
            Some(_) | None => Kinds::OTHER,
        };
        all.or(of)
    }))
}

// === impl Kinds ===

impl Kinds {
    const STRING: Self = Self {
        string: true,
        null: false,
        other: false,
    };
    const NULL: Self = Self {
        string: false,
        null: true,
        other: false,
    };
    const OTHER: Self = Self {
        string: false,
        null: false,
        other: true,
    };

    fn or(self, more: Self) -> Self {
        Self {
            string: self.string || more.string,
            null: self.null || more.null,
            other: self.other || more.other,
        }
    }

    /// Those of a schema, by the first of its keywords that speaks of types; `left` is how many schemas may be looked into.
    fn of(schema: &Value, root: &Value, left: &mut usize) -> Self {
        let Some(fewer) = left.checked_sub(1) else {
            return Self::OTHER;
        };
        *left = fewer;
        if let Some(kinds) = types(schema) {
            return kinds;
        }
        let values = schema["enum"].as_array().map(Vec::as_slice);
        let values = values.or_else(|| schema.get("const").map(std::slice::from_ref));
        if let Some(values) = values {
            return values.iter().fold(Self::default(), |all, value| {
                all.or(match value {
                    Value::String(_) => Self::STRING,
                    Value::Null => Self::NULL,
                    Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                        Self::OTHER
                    }
                })
            });
        }
        let reference = schema["$ref"].as_str();
        let target = reference.and_then(|to| root.pointer(to.strip_prefix('#')?));
        if let Some(target) = target {
            return Self::of(target, root, left);
        }
        let options = ["anyOf", "oneOf"]
            .iter()
            .find_map(|name| schema[*name].as_array());
        if let Some(options) = options {
            let of = |all: Self, option| all.or(Self::of(option, root, left));
            return options.iter().fold(Self::default(), of);
        }
        match schema["allOf"].as_array().map(Vec::as_slice) {
            Some([one]) => Self::of(one, root, left),
            Some(_) | None => Self::OTHER,
        }
    }
}

#[cfg(test)]
mod tests;
