//! What a model thinks before an answer by a grammar: any text, up to the mark that ends it.

use super::tags::{lark_of, until};
use super::vocabulary::Vocabulary;
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use serde::{Deserialize, Serialize};

/// The marks around a thought.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thought {
    /// Begins it, where the prompt has not: then there may be none.
    pub open: Option<String>,
    /// Ends it; a text, or special tokens with what comes behind them.
    pub close: String,
    /// Ahead of the answer, with a thought or without.
    pub lead: String,
}

/// The name of what comes behind it.
const ANSWER: &str = "answer";

// === impl Thought ===

impl Thought {
    pub(super) fn text(&self) -> String {
        serde_json::to_string(self).expect("it is of texts")
    }
}

/// # Errors
/// When the mark that ends it has special tokens elsewhere than in front.
pub(super) fn in_front_of(
    thought: &Thought,
    mut answer: TopLevelGrammar,
    vocabulary: &Vocabulary,
) -> Result<TopLevelGrammar, String> {
    let Thought { open, close, lead } = thought;
    let until_close = until("thought", close, vocabulary)?;
    // Models write a line break or two behind it.
    let thought = match open {
        None => "thought BREAK".to_owned(),
        Some(open) => format!("({} thought BREAK)?", lark_of(open, vocabulary)),
    };
    let lead = lark_of(lead, vocabulary);
    let lark = format!(
        "start: {thought} {lead} @{ANSWER}\n{until_close}\nBREAK: /\\n{{0,2}}/\nANY: /(?s:.*)/\n"
    );
    let first = answer.grammars.first_mut();
    first.expect("a grammar has one").name = Some(ANSWER.to_owned());
    let front = GrammarWithLexer::from_lark(lark);
    answer.grammars.insert(0, front);
    Ok(answer)
}

#[cfg(test)]
mod tests;
