//! A complete or partial answer of `/generate`, in SGLang's shape.

use crate::http::choice::Finish;
use crate::http::openai::{TokenTexts, finite};
use crate::http::token_stream::Answer;
use pd_engine::engine::{StopMatch, TokenLogprob};
use serde::Serialize;
use std::sync::Arc;
use tokio::time::Instant;

/// What the answers of one part need in addition to its tokens.
#[derive(Debug)]
pub(crate) struct Meta {
    pub(crate) id: String,
    pub(crate) prompt_tokens: usize,
    pub(crate) return_logprob: bool,
    pub(crate) top_logprobs: bool,
    pub(crate) token_ids_logprob: Arc<[u32]>,
    /// Set by `return_text_in_logprobs`.
    pub(crate) texts: Option<TokenTexts>,
    pub(crate) weight_version: String,
    pub(crate) started: Instant,
}

#[derive(Debug, Serialize)]
pub(crate) struct GenerateAnswer {
    text: String,
    output_ids: Vec<u32>,
    meta_info: MetaInfo,
    /// In the events of a batch: the index of the part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) index: Option<usize>,
}

#[derive(Debug, Serialize)]
struct MetaInfo {
    id: String,
    finish_reason: Option<FinishReason>,
    prompt_tokens: usize,
    completion_tokens: usize,
    cached_tokens: u32,
    /// Of an engine that speculates.
    #[serde(skip_serializing_if = "Option::is_none")]
    spec_verify_ct: Option<u32>,
    weight_version: String,
    e2e_latency: f64,
    #[serde(flatten)]
    logprobs: Option<Logprobs>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum FinishReason {
    Stop { matched: Matched },
    Length { length: usize },
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Matched {
    Token(u32),
    Text(String),
}

#[derive(Debug, Serialize)]
struct Logprobs {
    input_token_logprobs: Vec<Tuple>,
    output_token_logprobs: Vec<Tuple>,
    #[serde(flatten)]
    top: Option<TopLogprobs>,
    #[serde(flatten)]
    token_ids: Option<TokenIdsLogprobs>,
}

#[derive(Debug, Serialize)]
struct TopLogprobs {
    input_top_logprobs: Vec<Option<Vec<Tuple>>>,
    output_top_logprobs: Vec<Option<Vec<Tuple>>>,
}

/// Null where nothing is known: at the first token of a prompt, and on decode at the first of an answer.
#[derive(Debug, Serialize)]
struct TokenIdsLogprobs {
    input_token_ids_logprobs: Vec<Option<Vec<Tuple>>>,
    output_token_ids_logprobs: Vec<Option<Vec<Tuple>>>,
}

/// Log probability, token id, and the token's text if requested.
type Tuple = (Option<f32>, u32, Option<String>);

// === impl GenerateAnswer ===

impl GenerateAnswer {
    pub(crate) fn new(meta: &Meta, answer: &Answer) -> Self {
        Self {
            text: answer.text.clone(),
            output_ids: answer.token_ids.clone(),
            meta_info: MetaInfo {
                id: meta.id.clone(),
                finish_reason: answer.finish.as_ref().map(|f| FinishReason::new(f, answer)),
                prompt_tokens: meta.prompt_tokens,
                completion_tokens: answer.token_ids.len(),
                cached_tokens: answer.cached_tokens,
                spec_verify_ct: answer.spec_verify_ct,
                weight_version: meta.weight_version.clone(),
                e2e_latency: meta.started.elapsed().as_secs_f64(),
                logprobs: meta.return_logprob.then(|| Logprobs::new(meta, answer)),
            },
            index: None,
        }
    }
}

// === impl FinishReason ===

impl FinishReason {
    fn new(finish: &Finish, answer: &Answer) -> Self {
        match finish {
            Finish::Length => Self::Length {
                length: answer.token_ids.len(),
            },
            Finish::Stop(StopMatch::Token(id)) => Self::Stop {
                matched: Matched::Token(*id),
            },
            Finish::Stop(StopMatch::Text(text) | StopMatch::Pattern { regex: text, .. }) => {
                Self::Stop {
                    matched: Matched::Text(text.clone()),
                }
            }
        }
    }
}

// === impl Logprobs ===

impl Logprobs {
    fn new(meta: &Meta, answer: &Answer) -> Self {
        let tuples = |tokens: &[TokenLogprob]| {
            let sampled = tokens.iter().map(|t| meta.tuple(t.token, t.logprob));
            sampled.collect()
        };
        let top = |tokens: &[TokenLogprob]| {
            let likeliest = tokens.iter().map(|t| {
                let top = t.top.iter().map(|&(id, lp)| meta.tuple(id, Some(lp)));
                t.logprob.map(|_| top.collect())
            });
            likeliest.collect()
        };
        let asked = |tokens: &[TokenLogprob]| {
            let asked = tokens.iter().map(|t| {
                let asked = meta.token_ids_logprob.iter().zip(&t.asked);
                let asked = asked.map(|(&id, &lp)| meta.tuple(id, Some(lp)));
                (!t.asked.is_empty()).then(|| asked.collect())
            });
            asked.collect()
        };
        Self {
            input_token_logprobs: tuples(&answer.prompt_logprobs),
            output_token_logprobs: tuples(&answer.logprobs),
            top: meta.top_logprobs.then(|| TopLogprobs {
                input_top_logprobs: top(&answer.prompt_logprobs),
                output_top_logprobs: top(&answer.logprobs),
            }),
            token_ids: (!meta.token_ids_logprob.is_empty()).then(|| TokenIdsLogprobs {
                input_token_ids_logprobs: asked(&answer.prompt_logprobs),
                output_token_ids_logprobs: asked(&answer.logprobs),
            }),
        }
    }
}

// === impl Meta ===

impl Meta {
    fn tuple(&self, id: u32, logprob: Option<f32>) -> Tuple {
        let text = self.texts.as_ref().map(|texts| texts.text(id));
        (logprob.map(finite), id, text)
    }
}
