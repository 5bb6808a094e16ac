//! An answer from its first piece of text to its last.

use crate::harmony::Harmony;
use crate::reasoning::{Reasoning, ReasoningForm};
use crate::tools::{ToolForm, ToolReader};
use crate::types::ToolTypes;
use crate::{Piece, put};

/// What an answer goes on from.
#[derive(Clone, Copy, Debug)]
pub enum Prompt<'a> {
    /// A prompt that ends with the opening of an answer.
    Opened(&'a str),
    /// A prompt that ends inside its last message, with this text of it.
    Continued(&'a str),
}

/// Takes one answer apart, in the forms that its model writes.
#[derive(Debug)]
pub struct AnswerReader {
    parts: Parts,
}

#[derive(Debug)]
enum Parts {
    /// Reasoning, then text and calls.
    OneAfterAnother {
        reasoning: Option<Reasoning>,
        tools: Option<Box<dyn ToolReader>>,
    },
    /// Channels, which say of each message what it is.
    Channels(Harmony),
}

// === impl AnswerReader ===

impl AnswerReader {
    /// For an answer in which reasoning and calls are looked for where a form is given; `types` are those of the
    /// request's tools.
    pub fn new(
        reasoning: Option<ReasoningForm>,
        tools: Option<ToolForm>,
        types: ToolTypes,
        prompt: Prompt<'_>,
    ) -> Self {
        let channels =
            reasoning == Some(ReasoningForm::Harmony) || tools == Some(ToolForm::Harmony);
        let parts = if channels {
            Parts::Channels(Harmony::behind(prompt, types))
        } else {
            Parts::OneAfterAnother {
                reasoning: reasoning.and_then(|form| Reasoning::new(form, prompt)),
                tools: tools.and_then(|form| form.reader(types)),
            }
        };
        Self { parts }
    }

    /// Whether what comes next is reasoning, as far as is known.
    pub fn is_reasoning(&self) -> bool {
        match &self.parts {
            Parts::Channels(channels) => channels.is_reasoning(),
            Parts::OneAfterAnother { reasoning, .. } => {
                reasoning.as_ref().is_some_and(Reasoning::is_inside)
            }
        }
    }

    /// Takes more of the answer, and adds what is sure now to `pieces`.
    pub fn push(&mut self, text: &str, pieces: &mut Vec<Piece>) {
        match &mut self.parts {
            Parts::Channels(channels) => channels.push(text, pieces),
            Parts::OneAfterAnother { reasoning, tools } => match reasoning {
                None => read(tools, text, pieces),
                Some(reasoning) => {
                    let mut behind = String::new();
                    reasoning.push(text, pieces, &mut behind);
                    read(tools, &behind, pieces);
                }
            },
        }
    }

    /// The answer has ended: adds what was held back because more might have followed.
    pub fn end(&mut self, pieces: &mut Vec<Piece>) {
        match &mut self.parts {
            Parts::Channels(channels) => channels.end(pieces),
            Parts::OneAfterAnother { reasoning, tools } => {
                if let Some(reasoning) = reasoning {
                    let mut behind = String::new();
                    reasoning.end(pieces, &mut behind);
                    read(tools, &behind, pieces);
                }
                if let Some(tools) = tools {
                    tools.end(pieces);
                }
            }
        }
    }
}

fn read(tools: &mut Option<Box<dyn ToolReader>>, text: &str, pieces: &mut Vec<Piece>) {
    match tools {
        Some(tools) => tools.push(text, pieces),
        None => put(pieces, Piece::Text(text.to_owned())),
    }
}
