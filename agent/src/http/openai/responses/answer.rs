//! The answer in OpenAI's shape, while it grows and when it has ended.

use super::echo::Echo;
use super::events::Change;
use super::items::{Item, Items, Status};
use crate::http::choice::{Delta, Finish};
use crate::http::error::ApiError;
use crate::http::openai::chat::{ChoiceReader, ContentLogprob};
use crate::http::openai::{Head, ResponseUsage, Tally, TokenTexts, shown};
use pd_http::BodyShare;
use serde::{Serialize, Serializer};
use std::sync::Arc;

/// An answer that grows.
pub(crate) struct ResponseAnswer {
    head: Head,
    reader: ChoiceReader,
    /// Set if log probabilities were requested.
    texts: Option<TokenTexts>,
    tally: Tally,
    echo: Arc<Echo>,
    /// What `echo` holds of the room for bodies.
    _held: BodyShare,
    items: Items,
    finish: Option<Finish>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ResponseBody {
    id: String,
    object: &'static str,
    created_at: u64,
    pub(crate) status: Status,
    error: Option<ErrorBody>,
    incomplete_details: Option<IncompleteDetails>,
    model: String,
    output: Vec<Item>,
    /// Null until the answer has ended.
    usage: Option<ResponseUsage>,
    #[serde(flatten, serialize_with = "shared")]
    echo: Arc<Echo>,
}

#[derive(Debug, Serialize)]
struct ErrorBody {
    code: &'static str,
    message: String,
}

#[derive(Debug, Serialize)]
struct IncompleteDetails {
    reason: &'static str,
}

fn shared<S: Serializer>(echo: &Arc<Echo>, serializer: S) -> Result<S::Ok, S::Error> {
    echo.as_ref().serialize(serializer)
}

// === impl ResponseAnswer ===

impl ResponseAnswer {
    pub(crate) fn new(
        head: Head,
        reader: ChoiceReader,
        texts: Option<TokenTexts>,
        tally: Tally,
        echo: Echo,
        held: BodyShare,
    ) -> Self {
        Self {
            items: Items::new(&head.id),
            head,
            reader,
            texts,
            tally,
            echo: Arc::new(echo),
            _held: held,
            finish: None,
        }
    }

    /// Adds a step; returns what it changed.
    pub(crate) fn extend(&mut self, delta: Delta) -> Vec<Change> {
        self.tally.count(0, &delta);
        let read = self.reader.read(&delta);
        self.tally.count_reasoning(read.reasoning_tokens);
        if let Some(texts) = &self.texts {
            let tokens = shown(&delta.logprobs, delta.finish.as_ref());
            let of_text = read.text_tokens.iter().filter_map(|&idx| tokens.get(idx));
            let logprobs = of_text.map(|token| ContentLogprob::new(texts, token));
            self.items.add_logprobs(logprobs.collect());
        }
        let mut changes = Vec::new();
        for part in read.parts {
            self.items.add(part, &mut changes);
        }
        self.finish = delta.finish;
        if self.finish.is_some() {
            self.items.end(self.status(), &mut changes);
        }
        changes
    }

    /// How the answer ended.
    fn status(&self) -> Status {
        match self.finish {
            Some(Finish::Length) => Status::Incomplete,
            Some(Finish::Stop(_)) | None => Status::Completed,
        }
    }

    /// The whole answer.
    pub(crate) fn ended(&self) -> ResponseBody {
        let status = self.status();
        let is_cut = status == Status::Incomplete;
        let reason = "max_output_tokens";
        ResponseBody {
            incomplete_details: is_cut.then_some(IncompleteDetails { reason }),
            usage: Some(ResponseUsage::from(self.tally.usage())),
            ..self.body(status)
        }
    }

    /// As far as it came, with what went wrong then.
    pub(crate) fn failed(&self, failure: &ApiError) -> ResponseBody {
        ResponseBody {
            error: Some(ErrorBody {
                code: "server_error",
                message: failure.message.clone(),
            }),
            ..self.body(Status::Failed)
        }
    }

    /// The answer as far as it is.
    pub(crate) fn body(&self, status: Status) -> ResponseBody {
        ResponseBody {
            id: self.head.id.clone(),
            object: "response",
            created_at: self.head.created,
            status,
            error: None,
            incomplete_details: None,
            model: self.head.model.clone(),
            output: self.items.all().to_vec(),
            usage: None,
            echo: Arc::clone(&self.echo),
        }
    }
}
