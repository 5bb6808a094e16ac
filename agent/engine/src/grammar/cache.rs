//! The grammars that were compiled last, by their sources.

use super::compile::Grammar;
use super::source::GrammarSource;
use sha2::{Digest, Sha256};
use std::collections::HashMap;

/// Of a source.
pub(super) type Key = [u8; 32];

#[derive(Debug, Default)]
pub(super) struct Cache {
    entries: HashMap<Key, Entry>,
    /// Grows with each use.
    now: u64,
}

#[derive(Debug)]
struct Entry {
    grammar: Grammar,
    used: u64,
}

const ENTRIES_MAX: usize = 256;
/// Of the lexers and sources of all entries. Lexers grow while answers use them, so this is checked when one comes in.
const BYTES_MAX: usize = 256 << 20;
/// A lexer that has grown beyond this is near the end of its states, which it shares with all requests of its grammar.
/// The next request begins with a new one.
const LEXER_BYTES_MAX: usize = 32 << 20;

// === impl Cache ===

impl Cache {
    pub(super) fn get(&mut self, key: &Key) -> Option<Grammar> {
        let bytes = |entry: &Entry| entry.grammar.0.lexer_bytes();
        if self
            .entries
            .get(key)
            .is_some_and(|entry| bytes(entry) > LEXER_BYTES_MAX)
        {
            self.entries.remove(key);
        }
        self.now += 1;
        let entry = self.entries.get_mut(key)?;
        entry.used = self.now;
        Some(entry.grammar.clone())
    }

    /// Puts a grammar in, and takes out those that were used longest ago where there are too many.
    pub(super) fn insert(&mut self, key: Key, grammar: Grammar) {
        self.now += 1;
        let used = self.now;
        self.entries.insert(key, Entry { grammar, used });
        let mut bytes: usize = self.entries.values().map(|e| e.grammar.0.bytes()).sum();
        while self.entries.len() > ENTRIES_MAX || (bytes > BYTES_MAX && self.entries.len() > 1) {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used);
            let oldest = *oldest.expect("there are too many").0;
            let entry = self.entries.remove(&oldest);
            bytes -= entry.map_or(0, |entry| entry.grammar.0.bytes()).min(bytes);
        }
    }
}

/// Sources that mean the same to the compiler are equal here if they are equal as text.
pub(super) fn key(source: &GrammarSource) -> Key {
    let mut digest = Sha256::new();
    digest.update(source.what());
    match source {
        GrammarSource::JsonObject => {}
        GrammarSource::JsonSchema(text)
        | GrammarSource::Regex(text)
        | GrammarSource::Ebnf(text) => digest.update(text),
        GrammarSource::StructuralTag(tag) => digest.update(tag.text()),
        GrammarSource::Calls(calls) => digest.update(calls.text()),
        GrammarSource::BehindThought(thought, source) => {
            digest.update("behind a thought");
            digest.update(Sha256::digest(thought.text()));
            digest.update(key(source));
        }
        GrammarSource::Choice(texts) => {
            for text in texts {
                digest.update(text.len().to_le_bytes());
                digest.update(text);
            }
        }
    }
    digest.finalize().into()
}

#[cfg(test)]
mod tests;
