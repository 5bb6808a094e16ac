//! `GrammarState`: how far the answer of one request has come in its grammar.

use super::compile::{self, Compiled, Grammar};
use super::masks::MaskJob;
use super::source::GrammarSource;
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

    pub(crate) fn source(&self) -> &GrammarSource {
        self.grammar.source()
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

    /// What computes the mask of the token after `ahead`, which the grammar allows. Of what it allows next, ids that are
    /// `withheld` are left out, unless nothing else is left.
    pub(crate) fn mask_job(&self, ahead: &[u32], withheld: Vec<u32>) -> MaskJob {
        MaskJob {
            grammar: self.grammar.clone(),
            matcher: self.matcher.clone(),
            ahead: ahead.to_vec(),
            withheld,
        }
    }

    /// Up to `max` tokens that must come next.
    pub(crate) fn forced(&self, max: usize) -> Vec<u32> {
        if max == 0 {
            return Vec::new();
        }
        let mut tokens = self.matcher.lock().compute_ff_tokens();
        tokens.truncate(max);
        tokens
    }

    /// How many of `drafts` the grammar allows, one after another. None behind an end.
    pub(crate) fn allowed(&self, drafts: &[u32]) -> usize {
        let vocabulary = self.grammar.vocabulary();
        let ends = drafts.iter().position(|token| !vocabulary.is_text(*token));
        let drafts = &drafts[..ends.unwrap_or(drafts.len())];
        self.matcher.lock().validate_tokens(drafts).unwrap_or(0)
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
