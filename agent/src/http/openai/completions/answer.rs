//! The complete answer of a completion, in OpenAI's shape.

use super::logprobs::{Logprobs, TextOffset};
use crate::http::openai::{FinishBody, Head, MetadataBody, Tally, TokenTexts, Usage, shown};
use crate::http::token_stream::Answer;
use serde::Serialize;

/// What an answer needs in addition to its text.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) head: Head,
    pub(crate) tally: Tally,
    /// Per part: the prompt's text, if it is echoed.
    pub(crate) echoes: Option<Vec<String>>,
    /// Set if log probabilities were requested.
    pub(crate) texts: Option<TokenTexts>,
    pub(crate) return_token_ids: bool,
    /// Special tokens produce no text in the answer.
    pub(crate) skip_special_tokens: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct Completion {
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
    text: String,
    logprobs: Option<Logprobs>,
    #[serde(flatten)]
    finish: FinishBody,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<Vec<u32>>,
}

// === impl Completion ===

impl Completion {
    pub(crate) fn new(answered: Answered, answers: Vec<Answer>) -> Self {
        let Answered {
            head,
            mut tally,
            echoes,
            texts,
            return_token_ids,
            skip_special_tokens,
        } = answered;
        let choice = |(index, answer): (usize, Answer)| {
            tally.count_answer(index, &answer);
            let echo = echoes.as_ref().map_or("", |echoes| &echoes[index]);
            Choice {
                index,
                text: format!("{echo}{}", answer.text),
                logprobs: texts.as_ref().map(|texts| {
                    let answer_at = echo.chars().count();
                    let offset = TextOffset::new(texts, answer_at, skip_special_tokens);
                    logprobs(texts, offset, &answer)
                }),
                finish: FinishBody::from(answer.finish.as_ref()),
                token_ids: return_token_ids.then_some(answer.token_ids),
            }
        };
        let choices = answers.into_iter().enumerate().map(choice).collect();
        Self {
            id: head.id,
            object: "text_completion",
            created: head.created,
            model: head.model,
            choices,
            usage: tally.usage(),
            metadata: head.metadata,
        }
    }
}

fn logprobs(texts: &TokenTexts, mut offset: TextOffset, answer: &Answer) -> Logprobs {
    let mut logprobs = Logprobs::default();
    let mut prompt_offset = TextOffset::new(texts, 0, true);
    logprobs.extend(texts, &answer.prompt_logprobs, &mut prompt_offset);
    let tokens = shown(&answer.logprobs, answer.finish.as_ref());
    logprobs.extend(texts, tokens, &mut offset);
    logprobs
}
