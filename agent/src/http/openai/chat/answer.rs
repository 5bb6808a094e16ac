//! The complete answer of a chat, in OpenAI's shape.

use super::reader::{ChatPart, ChoiceReader};
use crate::http::choice::{Delta, Finish};
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

/// A choice that is being collected.
#[derive(Debug)]
pub(crate) struct ChatAnswer {
    reader: ChoiceReader,
    answer: Answer,
    message: Message,
    reasoning_tokens: usize,
}

#[derive(Debug, Serialize)]
struct Message {
    role: &'static str,
    /// Null where the answer is nothing but calls.
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall>,
    refusal: Option<String>,
}

#[derive(Debug, Serialize)]
struct ToolCall {
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    function: Function,
}

#[derive(Debug, Serialize)]
struct Function {
    name: String,
    arguments: String,
}

/// `logprobs` of a choice, or of an event of one.
#[derive(Debug, Serialize)]
pub(crate) struct Logprobs {
    content: Vec<ContentLogprob>,
    refusal: Option<Vec<ContentLogprob>>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct ContentLogprob {
    #[serde(flatten)]
    token: TokenBody,
    top_logprobs: Vec<TokenBody>,
}

#[derive(Clone, Debug, Serialize)]
struct TokenBody {
    token: String,
    logprob: f32,
    bytes: Vec<u8>,
}

// === impl ChatCompletion ===

impl ChatCompletion {
    pub(crate) fn new(answered: Answered, answers: Vec<ChatAnswer>) -> Self {
        let Answered {
            head,
            texts,
            mut tally,
            return_token_ids,
        } = answered;
        let choice = |(index, answer): (usize, ChatAnswer)| {
            let ChatAnswer {
                reader,
                answer,
                message,
                reasoning_tokens,
            } = answer;
            tally.count_answer(index, &answer);
            tally.count_reasoning(reasoning_tokens);
            Choice {
                index,
                logprobs: texts
                    .as_ref()
                    .map(|texts| Logprobs::new(texts, &answer.logprobs, answer.finish.as_ref())),
                finish: reader.finish_body(answer.finish.as_ref()),
                message,
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
            metadata: head.metadata,
        }
    }
}

// === impl ChatAnswer ===

impl ChatAnswer {
    pub(crate) fn new(reader: ChoiceReader) -> Self {
        Self {
            reader,
            answer: Answer::default(),
            message: Message {
                role: "assistant",
                content: Some(String::new()),
                reasoning_content: None,
                tool_calls: Vec::new(),
                refusal: None,
            },
            reasoning_tokens: 0,
        }
    }

    pub(crate) fn extend(&mut self, delta: Delta) {
        let read = self.reader.read(&delta);
        self.reasoning_tokens += read.reasoning_tokens;
        for part in read.parts {
            self.message.extend(part);
        }
        if delta.finish.is_some() {
            self.message.end();
        }
        self.answer.extend(delta);
    }
}

// === impl Message ===

impl Message {
    fn extend(&mut self, part: ChatPart) {
        match part {
            ChatPart::Reasoning(more) => {
                let reasoning = self.reasoning_content.get_or_insert_default();
                reasoning.push_str(&more);
            }
            ChatPart::Text(more) => self.content.get_or_insert_default().push_str(&more),
            ChatPart::Call { id, name, .. } => self.tool_calls.push(ToolCall {
                id,
                kind: "function",
                function: Function {
                    name,
                    arguments: String::new(),
                },
            }),
            ChatPart::Arguments { index, more } => {
                self.tool_calls[index].function.arguments.push_str(&more);
            }
        }
    }

    fn end(&mut self) {
        if !self.tool_calls.is_empty() {
            self.content.take_if(|content| content.is_empty());
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
    pub(crate) fn new(texts: &TokenTexts, token: &TokenLogprob) -> Self {
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
