//! Why there is no grammar.

use std::time::Duration;

/// For one source; what takes longer is refused.
pub const COMPILE_TIME_MAX: Duration = Duration::from_secs(2);

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

// === impl GrammarError ===

impl GrammarError {
    /// The same grammar may be compiled later, or by another worker (HTTP 503); otherwise it is the client's fault (400).
    pub fn is_retriable(&self) -> bool {
        matches!(self, Self::Busy | Self::Stopped)
    }
}
