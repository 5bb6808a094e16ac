//! `GrammarState`: how far the answer of one request has come in its grammar.

use super::compile::Compiled;
use super::masks::MaskJob;
use super::{Grammar, compile};
use crate::request::{FinishReason, StopMatch};
use llguidance::Matcher;
use parking_lot::Mutex;
use std::fmt::{Debug, Formatter, Result as FmtResult};
use std::sync::Arc;

pub(crate) struct GrammarState {
    grammar: Arc<Compiled>,
    /// Shared with the mask that is being computed, and with no other request.
    matcher: Arc<Mutex<Matcher>>,
}

// === impl GrammarState ===

impl GrammarState {
    /// Before the first token of an answer.
    pub(crate) fn new(grammar: Grammar) -> Self {
        Self {
            matcher: Arc::new(Mutex::new(grammar.0.start())),
            grammar: grammar.0,
        }
    }

    /// Takes the next token of the answer; says why it is the last, if it is. An end id ends the answer where the
    /// grammar may end, also one that the request ignores: nothing comes after it.
    pub(crate) fn take(&self, token: u32) -> Option<FinishReason> {
        let mut matcher = self.matcher.lock();
        let taken = if self.grammar.vocabulary().is_end(token) {
            match matcher.is_accepting() {
                Ok(true) => {
                    return Some(FinishReason::Stop {
                        matched: StopMatch::Token(token),
                    });
                }
                Ok(false) => Err("the answer may not end here".to_owned()),
                Err(error) => Err(compile::problem(&error)),
            }
        } else {
            let taken = matcher.consume_token(token);
            taken.map_err(|error| compile::problem(&error))
        };
        let problem = taken.err()?;
        Some(FinishReason::Abort {
            reason: format!("token {token} is not of the request's grammar: {problem}"),
            retriable: false,
        })
    }

    /// What computes the mask of the next token. Of what the grammar allows, ids that are `withheld` are left out, unless
    /// nothing else is left.
    pub(crate) fn mask_job(&self, withheld: Vec<u32>) -> MaskJob {
        MaskJob {
            grammar: self.grammar.clone(),
            matcher: self.matcher.clone(),
            withheld,
        }
    }

    /// Why no token could be drawn.
    pub(crate) fn why_none(&self) -> String {
        match self.matcher.lock().get_error() {
            Some(error) => format!(
                "the grammar allows no next token: {}; change it",
                compile::problem(&error)
            ),
            None => "no token that the grammar allows has a finite logit".to_owned(),
        }
    }
}

impl Debug for GrammarState {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        f.debug_struct("GrammarState").finish_non_exhaustive()
    }
}
