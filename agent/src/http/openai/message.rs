//! Messages of a chat: text, alone or in parts.

use crate::http::error::ApiError;
use serde::Deserialize;

/// Roles that chat templates know.
const ROLES: &[&str] = &["system", "developer", "user", "assistant", "tool"];

#[derive(Debug, Deserialize)]
pub(crate) struct Message {
    role: String,
    #[serde(default)]
    content: Option<Content>,
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

// === impl Message ===

impl Message {
    /// Role and text of message `index` of a request. Parts are joined by a blank, as SGLang does
    /// for templates that take strings.
    ///
    /// # Errors
    /// 400 for a role or a part that no model here understands.
    pub(crate) fn into_text(self, index: usize) -> Result<(String, String), ApiError> {
        let Self { role, content } = self;
        if !ROLES.contains(&role.as_str()) {
            let message = format!(
                "`{role}` is no role of a message; use one of {}",
                ROLES.join(", ")
            );
            return Err(ApiError::field(format!("messages[{index}].role"), message));
        }
        let text = match content {
            None => String::new(),
            Some(Content::Text(text)) => text,
            Some(Content::Parts(parts)) => join(parts, index)?,
        };
        Ok((role, text))
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
