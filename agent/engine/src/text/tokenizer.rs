//! `Tokenizer`: text to token ids by the `tokenizers` crate, ids to bytes by our own table.
//! [`gguf`] builds one from a GGUF file's vocabulary; a Hugging Face folder contains
//! `tokenizer.json` and names its special tokens in `tokenizer_config.json`.

mod gguf;
mod hf;
mod length;

use super::detokenizer::Utf8Assembler;
use super::token_bytes::{Spelling, TokenBytes};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use tokenizers::{Model, OffsetType, PreTokenizer};

pub use length::{TextLength, TextTooLong};

/// Text to ids and back.
#[derive(Debug)]
pub struct Tokenizer {
    encoder: tokenizers::Tokenizer,
    token_bytes: TokenBytes,
    special: HashSet<u32>,
    /// Prepended to a prompt by [`Self::encode`], if the encoder does not do so itself.
    prompt_prefix: Option<u32>,
    /// A text's first space belongs to the vocabulary, not to the author.
    drops_first_space: bool,
    bos_token: Option<String>,
    eos_token: Option<String>,
}

/// Token ids are below this, as in the model's own configuration.
const IDS_MAX: usize = 1 << 22;

/// Why a vocabulary is unusable.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    #[error("cannot read {path}: {source}; a model folder needs its tokenizer.json")]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{path} is not valid: {reason}; fetch it again")]
    Invalid { path: PathBuf, reason: String },
    #[error("{path}: {key} is {value}, which is not supported; supported: {supported}")]
    Unsupported {
        path: PathBuf,
        key: &'static str,
        value: String,
        supported: &'static str,
    },
}

/// Why a text could not be converted to token ids.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    #[error("the text cannot be tokenised: {reason}")]
    Unwritable { reason: String },
    #[error(transparent)]
    TooLong(#[from] TextTooLong),
    #[error("tokenising was cancelled")]
    Cancelled,
}

/// The parts of a tokenizer, after its file was read.
struct Parts {
    encoder: tokenizers::Tokenizer,
    spelling: Spelling,
    drops_first_space: bool,
    prompt_prefix: Option<u32>,
    bos_token: Option<String>,
    eos_token: Option<String>,
}

// === impl Tokenizer ===

impl Tokenizer {
    /// # Errors
    /// Says which id is beyond what a table of all ids can hold.
    fn new(parts: Parts) -> Result<Self, String> {
        let Parts {
            encoder,
            spelling,
            drops_first_space,
            prompt_prefix,
            bos_token,
            eos_token,
        } = parts;
        let added = encoder.get_added_tokens_decoder();
        let special: HashSet<u32> = added
            .iter()
            .filter(|(_, token)| token.special)
            .map(|(id, _)| *id)
            .collect();
        let len = encoder.get_vocab_size(true);
        let highest = added.keys().max().map_or(0, |id| *id as usize + 1);
        let end = len.max(highest);
        if end > IDS_MAX {
            return Err(format!(
                "it has a token {}; ids are below {IDS_MAX}",
                end - 1
            ));
        }
        let ids = 0..u32::try_from(end).expect("they are few");
        let token_bytes = TokenBytes::new(ids.map(|id| encoder.id_to_token(id)), spelling);
        Ok(Self {
            encoder,
            token_bytes,
            special,
            prompt_prefix,
            drops_first_space,
            bos_token,
            eos_token,
        })
    }

    /// The ids of `text`. `add_special_tokens` adds the tokens that the model expects around a
    /// prompt, which a chat template writes itself.
    ///
    /// # Errors
    /// When the vocabulary cannot represent the text.
    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, EncodeError> {
        self.encode_unless(&AtomicBool::new(false), text, add_special_tokens)
    }

    /// As [`Self::encode`], until `cancelled` is set, which is checked before every word.
    ///
    /// # Errors
    /// When the vocabulary cannot represent the text, and when it was cancelled.
    pub fn encode_unless(
        &self,
        cancelled: &AtomicBool,
        text: &str,
        add_special_tokens: bool,
    ) -> Result<Vec<u32>, EncodeError> {
        if cancelled.load(Ordering::Relaxed) {
            return Err(EncodeError::Cancelled);
        }
        let encoding = self.encoding_of(cancelled, text, add_special_tokens);
        let encoding = encoding.map_err(|error| {
            if cancelled.load(Ordering::Relaxed) {
                EncodeError::Cancelled
            } else {
                EncodeError::Unwritable {
                    reason: error.to_string(),
                }
            }
        })?;
        let prefix = self.prompt_prefix.filter(|_| add_special_tokens);
        let ids = encoding.get_ids().iter().copied();
        Ok(prefix.into_iter().chain(ids).collect())
    }

    /// The steps of the encoder's own `encode_fast`, which cannot be cancelled.
    fn encoding_of(
        &self,
        cancelled: &AtomicBool,
        text: &str,
        add_special_tokens: bool,
    ) -> tokenizers::Result<tokenizers::Encoding> {
        let added = self.encoder.get_added_vocabulary();
        let mut words = added.extract_and_normalize(self.encoder.get_normalizer(), text);
        if let Some(cutter) = self.encoder.get_pre_tokenizer() {
            cutter.pre_tokenize(&mut words)?;
        }
        let model = self.encoder.get_model();
        words.tokenize(|word| {
            if cancelled.load(Ordering::Relaxed) {
                Err("cancelled".into())
            } else {
                model.tokenize(word.get())
            }
        })?;
        let encoding = words.into_encoding(None, 0, OffsetType::None)?;
        self.encoder
            .post_process(encoding, None, add_special_tokens)
    }

    /// The text of `ids`; with `skip_special_tokens`, special tokens produce none.
    pub fn decode(&self, ids: &[u32], skip_special_tokens: bool) -> String {
        let mut assembler = Utf8Assembler::default();
        let mut text = String::new();
        let mut at_start = true;
        for &id in ids {
            text.push_str(&assembler.push(self.text_bytes(id, skip_special_tokens, at_start)));
            at_start &= self.leaves_no_text(id, skip_special_tokens);
        }
        text.push_str(&assembler.finish());
        text
    }

    /// The bytes of `id`; empty for an id outside the vocabulary.
    pub fn token_bytes(&self, id: u32) -> Vec<u8> {
        self.token_bytes.get(id).to_vec()
    }

    /// `id` as the vocabulary writes it; empty for an id outside it.
    pub fn spelling(&self, id: u32) -> String {
        self.encoder.id_to_token(id).unwrap_or_default()
    }

    /// Bytes of the longest token.
    pub fn longest_token_bytes(&self) -> usize {
        self.token_bytes.longest()
    }

    /// Ids are below this number.
    pub fn vocab_size(&self) -> usize {
        self.token_bytes.len()
    }

    /// A token that marks structure, like the end of a turn.
    pub fn is_special(&self, id: u32) -> bool {
        self.special.contains(&id)
    }

    /// The special tokens that are written like one of `texts`.
    pub fn special_among(&self, texts: &[&str]) -> Vec<u32> {
        let is_written = |id: &u32| {
            texts
                .iter()
                .any(|t| t.as_bytes() == self.token_bytes.get(*id))
        };
        let mut ids: Vec<u32> = self.special.iter().copied().filter(is_written).collect();
        ids.sort_unstable();
        ids
    }

    /// The token that begins a text, as chat templates name it.
    pub fn bos_token(&self) -> Option<&str> {
        self.bos_token.as_deref()
    }

    /// The token that ends a text, as chat templates name it.
    pub fn eos_token(&self) -> Option<&str> {
        self.eos_token.as_deref()
    }

    /// The bytes that `id` adds to a text; `at_start` if it is the first visible token.
    pub(super) fn text_bytes(&self, id: u32, skip_special: bool, at_start: bool) -> &[u8] {
        if skip_special && self.is_special(id) {
            return &[];
        }
        match self.token_bytes.get(id) {
            [b' ', rest @ ..] if at_start && self.drops_first_space => rest,
            bytes => bytes,
        }
    }

    /// Whether `id` is invisible, so that a text has not begun with it.
    pub(super) fn leaves_no_text(&self, id: u32, skip_special: bool) -> bool {
        (skip_special && self.is_special(id)) || self.token_bytes.get(id).is_empty()
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
