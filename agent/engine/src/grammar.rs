//! Grammars: what an answer must be, such as JSON of a schema. A [`Grammar`] is compiled ([`Grammars::compile`]) before
//! its request is submitted, so that no request in the scheduler waits for one or fails for it. The request then has a
//! [`GrammarState`], which takes each token that was drawn; `masks` computes what may be drawn next.
//!
//! SGLang's grammar backends, by the crate `llguidance`; docs/decisions/0099.

mod cache;
mod calls;
mod compile;
mod gbnf;
mod masks;
mod queue;
mod schema;
mod state;
mod tags;
mod thought;
mod vocabulary;

use compile::Compiled;
use serde::{Deserialize, Serialize};
use std::fmt::{Debug, Formatter, Result as FmtResult};
use std::sync::Arc;

pub use calls::{Arguments, Around, Calls, KeyedArguments, TextParameter, ToolCall};
pub(crate) use masks::{MaskJob, MaskWorkers, Masks};
pub use queue::{COMPILE_TIME_MAX, COMPILES_WAITING_MAX, Grammars};
pub(crate) use state::GrammarState;
pub use tags::{StructuralTag, Tag};
pub use thought::Thought;

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

/// A compiled grammar of one engine. Clones share it.
#[derive(Clone)]
pub struct Grammar(Arc<Compiled>);

/// Why there is no grammar.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    #[error("{what} has {len} bytes; give at most {max}")]
    TooLong {
        what: &'static str,
        len: usize,
        max: usize,
    },
    /// The client's fault: the source is wrong, or cannot be enforced.
    #[error("{what} cannot constrain an answer: {problem}")]
    Invalid { what: &'static str, problem: String },
    #[error(
        "{what} took more than {} s to compile; make it smaller",
        COMPILE_TIME_MAX.as_secs()
    )]
    TooSlow { what: &'static str },
    #[error("this model names no end token, so an answer by a grammar could not end; leave it out")]
    NoEnd,
    #[error("too many grammars wait to be compiled; send the request again or elsewhere")]
    Busy,
    #[error("the engine has stopped")]
    Stopped,
}

/// Longest source, in bytes.
pub const SOURCE_BYTES_MAX: usize = 1 << 20;
/// Longest regular expression, in bytes: a class of two, such as `\w`, takes 6 KiB while it is parsed.
pub const REGEX_BYTES_MAX: usize = 16 << 10;
const PROBLEM_BYTES_MAX: usize = 1024;

// === impl GrammarSource ===

impl GrammarSource {
    /// For messages.
    fn what(&self) -> &'static str {
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
    fn len(&self) -> usize {
        match self {
            Self::JsonSchema(text) | Self::Regex(text) | Self::Ebnf(text) => text.len(),
            Self::StructuralTag(tag) => tag.text().len(),
            Self::Calls(calls) => calls.text().len(),
            Self::BehindThought(thought, source) => thought.text().len() + source.len(),
            Self::JsonObject => 0,
            Self::Choice(texts) => texts.iter().map(String::len).sum(),
        }
    }

    fn check_len(&self) -> Result<(), GrammarError> {
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
    fn invalid(&self, problem: impl Into<String>) -> GrammarError {
        let mut problem = problem.into();
        problem.truncate(problem.floor_char_boundary(PROBLEM_BYTES_MAX));
        GrammarError::Invalid {
            what: self.what(),
            problem,
        }
    }
}

// === impl GrammarError ===

impl GrammarError {
    /// The same grammar may be compiled later, or by another worker (HTTP 503); otherwise it is the client's fault (400).
    pub fn is_retriable(&self) -> bool {
        matches!(self, Self::Busy | Self::Stopped)
    }
}

// === impl Grammar ===

impl Debug for Grammar {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        f.debug_struct("Grammar").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod suite;
#[cfg(test)]
mod tests;
