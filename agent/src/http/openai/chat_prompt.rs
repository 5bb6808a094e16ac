//! The prompt of a chat: its messages and what else the model's chat template reads, rendered.

use super::OpenAiRequest;
use crate::http::dialect::Dialect;
use crate::http::error::ApiError;
use crate::service::Service;
use pd_answers::Prompt;
use pd_engine::text::{Conversation, Message, TemplateValue};
use serde_json::{Map, Value};

/// What a request says of its prompt, but for its tools.
#[derive(Debug, Default)]
pub(crate) struct ChatPrompt {
    pub(crate) messages: Vec<Message>,
    pub(crate) chat_template_kwargs: Map<String, Value>,
    pub(crate) reasoning_effort: Option<String>,
    pub(crate) continue_final_message: bool,
    /// `None`: the prompt ends with the opening of an answer, unless the last message is continued.
    pub(crate) add_generation_prompt: Option<bool>,
}

/// A conversation, rendered by the model's chat template.
#[derive(Debug)]
pub(crate) struct Rendered {
    pub(crate) text: String,
    /// The text of the message that the answer continues.
    continued: Option<String>,
}

// === impl ChatPrompt ===

impl ChatPrompt {
    /// Takes the fields out of a chat, whose messages are read.
    pub(crate) fn take(request: &mut OpenAiRequest<bool>, messages: Vec<Message>) -> Self {
        Self {
            messages,
            chat_template_kwargs: request.chat_template_kwargs.take().unwrap_or_default(),
            reasoning_effort: request.reasoning_effort.take(),
            continue_final_message: request.continue_final_message.unwrap_or(false),
            add_generation_prompt: request.add_generation_prompt,
        }
    }

    /// # Errors
    /// 400 for messages that the template cannot read, and for a model without template.
    pub(crate) fn render(
        self,
        service: &Service,
        tools: &[TemplateValue],
        dialect: Dialect,
    ) -> Result<Rendered, ApiError> {
        let kwargs = template_kwargs(self.chat_template_kwargs, self.reasoning_effort);
        let template = service.engine.chat_template().ok_or_else(|| {
            let message = "the model has no chat template; use /v1/completions";
            ApiError::field(dialect.prompt, message)
        })?;
        let continues = self.continue_final_message;
        if continues && self.add_generation_prompt == Some(true) {
            let message = "`continue_final_message` and `add_generation_prompt` are both true: the \
                           prompt ends in the last message or with a new one; set one of them";
            return Err(ApiError::field("continue_final_message", message));
        }
        let conversation = Conversation {
            messages: &self.messages,
            tools,
            kwargs: &kwargs,
        };
        let rendered = if continues {
            template.render_continued(conversation)
        } else {
            template.render(conversation, self.add_generation_prompt.unwrap_or(true))
        };
        let last = self.messages.last().filter(|_| continues);
        Ok(Rendered {
            text: rendered.map_err(|why| ApiError::field(dialect.prompt, why.to_string()))?,
            continued: last.map(|message| message.content.clone()),
        })
    }
}

// === impl Rendered ===

impl Rendered {
    /// What the answer goes on from.
    pub(crate) fn prompt(&self) -> Prompt<'_> {
        match &self.continued {
            Some(message) => Prompt::Continued(message),
            None => Prompt::Opened(&self.text),
        }
    }
}

/// The client's variables of the template. As in SGLang, `reasoning_effort` sets the variables by
/// which templates know it; variables that the client sets directly take precedence.
fn template_kwargs(mut kwargs: Map<String, Value>, effort: Option<String>) -> Map<String, Value> {
    if let Some(effort) = effort {
        let thinks = Value::Bool(effort != "none");
        let variables = [
            ("thinking", thinks.clone()),
            ("enable_thinking", thinks),
            ("reasoning_effort", Value::String(effort)),
        ];
        for (name, value) in variables {
            kwargs.entry(name).or_insert(value);
        }
    }
    kwargs
}

#[cfg(test)]
mod tests;
