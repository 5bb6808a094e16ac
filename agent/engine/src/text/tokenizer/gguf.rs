//! The tokenizer in a GGUF file: SentencePiece's pieces, or a byte-level BPE of tokens and merges, whose rule that
//! splits text into words is given only by name (`tokenizer.ggml.pre`).

mod pieces;

use super::{Parts, Spelling, Tokenizer, TokenizerError};
use crate::weights::gguf::{Gguf, MetadataError};
use std::path::PathBuf;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, SplitDelimiterBehavior};

/// ggml's token types: ordinary text.
const NORMAL: i64 = 1;
/// What text without a token becomes.
const UNKNOWN: i64 = 2;
/// Structure, never text of the author's.
const CONTROL: i64 = 3;
/// Text that is always one token.
const USER_DEFINED: i64 = 4;

/// How llama 3 splits text into words: numbers in threes.
const LLAMA3_WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// How qwen 2 and 3 do: numbers digit by digit.
const QWEN2_WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// `tokenizer.ggml.model`.
enum Kind {
    ByteLevelBpe,
    Pieces,
}

/// What a kind makes of the file.
struct Vocabulary {
    encoder: tokenizers::Tokenizer,
    spelling: Spelling,
    drops_first_space: bool,
    /// Where the file does not say.
    usually_adds_bos: bool,
}

/// The named rules for splitting text into words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Words {
    Gpt2,
    SmolLm,
    Llama3,
    Qwen2,
}

// === impl Tokenizer ===

impl Tokenizer {
    /// Builds the tokenizer that `gguf` describes.
    ///
    /// # Errors
    /// Names the key that is missing, of the wrong type, or not supported.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, TokenizerError> {
        let source = Source { gguf };
        let tokens = source.texts("tokenizer.ggml.tokens")?;
        let Vocabulary {
            encoder,
            spelling,
            drops_first_space,
            usually_adds_bos,
        } = match source.kind()? {
            Kind::ByteLevelBpe => byte_level(&source, tokens)?,
            Kind::Pieces => pieces::read(&source, tokens)?,
        };
        let token = |key: &str| -> Result<Option<(u32, String)>, TokenizerError> {
            let id = source.read(gguf.metadata().size(key))?;
            let Some(id) = id else { return Ok(None) };
            let name = tokens.get(id).ok_or_else(|| {
                source.invalid(format!(
                    "{key} is {id}, but there are {} tokens",
                    tokens.len()
                ))
            })?;
            Ok(u32::try_from(id).ok().map(|id| (id, name.clone())))
        };
        let bos = token("tokenizer.ggml.bos_token_id")?;
        let eos = token("tokenizer.ggml.eos_token_id")?;
        let adds_bos = source.read(gguf.metadata().flag("tokenizer.ggml.add_bos_token"))?;
        let adds_bos = adds_bos.unwrap_or(usually_adds_bos);
        let tokenizer = Self::new(Parts {
            encoder,
            spelling,
            drops_first_space,
            prompt_prefix: bos.as_ref().map(|(id, _)| *id).filter(|_| adds_bos),
            bos_token: bos.map(|(_, name)| name),
            eos_token: eos.map(|(_, name)| name),
        });
        tokenizer.map_err(|reason| source.invalid(reason))
    }
}

fn byte_level(source: &Source<'_>, tokens: &[String]) -> Result<Vocabulary, TokenizerError> {
    let words = source.words()?;
    let model = build_model(source, tokens, words)?;
    let mut encoder = tokenizers::Tokenizer::new(model);
    encoder.with_pre_tokenizer(Some(words.pre_tokenizer(source)?));
    if words == Words::Qwen2 {
        encoder.with_normalizer(Some(NFC));
    }
    encoder.add_special_tokens(&source.of_type(tokens, CONTROL)?);
    encoder.add_tokens(&source.of_type(tokens, USER_DEFINED)?);
    Ok(Vocabulary {
        encoder,
        spelling: Spelling::ByteLevel,
        drops_first_space: false,
        usually_adds_bos: false,
    })
}

fn build_model(
    source: &Source<'_>,
    tokens: &[String],
    words: Words,
) -> Result<BPE, TokenizerError> {
    let count = u32::try_from(tokens.len())
        .map_err(|_| source.invalid("more tokens than ids".to_owned()))?;
    let vocab: Vocab = tokens.iter().cloned().zip(0..count).collect();
    let merges = source.texts("tokenizer.ggml.merges")?;
    let merges: Option<Vec<(String, String)>> = merges
        .iter()
        .map(|merge| {
            // The first letter may itself look like the separator, so it is skipped.
            let second = merge.char_indices().nth(1)?.0;
            let space = second + merge[second..].find(' ')?;
            Some((merge[..space].to_owned(), merge[space + 1..].to_owned()))
        })
        .collect();
    let merges = merges.ok_or_else(|| {
        source.invalid("tokenizer.ggml.merges holds an entry that is not a pair".into())
    })?;
    BPE::builder()
        .vocab_and_merges(vocab, merges)
        .ignore_merges(words == Words::Llama3)
        .build()
        .map_err(|error| source.invalid(format!("its merges do not fit its tokens: {error}")))
}

/// The file's metadata, with its path for messages.
struct Source<'a> {
    gguf: &'a Gguf,
}

// === impl Source ===

impl<'a> Source<'a> {
    fn path(&self) -> PathBuf {
        self.gguf.path().to_owned()
    }

    fn invalid(&self, reason: String) -> TokenizerError {
        TokenizerError::Invalid {
            path: self.path(),
            reason,
        }
    }

    fn read<T>(&self, result: Result<T, MetadataError>) -> Result<T, TokenizerError> {
        result.map_err(|error| self.invalid(error.to_string()))
    }

    fn texts(&self, key: &str) -> Result<&'a [String], TokenizerError> {
        self.read(self.gguf.metadata().texts(key))?
            .ok_or_else(|| self.invalid(format!("{key} is missing")))
    }

    fn kind(&self) -> Result<Kind, TokenizerError> {
        const KEY: &str = "tokenizer.ggml.model";
        match self.read(self.gguf.metadata().text(KEY))? {
            Some("gpt2") => Ok(Kind::ByteLevelBpe),
            Some("llama") => Ok(Kind::Pieces),
            other => Err(TokenizerError::Unsupported {
                path: self.path(),
                key: KEY,
                value: format!("{:?}", other.unwrap_or("")),
                supported: "gpt2 (byte-level BPE), llama (SentencePiece)",
            }),
        }
    }

    fn types(&self) -> Result<Vec<i64>, TokenizerError> {
        let types = self.read(self.gguf.metadata().integers("tokenizer.ggml.token_type"))?;
        Ok(types.unwrap_or_default())
    }

    /// Tokens that are matched before text is split into words.
    fn of_type(&self, tokens: &[String], wanted: i64) -> Result<Vec<AddedToken>, TokenizerError> {
        let types = self.types()?;
        let found = types.iter().zip(tokens).filter(|(of, _)| **of == wanted);
        let as_added = |(_, token): (_, &String)| {
            AddedToken::from(token.clone(), wanted != USER_DEFINED).normalized(false)
        };
        Ok(found.map(as_added).collect())
    }

    fn words(&self) -> Result<Words, TokenizerError> {
        const KEY: &str = "tokenizer.ggml.pre";
        let name = self
            .read(self.gguf.metadata().text(KEY))?
            .unwrap_or("gpt-2");
        Ok(match name {
            "default" | "gpt-2" => Words::Gpt2,
            "smollm" => Words::SmolLm,
            "llama-bpe" | "llama3" | "llama-v3" => Words::Llama3,
            "qwen2" => Words::Qwen2,
            other => {
                return Err(TokenizerError::Unsupported {
                    path: self.path(),
                    key: KEY,
                    value: format!("{other:?}"),
                    supported: "gpt-2, smollm, llama-bpe, qwen2",
                });
            }
        })
    }
}

// === impl Words ===

impl Words {
    fn pre_tokenizer(self, source: &Source<'_>) -> Result<PreTokenizerWrapper, TokenizerError> {
        let gpt2 = ByteLevel::new(false, true, true);
        Ok(match self {
            Self::Gpt2 => gpt2.into(),
            Self::SmolLm => Sequence::new(vec![Digits::new(true).into(), gpt2.into()]).into(),
            Self::Llama3 => by_pattern(LLAMA3_WORDS, source)?,
            Self::Qwen2 => by_pattern(QWEN2_WORDS, source)?,
        })
    }
}

fn by_pattern(pattern: &str, source: &Source<'_>) -> Result<PreTokenizerWrapper, TokenizerError> {
    let pattern = SplitPattern::Regex(pattern.to_owned());
    let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false)
        .map_err(|error| source.invalid(error.to_string()))?;
    let bytes = ByteLevel::new(false, true, false);
    Ok(Sequence::new(vec![split.into(), bytes.into()]).into())
}
