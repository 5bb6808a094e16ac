//! Honoured fields of `/v1/responses`, and the chat that they ask for. The table of fields handles all others.

use super::echo::{Echo, ReasoningEcho, TextEcho};
use super::input::{self, Input};
use crate::http::body::Body;
use crate::http::bootstrap::BootstrapPort;
use crate::http::constraint::Constraint;
use crate::http::dialect::Dialect;
use crate::http::error::ApiError;
use crate::http::fields::Scope;
use crate::http::one_or_many::OneOrMany;
use crate::http::openai::OpenAiRequest;
use crate::http::openai::chat::ChatAsked;
use crate::http::openai::tools::ToolChoice;
use pd_engine::text::TemplateValue;
use pd_protocol::BootstrapRoom;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What `include` may ask for: log probabilities in the answer's text.
const LOGPROBS: &str = "message.output_text.logprobs";
/// By which clients keep reasoning that they may not see; here its text is in the open, and may be sent again.
const ENCRYPTED: &str = "reasoning.encrypted_content";

#[derive(Debug, Deserialize)]
pub(crate) struct ResponsesRequest {
    model: Option<String>,
    input: Option<Input>,
    /// A system message in front of the input.
    instructions: Option<String>,
    max_output_tokens: Option<u32>,
    stream: Option<bool>,
    /// True is OpenAI's default, so it is taken; the answer says false.
    #[serde(rename = "store")]
    _store: Option<bool>,
    include: Option<Vec<String>>,
    top_logprobs: Option<u32>,
    text: Option<TextBody>,
    reasoning: Option<ReasoningBody>,
    tools: Option<Vec<TemplateValue>>,
    tool_choice: Option<ToolChoiceBody>,
    parallel_tool_calls: Option<bool>,
    metadata: Option<BTreeMap<String, String>>,
    user: Option<String>,

    temperature: Option<f32>,
    top_p: Option<f32>,
    /// The others' additions, as chats have them.
    top_k: Option<i32>,
    min_p: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    repetition_penalty: Option<f32>,
    seed: Option<i64>,
    stop: Option<OneOrMany<String>>,
    ignore_eos: Option<bool>,
    chat_template_kwargs: Option<Map<String, Value>>,

    bootstrap_host: Option<OneOrMany<String>>,
    bootstrap_port: Option<OneOrMany<BootstrapPort>>,
    bootstrap_room: Option<OneOrMany<BootstrapRoom>>,
}

#[derive(Debug, Default, Deserialize)]
struct TextBody {
    format: Option<TextFormat>,
}

/// What the answer's text must be.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum TextFormat {
    Text {},
    JsonObject {},
    JsonSchema {
        name: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        schema: Map<String, Value>,
        #[serde(skip_serializing_if = "Option::is_none")]
        strict: Option<bool>,
    },
}

#[derive(Debug, Default, Deserialize)]
struct ReasoningBody {
    effort: Option<String>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(
    untagged,
    expecting = "tool_choice is \"none\", \"auto\", \"required\", or an object with `type` and `name`"
)]
pub(crate) enum ToolChoiceBody {
    Mode(String),
    Object {
        #[serde(rename = "type")]
        kind: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
}

// === impl ResponsesRequest ===

impl Body for ResponsesRequest {
    const SCOPE: Scope = Scope::Responses;
}

impl ResponsesRequest {
    /// The chat that is asked for, and what its answer says of the request.
    ///
    /// # Errors
    /// 400 for an input, a choice of tools or an addition to the answer that is not served.
    pub(crate) fn into_chat(self) -> Result<(ChatAsked, Echo), ApiError> {
        let wants_logprobs = check_include(self.include.as_deref().unwrap_or_default())?;
        if self.top_logprobs.unwrap_or(0) > 0 && !wants_logprobs {
            let message =
                format!("`top_logprobs` is set but `include` has no {LOGPROBS:?}; add it");
            return Err(ApiError::field("top_logprobs", message));
        }
        let format = self.text.and_then(|text| text.format);
        let format = format.unwrap_or(TextFormat::Text {});
        let effort = self.reasoning.and_then(|reasoning| reasoning.effort);
        let tools = self.tools.unwrap_or_default();
        let choice = self.tool_choice.clone().map(ToolChoiceBody::into_chats);
        let asked = ChatAsked {
            dialect: Dialect::RESPONSES,
            id_prefix: "resp_",
            messages: input::into_template_messages(self.instructions.as_deref(), self.input)?,
            constraint: format.constraint(),
            settings: OpenAiRequest {
                model: self.model,
                stream: self.stream,
                logprobs: Some(wants_logprobs),
                top_logprobs: self.top_logprobs,
                max_tokens: self.max_output_tokens,
                temperature: self.temperature,
                top_p: self.top_p,
                top_k: self.top_k,
                min_p: self.min_p,
                presence_penalty: self.presence_penalty,
                frequency_penalty: self.frequency_penalty,
                repetition_penalty: self.repetition_penalty,
                seed: self.seed,
                stop: self.stop,
                ignore_eos: self.ignore_eos,
                tools: Some(tools.iter().map(nested).collect()),
                tool_choice: choice.transpose()?,
                parallel_tool_calls: self.parallel_tool_calls,
                reasoning_effort: effort.clone(),
                chat_template_kwargs: self.chat_template_kwargs,
                bootstrap_host: self.bootstrap_host,
                bootstrap_port: self.bootstrap_port,
                bootstrap_room: self.bootstrap_room,
                ..OpenAiRequest::default()
            },
        };
        let auto = || ToolChoiceBody::Mode("auto".to_owned());
        let echo = Echo {
            instructions: self.instructions,
            max_output_tokens: self.max_output_tokens,
            metadata: self.metadata.unwrap_or_default(),
            parallel_tool_calls: self.parallel_tool_calls.unwrap_or(true),
            reasoning: ReasoningEcho::new(effort),
            temperature: self.temperature,
            text: TextEcho { format },
            tool_choice: self.tool_choice.unwrap_or_else(auto),
            tools,
            top_logprobs: self.top_logprobs.unwrap_or(0),
            top_p: self.top_p,
            user: self.user,
            ..Echo::default()
        };
        Ok((asked, echo))
    }
}

/// Whether log probabilities are asked for.
fn check_include(include: &[String]) -> Result<bool, ApiError> {
    for (index, asked) in include.iter().enumerate() {
        if ![LOGPROBS, ENCRYPTED].contains(&asked.as_str()) {
            let what = format!("answers do not hold `{asked}`; leave it out");
            return Err(ApiError::unsupported(&format!("include[{index}]"), &what));
        }
    }
    Ok(include.iter().any(|asked| asked == LOGPROBS))
}

/// A tool as chats and their templates have it. Null fields are absent, as SDKs write them for none.
fn nested(tool: &TemplateValue) -> TemplateValue {
    let Some(object) = tool.as_object() else {
        return tool.clone();
    };
    let fields = object.try_iter_pairs().into_iter().flatten();
    let fields = fields.filter(|(name, value)| name.as_str() != Some("type") && !value.is_none());
    let function: TemplateValue = fields.collect();
    let kind = tool.get_attr("type").unwrap_or_default();
    [("type", kind), ("function", function)]
        .into_iter()
        .collect()
}

// === impl TextFormat ===

impl TextFormat {
    fn constraint(&self) -> Option<Constraint> {
        const FIELD: &str = "text.format";
        match self {
            Self::Text {} => None,
            Self::JsonObject {} => Some(Constraint::of_json(FIELD)),
            Self::JsonSchema { schema, .. } => Some(Constraint::of_schema(FIELD, schema)),
        }
    }
}

// === impl ToolChoiceBody ===

impl ToolChoiceBody {
    fn into_chats(self) -> Result<ToolChoice, ApiError> {
        match self {
            Self::Mode(mode) => Ok(ToolChoice::Mode(mode)),
            Self::Object { kind, name } if kind == "function" => match name {
                Some(name) => Ok(ToolChoice::named(name)),
                None => {
                    let message = "a function is chosen by its `name`; give it";
                    Err(ApiError::field("tool_choice.name", message))
                }
            },
            Self::Object { kind, .. } => {
                let message = format!(
                    "a choice of type `{kind}` is not supported; give \"none\", \"auto\", \"required\", or a function's name in an object"
                );
                Err(ApiError::field("tool_choice.type", message))
            }
        }
    }
}

#[cfg(test)]
mod tests;
