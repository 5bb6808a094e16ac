//! `Vocabulary`: a model's tokens as grammars see them, in a trie by their bytes.

use crate::text::Tokenizer;
use llguidance::ParserFactory;
use llguidance::api::ParserLimits;
use llguidance::toktrie::{TokEnv, TokRxInfo, TokTrie, TokenizerEnv};
use pd_compute::mask_words;
use std::fmt::{Debug, Formatter, Result as FmtResult};
use std::sync::Arc;

pub(super) struct Vocabulary {
    pub(super) factory: ParserFactory,
    /// All of them are allowed where an answer may end.
    end_ids: Vec<u32>,
    /// Names of special tokens, longest first.
    specials: Vec<(String, u32)>,
    /// Tokens of the model, which may be more than the tokenizer's; those are never allowed.
    size: usize,
}

/// Cuts text that a grammar forces as the model has learned it: the grammar then allows the first of these tokens alone.
struct Cutter {
    trie: TokTrie,
    tokenizer: Arc<Tokenizer>,
}

/// Bytes of forced text that are cut. What is behind them is cut when it is next.
const CUT_BYTES: usize = 256;

/// Longest token that grammars allow, in bytes: as deep as the trie may be, with the mark of special tokens.
const TOKEN_BYTES_MAX: usize = 1000;

/// Of one mask and of one grammar. A mask takes 14 units of lexer fuel and 20 items each microsecond at most, so 17 ms;
/// a state of the lexer takes one or two KiB, so a grammar 100 MiB. Source: the crate's own `ParserLimits`.
const LIMITS: ParserLimits = ParserLimits {
    max_items_in_row: 2_000,
    initial_lexer_fuel: 1_000_000,
    step_lexer_fuel: 200_000,
    step_max_items: 50_000,
    max_lexer_states: 50_000,
    max_grammar_size: 500_000,
    precompute_large_lexemes: true,
    verbose_errors: false,
};

// === impl Vocabulary ===

impl Vocabulary {
    /// # Errors
    /// Says what the crate has against these tokens.
    ///
    /// # Panics
    /// If there is no end id, or one is beyond the vocabulary.
    pub(super) fn new(
        tokenizer: &Arc<Tokenizer>,
        size: u32,
        end_ids: &[u32],
    ) -> Result<Self, String> {
        let words: Vec<_> = (0..size)
            .map(|id| bytes_of(tokenizer, id, end_ids))
            .collect();
        let first_end = *end_ids.first().expect("grammars are refused without one");
        let trie = TokTrie::from(&TokRxInfo::new(size, first_end), &words);
        let env: TokEnv = Arc::new(Cutter {
            trie: trie.with_eos_tokens(end_ids),
            tokenizer: tokenizer.clone(),
        });
        let factory = ParserFactory::new_simple(&env);
        let mut factory = factory.map_err(|error| error.to_string())?;
        factory.quiet();
        *factory.limits_mut() = LIMITS;
        let name = |id| (tokenizer.decode(&[id], false), id);
        let mut specials: Vec<_> = (0..size)
            .filter(|id| tokenizer.is_special(*id))
            .map(name)
            .filter(|(name, _)| !name.is_empty())
            .collect();
        specials.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        Ok(Self {
            specials,
            factory,
            end_ids: end_ids.to_vec(),
            size: size as usize,
        })
    }

    pub(super) fn is_end(&self, token: u32) -> bool {
        self.end_ids.contains(&token)
    }

    /// Whether `token` is one of the model's, and no end.
    pub(super) fn is_text(&self, token: u32) -> bool {
        (token as usize) < self.size && !self.is_end(token)
    }

    /// Where the first special token is named in `text`, or its end; its id and the length of its name, if there is one.
    pub(super) fn find_special(&self, text: &str) -> (usize, Option<(u32, usize)>) {
        let named = self.specials.iter();
        let named = named.filter_map(|(name, id)| Some((text.find(name)?, *id, name.len())));
        // Of several that begin there, the first is the longest.
        match named.min_by_key(|(at, ..)| *at) {
            Some((at, id, len)) => (at, Some((id, len))),
            None => (text.len(), None),
        }
    }

    /// Words of a mask.
    pub(super) fn mask_words(&self) -> usize {
        mask_words(self.size)
    }

    /// A mask of just the model's tokens; those that are missing are not allowed.
    pub(super) fn words_of(&self, mask: &[u32]) -> Vec<u32> {
        let mut words = mask.to_vec();
        words.resize(self.mask_words(), 0);
        let rest = self.size % 32;
        if let Some(last) = words.last_mut().filter(|_| rest > 0) {
            *last &= (1 << rest) - 1;
        }
        words
    }
}

// === impl Cutter ===

impl Cutter {
    /// As the tokenizer cuts a text that begins with `text`; none if its tokens have other bytes, such as a space in front, or
    /// those of a special token of that name.
    fn cut(&self, text: &[u8]) -> Option<Vec<u32>> {
        let text = std::str::from_utf8(text).ok()?;
        let tokens = self.tokenizer.encode(text, false).ok()?;
        let is_known = |token: &u32| (*token as usize) < self.trie.vocab_size();
        let is_same =
            tokens.iter().all(is_known) && self.trie.decode_raw(&tokens) == text.as_bytes();
        is_same.then_some(tokens)
    }
}

impl TokenizerEnv for Cutter {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    /// Of the text's beginning.
    fn tokenize_bytes(&self, text: &[u8]) -> Vec<u32> {
        let first = &text[..CUT_BYTES.min(text.len())];
        let whole = first
            .utf8_chunks()
            .next()
            .map_or(0, |chunk| chunk.valid().len());
        let is_cut = whole > 0 && first.len() < text.len();
        let first = if is_cut { &first[..whole] } else { first };
        self.cut(first)
            .unwrap_or_else(|| self.trie.greedy_tokenize(first))
    }

    /// So that it is asked what is forced.
    fn tokenize_is_canonical(&self) -> bool {
        true
    }
}

/// Special tokens and ends have a mark in front that no text has, so that none is drawn as text.
fn bytes_of(tokenizer: &Tokenizer, id: u32, end_ids: &[u32]) -> Vec<u8> {
    let mut bytes = tokenizer.token_bytes(id);
    if bytes.len() > TOKEN_BYTES_MAX {
        bytes.clear();
    }
    if tokenizer.is_special(id) || end_ids.contains(&id) {
        bytes.insert(0, TokTrie::SPECIAL_TOKEN_MARKER);
    }
    bytes
}

impl Debug for Vocabulary {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        f.debug_struct("Vocabulary")
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}
