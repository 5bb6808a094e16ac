//! The whole answer of a completion, in OpenAI's shape.

use super::logprobs::Logprobs;
use crate::http::generation::Answer;
use crate::http::openai::{FinishBody, Head, MetadataBody, Tally, TokenTexts, Usage, shown};
use serde::Serialize;

/// What an answer needs beside its text.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) head: Head,
    pub(crate) tally: Tally,
    /// Of every part: the prompt's text, if it is to be echoed.
    pub(crate) echoes: Option<Vec<String>>,
    /// Set when log probabilities were asked for.
    pub(crate) texts: Option<TokenTexts>,
    pub(crate) weight_version: String,
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
}

// === impl Completion ===

impl Completion {
    pub(crate) fn new(answered: Answered, answers: Vec<Answer>) -> Self {
        let Answered {
            head,
            mut tally,
            echoes,
            texts,
            weight_version,
        } = answered;
        let choice = |(index, answer): (usize, Answer)| {
            tally.count_answer(index, &answer);
            let echo = echoes.as_ref().map_or("", |echoes| &echoes[index]);
            Choice {
                index,
                text: format!("{echo}{}", answer.text),
                logprobs: texts.as_ref().map(|texts| logprobs(texts, echo, &answer)),
                finish: FinishBody::from(answer.finish.as_ref()),
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
            metadata: MetadataBody { weight_version },
        }
    }
}

fn logprobs(texts: &TokenTexts, echo: &str, answer: &Answer) -> Logprobs {
    let mut logprobs = Logprobs::default();
    logprobs.extend(texts, &answer.prompt_logprobs, 0);
    let answer_at = echo.chars().count();
    logprobs.extend(
        texts,
        shown(&answer.logprobs, answer.finish.as_ref()),
        answer_at,
    );
    logprobs
}
