//! Messages of a chat: text, as one string or in parts, and other fields that a chat template may
//! read.

use crate::http::error::ApiError;
use pd_engine::text::{self, TemplateValue};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;

/// Roles that chat templates know.
pub(crate) const ROLES: &[&str] = &["system", "developer", "user", "assistant", "tool"];

#[derive(Debug)]
pub(crate) struct Message {
    role: String,
    content: Option<Content>,
    /// The other fields, for the template.
    fields: BTreeMap<String, TemplateValue>,
}

#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "message content is a string, a list of parts, or null"
)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: Option<String>,
}

/// The messages of a request as a template reads them.
///
/// # Errors
/// 400 when there is none, and for an unsupported role or part.
pub(crate) fn into_template_messages(
    messages: Option<Vec<Message>>,
) -> Result<Vec<text::Message>, ApiError> {
    let messages = messages.unwrap_or_default();
    if messages.is_empty() {
        let message = "`messages` is missing or empty; give at least one message";
        return Err(ApiError::field("messages", message));
    }
    let messages = messages.into_iter().enumerate();
    let messages = messages.map(|(index, message)| message.into_template_message(index));
    messages.collect()
}

// === impl Message ===

impl Message {
    /// Message `index` of a request as a template reads it. Parts are joined by a space, as in
    /// SGLang for templates that take strings.
    ///
    /// # Errors
    /// 400 for an unsupported role or part.
    fn into_template_message(self, index: usize) -> Result<text::Message, ApiError> {
        let Self {
            role,
            content,
            fields,
        } = self;
        if !ROLES.contains(&role.as_str()) {
            let message = format!(
                "`{role}` is not a message role; use one of {}",
                ROLES.join(", ")
            );
            return Err(ApiError::field(format!("messages[{index}].role"), message));
        }
        let text = match content {
            None => String::new(),
            Some(Content::Text(text)) => text,
            Some(Content::Parts(parts)) => join(parts, index)?,
        };
        Ok(text::Message::new(role, text).with_fields(fields))
    }
}

/// Parsed field by field, so that an error keeps its path.
impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MessageVisitor)
    }
}

struct MessageVisitor;

impl<'de> Visitor<'de> for MessageVisitor {
    type Value = Message;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message: an object with `role` and `content`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Message, A::Error> {
        let (mut role, mut content, mut fields) = (None, None, BTreeMap::new());
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                "role" => role = Some(map.next_value()?),
                "content" => content = map.next_value()?,
                _ => _ = fields.insert(name, map.next_value()?),
            }
        }
        Ok(Message {
            role: role.ok_or_else(|| A::Error::missing_field("role"))?,
            content,
            fields,
        })
    }
}

fn join(parts: Vec<Part>, index: usize) -> Result<String, ApiError> {
    let texts: Result<Vec<String>, ApiError> = parts
        .into_iter()
        .enumerate()
        .map(|(part, Part { kind, text })| match (kind.as_str(), text) {
            ("text", Some(text)) => Ok(text),
            ("text", None) => Err(ApiError::field(
                format!("messages[{index}].content[{part}].text"),
                "a part of type text has no `text`",
            )),
            (other, _) => Err(ApiError::field(
                format!("messages[{index}].content[{part}].type"),
                format!("parts of type `{other}` are not supported: this model reads text only"),
            )),
        })
        .collect();
    texts.map(|texts| texts.join(" "))
}
