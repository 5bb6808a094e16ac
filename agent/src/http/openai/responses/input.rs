//! The input of a response as the messages of a chat: what an assistant thought, said and called is one message.

mod item;

use crate::http::error::ApiError;
use item::{Item, Place};
use pd_engine::text::{Message, TemplateValue};
use serde::Deserialize;
use serde_json::{Value, json};

/// `input`: a user's message, or the items of a conversation.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "input is a string, or a list of items: messages, calls and their outputs, reasoning"
)]
pub(crate) enum Input {
    Text(String),
    Items(Vec<Value>),
}

/// A message of the assistant, as far as its items were read.
#[derive(Default)]
struct Turn {
    reasoning: String,
    content: Option<String>,
    phase: Option<String>,
    calls: Vec<Value>,
}

/// The messages so far.
#[derive(Default)]
struct Conversation {
    messages: Vec<Message>,
    turn: Turn,
}

/// # Errors
/// 400 when there is no input, and for an item that is not whole or not served.
pub(crate) fn into_template_messages(
    instructions: Option<&str>,
    input: Option<Input>,
) -> Result<Vec<Message>, ApiError> {
    let mut conversation = Conversation::default();
    if let Some(instructions) = instructions {
        conversation.say("system", instructions, []);
    }
    match input {
        Some(Input::Text(text)) => conversation.say("user", text, []),
        Some(Input::Items(items)) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                conversation.add(Item::read(&Place::of_item(index), item)?);
            }
        }
        Some(Input::Items(_)) | None => {
            let message = "`input` is missing or empty; give a text, or at least one item";
            return Err(ApiError::field("input", message));
        }
    }
    conversation.end_turn();
    Ok(conversation.messages)
}

// === impl Conversation ===

impl Conversation {
    fn say<const N: usize>(
        &mut self,
        role: &str,
        content: impl Into<String>,
        fields: [(&str, TemplateValue); N],
    ) {
        self.end_turn();
        let fields = fields.map(|(name, value)| (name.to_owned(), value));
        let message = Message::new(role, content).with_fields(fields);
        self.messages.push(message);
    }

    fn add(&mut self, item: Item) {
        match item {
            Item::Reasoning { text } => {
                if self.turn.has_answer() {
                    self.end_turn();
                }
                self.turn.reasoning.push_str(&text);
            }
            Item::Message { role, text, phase } if role == "assistant" => {
                if self.turn.has_answer() {
                    self.end_turn();
                }
                self.turn.content = Some(text);
                self.turn.phase = phase;
            }
            Item::Message { role, text, .. } => self.say(&role, text, []),
            Item::FunctionCall {
                call_id,
                name,
                arguments,
            } => self.turn.calls.push(json!({
                "id": call_id,
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            })),
            Item::FunctionCallOutput {
                call_id,
                name,
                text,
            } => {
                let name = name.map_or(TemplateValue::from(()), TemplateValue::from);
                let fields = [("tool_call_id", call_id.into()), ("name", name)];
                self.say("tool", text, fields);
            }
        }
    }

    /// What the assistant did is a message now.
    fn end_turn(&mut self) {
        let turn = std::mem::take(&mut self.turn);
        if turn.reasoning.is_empty() && !turn.has_answer() {
            return;
        }
        let Turn {
            reasoning,
            content,
            phase,
            calls,
        } = turn;
        let reasoning = Some(reasoning).filter(|text| !text.is_empty());
        let calls = (!calls.is_empty()).then(|| TemplateValue::from_serialize(calls));
        let fields = [
            ("reasoning_content", reasoning.map(TemplateValue::from)),
            ("tool_calls", calls),
            ("phase", phase.map(TemplateValue::from)),
        ];
        let fields = fields
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let message = Message::new("assistant", content.unwrap_or_default()).with_fields(fields);
        self.messages.push(message);
    }
}

// === impl Turn ===

impl Turn {
    fn has_answer(&self) -> bool {
        self.content.is_some() || !self.calls.is_empty()
    }
}

#[cfg(test)]
mod tests;
