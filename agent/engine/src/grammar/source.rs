//! `GrammarSource`: what a grammar is made from, and the limits of that.

use super::calls::Calls;
use super::error::GrammarError;
use super::tags::StructuralTag;
use super::thought::Thought;
use serde::{Deserialize, Serialize};

/// What an answer must be, as a client writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrammarSource {
    /// JSON that a JSON schema describes, which is given as JSON text. Keywords that no JSON schema knows are
    /// annotations; one that a grammar cannot enforce is refused.
    JsonSchema(String),
    /// Any JSON object.
    JsonObject,
    /// Text that a regular expression matches as a whole, in the syntax of the crate `regex`.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// What rule `root` describes, in GBNF as llama.cpp and xgrammar write it.
    Ebnf(String),
    /// Text with tags in it.
    StructuralTag(StructuralTag),
    /// Calls of tools in a model's own form.
    Calls(Calls),
    /// Any of these behind what a model thinks.
    BehindThought(Thought, Box<GrammarSource>),
}

/// Longest source, in bytes.
pub const SOURCE_BYTES_MAX: usize = 1 << 20;
/// Longest regular expression, in bytes: a class of two, such as `\w`, takes 6 KiB while it is parsed.
pub const REGEX_BYTES_MAX: usize = 16 << 10;
const PROBLEM_BYTES_MAX: usize = 1024;

// === impl GrammarSource ===

impl GrammarSource {
    /// For messages.
    pub(super) fn what(&self) -> &'static str {
        match self {
            Self::JsonSchema(_) => "the JSON schema",
            Self::JsonObject => "the JSON object",
            Self::Regex(_) => "the regular expression",
            Self::Choice(_) => "the choice",
            Self::Ebnf(_) => "the EBNF grammar",
            Self::StructuralTag(_) => "the structural tag",
            Self::Calls(_) => "the tools",
            Self::BehindThought(_, source) => source.what(),
        }
    }

    /// In bytes.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::JsonSchema(text) | Self::Regex(text) | Self::Ebnf(text) => text.len(),
            Self::StructuralTag(tag) => tag.text().len(),
            Self::Calls(calls) => calls.text().len(),
            Self::BehindThought(thought, source) => thought.text().len() + source.len(),
            Self::JsonObject => 0,
            Self::Choice(texts) => texts.iter().map(String::len).sum(),
        }
    }

    pub(super) fn check_len(&self) -> Result<(), GrammarError> {
        let (what, len) = (self.what(), self.len());
        let max = match self {
            Self::Regex(_) => REGEX_BYTES_MAX,
            Self::BehindThought(_, source) => return source.check_len(),
            Self::JsonSchema(_)
            | Self::JsonObject
            | Self::Choice(_)
            | Self::Ebnf(_)
            | Self::StructuralTag(_)
            | Self::Calls(_) => SOURCE_BYTES_MAX,
        };
        if len > max {
            return Err(GrammarError::TooLong { what, len, max });
        }
        Ok(())
    }

    /// However long the names in the source that a problem repeats.
    pub(super) fn invalid(&self, problem: impl Into<String>) -> GrammarError {
        let mut problem = problem.into();
        problem.truncate(problem.floor_char_boundary(PROBLEM_BYTES_MAX));
        GrammarError::Invalid {
            what: self.what(),
            problem,
        }
    }
}
