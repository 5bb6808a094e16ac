//! What an answer says again of its request.

use super::request::{TextFormat, ToolChoiceBody};
use pd_engine::sample::params::SamplingParams;
use pd_engine::text::TemplateValue;
use serde::Serialize;
use std::collections::BTreeMap;

/// Fields of a request, as its answer has them: as given, or the defaults.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Echo {
    /// What needs state is refused, so these are what they always are.
    pub(crate) background: bool,
    pub(crate) previous_response_id: Option<String>,
    pub(crate) store: bool,
    pub(crate) truncation: &'static str,
    pub(crate) service_tier: &'static str,

    pub(crate) instructions: Option<String>,
    pub(crate) max_output_tokens: Option<u32>,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) parallel_tool_calls: bool,
    pub(crate) reasoning: ReasoningEcho,
    pub(crate) temperature: Option<f32>,
    pub(crate) text: TextEcho,
    pub(crate) tool_choice: ToolChoiceBody,
    pub(crate) tools: Vec<TemplateValue>,
    pub(crate) top_logprobs: u32,
    pub(crate) top_p: Option<f32>,
    pub(crate) user: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ReasoningEcho {
    effort: Option<String>,
    /// None is made: the reasoning is in the answer itself.
    summary: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct TextEcho {
    pub(crate) format: TextFormat,
}

// === impl Echo ===

impl Default for Echo {
    fn default() -> Self {
        Self {
            background: false,
            previous_response_id: None,
            store: false,
            truncation: "disabled",
            service_tier: "default",
            instructions: None,
            max_output_tokens: None,
            metadata: BTreeMap::new(),
            parallel_tool_calls: true,
            reasoning: ReasoningEcho::default(),
            temperature: None,
            text: TextEcho {
                format: TextFormat::Text {},
            },
            tool_choice: ToolChoiceBody::Mode("auto".to_owned()),
            tools: Vec::new(),
            top_logprobs: 0,
            top_p: None,
            user: None,
        }
    }
}

impl Echo {
    /// Bytes that it takes.
    pub(crate) fn len(&self) -> usize {
        serde_json::to_vec(self).map_or(0, |json| json.len())
    }

    /// The same with what was sampled by where the request did not say.
    pub(crate) fn with_sampling(self, params: &SamplingParams) -> Self {
        Self {
            temperature: self.temperature.or(Some(params.temperature)),
            top_p: self.top_p.or(Some(params.top_p)),
            ..self
        }
    }
}

// === impl ReasoningEcho ===

impl ReasoningEcho {
    pub(crate) fn new(effort: Option<String>) -> Self {
        Self {
            effort,
            summary: None,
        }
    }
}
