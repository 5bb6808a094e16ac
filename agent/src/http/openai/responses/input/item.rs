//! One item of an input, read with its place, so that an error names it.

use crate::http::error::ApiError;
use crate::http::openai::message::ROLES;
use serde_json::{Map, Value};

/// What an item says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item {
    Message {
        role: String,
        text: String,
        phase: Option<String>,
    },
    Reasoning {
        text: String,
    },
    FunctionCall {
        call_id: String,
        name: String,
        arguments: String,
    },
    FunctionCallOutput {
        call_id: String,
        /// The function's.
        name: Option<String>,
        text: String,
    },
}

/// Where a value is in the request.
#[derive(Clone, Debug)]
pub(super) struct Place(String);

/// An object whose fields are taken one by one.
struct Object<'a> {
    place: &'a Place,
    fields: &'a Map<String, Value>,
}

// === impl Item ===

impl Item {
    /// # Errors
    /// 400 with the path of what is missing, wrong or not served.
    pub(super) fn read(place: &Place, item: &Value) -> Result<Self, ApiError> {
        let item = Object::of(place, item, "an item")?;
        match item.text("type")?.unwrap_or("message") {
            "message" => item.message(),
            "reasoning" => item.reasoning(),
            "function_call" => {
                item.check(&["type", "id", "status", "call_id", "name", "arguments"])?;
                Ok(Self::FunctionCall {
                    call_id: item.required("call_id")?,
                    name: item.required("name")?,
                    arguments: item.required("arguments")?,
                })
            }
            "function_call_output" => {
                item.check(&["type", "id", "status", "call_id", "name", "output"])?;
                Ok(Self::FunctionCallOutput {
                    call_id: item.required("call_id")?,
                    name: item.text("name")?.map(str::to_owned),
                    text: item.content("output")?,
                })
            }
            "item_reference" => {
                let message = "no item is stored here, so none can be referred to; send the item";
                Err(ApiError::unsupported(&place.field("type").0, message))
            }
            other => {
                let message = format!(
                    "items of type `{other}` are not supported; give messages, calls of functions and their outputs, or reasoning"
                );
                Err(ApiError::field(place.field("type").0, message))
            }
        }
    }
}

// === impl Object ===

impl<'a> Object<'a> {
    fn of(place: &'a Place, value: &'a Value, what: &str) -> Result<Self, ApiError> {
        match value {
            Value::Object(fields) => Ok(Self { place, fields }),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => Err(place.wrong(format!("`{}`: {what} is an object", place.0))),
        }
    }

    fn message(&self) -> Result<Item, ApiError> {
        self.check(&["type", "id", "status", "role", "content", "phase"])?;
        let role: String = self.required("role")?;
        if !ROLES.contains(&role.as_str()) {
            let message = format!(
                "`{role}` is not a message role; use one of {}",
                ROLES.join(", ")
            );
            return Err(self.place.field("role").wrong(message));
        }
        Ok(Item::Message {
            role,
            text: self.content("content")?,
            phase: self.text("phase")?.map(str::to_owned),
        })
    }

    /// What was thought, where the item has it; a summary is no part of what a model wrote.
    fn reasoning(&self) -> Result<Item, ApiError> {
        const FIELDS: [&str; 6] = [
            "type",
            "id",
            "status",
            "summary",
            "content",
            "encrypted_content",
        ];
        self.check(&FIELDS)?;
        if self.given("encrypted_content").is_some() {
            let path = self.place.field("encrypted_content").0;
            let message = "reasoning that another server encrypted cannot be read; leave it out";
            return Err(ApiError::unsupported(&path, message));
        }
        Ok(Item::Reasoning {
            text: match self.given("content") {
                Some(_) => self.content("content")?,
                None => String::new(),
            },
        })
    }

    /// The field's value, unless it is null.
    fn given(&self, name: &str) -> Option<&'a Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    /// Refuses other fields, unless they are null.
    fn check(&self, known: &[&str]) -> Result<(), ApiError> {
        let names = self.fields.keys().map(String::as_str);
        let mut unknown = names.filter(|name| !known.contains(name) && self.given(name).is_some());
        let Some(name) = unknown.next() else {
            return Ok(());
        };
        let path = self.place.field(name).0;
        let message = format!(
            "Unrecognized request argument supplied: `{path}`: this API has no such field; leave it out"
        );
        Err(ApiError::field(path, message).with_code("unknown_parameter"))
    }

    fn text(&self, name: &str) -> Result<Option<&'a str>, ApiError> {
        let Some(value) = self.given(name) else {
            return Ok(None);
        };
        let place = self.place.field(name);
        let wrong = || place.wrong(format!("`{}`: expected a string", place.0));
        value.as_str().map(Some).ok_or_else(wrong)
    }

    fn required(&self, name: &str) -> Result<String, ApiError> {
        let place = self.place.field(name);
        let text = self.text(name)?.map(str::to_owned);
        text.ok_or_else(|| place.wrong(format!("`{}` is missing; give a string", place.0)))
    }

    /// A string, or parts, joined by a space as those of chats.
    fn content(&self, name: &str) -> Result<String, ApiError> {
        let place = self.place.field(name);
        match self.given(name) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(Value::Array(parts)) => {
                let texts = parts.iter().enumerate();
                let texts = texts.map(|(index, part)| part_text(&place.element(index), part));
                Ok(texts.collect::<Result<Vec<String>, ApiError>>()?.join(" "))
            }
            None if name == "content" => Ok(String::new()),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => {
                let message = format!("`{}`: expected a string, or a list of parts", place.0);
                Err(place.wrong(message))
            }
        }
    }
}

/// The text of a part: of a client's, or of an answer that it sends again.
fn part_text(place: &Place, part: &Value) -> Result<String, ApiError> {
    let part = Object::of(place, part, "a part")?;
    let field = match part.required("type")?.as_str() {
        "input_text" | "output_text" | "reasoning_text" => "text",
        "refusal" => "refusal",
        other => {
            let message =
                format!("parts of type `{other}` are not supported: this model reads text only");
            return Err(place.field("type").wrong(message));
        }
    };
    part.check(&[
        "type",
        field,
        "annotations",
        "logprobs",
        "prompt_cache_breakpoint",
    ])?;
    part.required(field)
}

// === impl Place ===

impl Place {
    pub(super) fn of_item(index: usize) -> Self {
        Self("input".to_owned()).element(index)
    }

    fn element(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    fn field(&self, name: &str) -> Self {
        Self(format!("{}.{name}", self.0))
    }

    fn wrong(&self, message: impl Into<String>) -> ApiError {
        ApiError::field(self.0.clone(), message)
    }
}
