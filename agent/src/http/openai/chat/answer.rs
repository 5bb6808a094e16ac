//! The complete answer of a chat, in OpenAI's shape.

use crate::http::choice::Finish;
use crate::http::openai::{
    FinishBody, Head, MetadataBody, Tally, TokenTexts, Usage, finite, shown,
};
use crate::http::token_stream::Answer;
use pd_engine::engine::TokenLogprob;
use serde::Serialize;

/// What an answer needs in addition to its text.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) head: Head,
    /// Set if log probabilities were requested.
    pub(crate) texts: Option<TokenTexts>,
    pub(crate) tally: Tally,
    pub(crate) weight_version: String,
    pub(crate) return_token_ids: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct ChatCompletion {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    choices: Vec<Choice>,
    usage: Usage,
    metadata: MetadataBody,
}

#[derive(Debug, Serialize)]
struct Choice {
    index: usize,
    message: Message,
    logprobs: Option<Logprobs>,
    #[serde(flatten)]
    finish: FinishBody,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<Vec<u32>>,
}

#[derive(Debug, Serialize)]
struct Message {
    role: &'static str,
    content: String,
    refusal: Option<String>,
}

/// `logprobs` of a choice, or of an event of one.
#[derive(Debug, Serialize)]
pub(crate) struct Logprobs {
    content: Vec<ContentLogprob>,
    refusal: Option<Vec<ContentLogprob>>,
}

#[derive(Debug, Serialize)]
struct ContentLogprob {
    #[serde(flatten)]
    token: TokenBody,
    top_logprobs: Vec<TokenBody>,
}

#[derive(Debug, Serialize)]
struct TokenBody {
    token: String,
    logprob: f32,
    bytes: Vec<u8>,
}

// === impl ChatCompletion ===

impl ChatCompletion {
    pub(crate) fn new(answered: Answered, answers: Vec<Answer>) -> Self {
        let Answered {
            head,
            texts,
            mut tally,
            weight_version,
            return_token_ids,
        } = answered;
        let choice = |(index, answer): (usize, Answer)| {
            tally.count_answer(index, &answer);
            Choice {
                index,
                logprobs: texts
                    .as_ref()
                    .map(|texts| Logprobs::new(texts, &answer.logprobs, answer.finish.as_ref())),
                finish: FinishBody::from(answer.finish.as_ref()),
                message: Message {
                    role: "assistant",
                    content: answer.text,
                    refusal: None,
                },
                token_ids: return_token_ids.then_some(answer.token_ids),
            }
        };
        let choices = answers.into_iter().enumerate().map(choice).collect();
        Self {
            id: head.id,
            object: "chat.completion",
            created: head.created,
            model: head.model,
            choices,
            usage: tally.usage(),
            metadata: MetadataBody { weight_version },
        }
    }
}

// === impl Logprobs ===

impl Logprobs {
    /// Those of the tokens that are part of the text.
    pub(crate) fn new(
        texts: &TokenTexts,
        tokens: &[TokenLogprob],
        finish: Option<&Finish>,
    ) -> Self {
        let content = shown(tokens, finish).iter();
        Self {
            content: content.map(|t| ContentLogprob::new(texts, t)).collect(),
            refusal: None,
        }
    }

    /// Whether it holds a token.
    pub(crate) fn has_tokens(&self) -> bool {
        !self.content.is_empty()
    }
}

// === impl ContentLogprob ===

impl ContentLogprob {
    fn new(texts: &TokenTexts, token: &TokenLogprob) -> Self {
        let body = |id, logprob| TokenBody {
            token: texts.text(id),
            logprob: finite(logprob),
            bytes: texts.bytes(id),
        };
        let sampled = token.logprob.unwrap_or(0.0);
        Self {
            token: body(token.token, sampled),
            top_logprobs: token.top.iter().map(|&(id, lp)| body(id, lp)).collect(),
        }
    }
}
