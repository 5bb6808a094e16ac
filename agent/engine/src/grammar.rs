//! Grammars: what an answer must be, such as JSON of a schema. A [`Grammar`] is compiled ([`Grammars::compile`]) before
//! its request is submitted, so that no request in the scheduler waits for one or fails for it. The request then has a
//! [`GrammarState`], which takes each token that was drawn; `masks` computes what may be drawn next.
//!
//! SGLang's grammar backends, by the crate `llguidance`; docs/decisions/0099.

mod cache;
mod calls;
mod compile;
mod error;
mod gbnf;
mod masks;
mod notation;
mod queue;
mod schema;
mod source;
mod state;
mod tags;
mod thought;
mod vocabulary;

pub use calls::{Arguments, Around, Calls, KeyedArguments, TextParameter, ToolCall};
pub use compile::Grammar;
pub use error::{COMPILE_TIME_MAX, GrammarError};
pub(crate) use masks::{MaskJob, MaskWorkers, Masks};
pub use queue::{COMPILES_WAITING_MAX, Grammars};
pub use source::{GrammarSource, REGEX_BYTES_MAX, SOURCE_BYTES_MAX};
pub(crate) use state::GrammarState;
pub use tags::{StructuralTag, Tag};
pub use thought::Thought;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod suite;
#[cfg(test)]
mod tests;
