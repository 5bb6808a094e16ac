//! Fields that every answer and every event share.

use super::request::check_rid;
use crate::http::choice::Finish;
use crate::http::error::ApiError;
use crate::service::{App, Service};
use pd_engine::engine::StopMatch;
use serde::Serialize;
use std::time::{SystemTime, UNIX_EPOCH};

/// The id, time, model and weights of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) id: String,
    pub(crate) created: u64,
    pub(crate) model: String,
    /// Whole answers have it, and the last event of each choice.
    pub(crate) metadata: MetadataBody,
}

/// `finish_reason` and SGLang's `matched_stop`; both null until the end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct FinishBody {
    finish_reason: Option<&'static str>,
    matched_stop: Option<MatchedStop>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum MatchedStop {
    Token(u32),
    Text(String),
}

/// SGLang's.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct MetadataBody {
    pub(crate) weight_version: String,
}

// === impl Head ===

impl Head {
    /// The id is the request's `rid`, or drawn.
    ///
    /// # Errors
    /// 400 for an id that is too long.
    pub(crate) fn new(
        app: &App,
        service: &Service,
        prefix: &str,
        rid: Option<String>,
    ) -> Result<Self, ApiError> {
        rid.as_deref().map_or(Ok(()), check_rid)?;
        let created = SystemTime::now().duration_since(UNIX_EPOCH);
        Ok(Self {
            id: rid.unwrap_or_else(|| format!("{prefix}{:032x}", rand::random::<u128>())),
            created: created.map_or(0, |since| since.as_secs()),
            model: app.served_model_name.clone(),
            metadata: MetadataBody {
                weight_version: service.engine.info().weight_version.clone(),
            },
        })
    }
}

// === impl FinishBody ===

impl From<Option<&Finish>> for FinishBody {
    fn from(finish: Option<&Finish>) -> Self {
        let (finish_reason, matched_stop) = match finish {
            None => (None, None),
            Some(Finish::Length) => (Some("length"), None),
            Some(Finish::Stop(matched)) => (Some("stop"), Some(MatchedStop::from(matched))),
        };
        Self {
            finish_reason,
            matched_stop,
        }
    }
}

impl FinishBody {
    /// Of an answer that called tools: it ended for their sake, unless it was cut.
    pub(crate) fn of_calls(finish: Option<&Finish>) -> Self {
        match finish {
            Some(Finish::Stop(_)) => Self {
                finish_reason: Some("tool_calls"),
                matched_stop: None,
            },
            Some(Finish::Length) | None => Self::from(finish),
        }
    }
}

impl From<&StopMatch> for MatchedStop {
    fn from(matched: &StopMatch) -> Self {
        match matched {
            StopMatch::Token(id) => Self::Token(*id),
            StopMatch::Text(text) | StopMatch::Pattern { regex: text, .. } => {
                Self::Text(text.clone())
            }
        }
    }
}
