//! The tokenizer of a Hugging Face folder.

use super::{Parts, Spelling, Tokenizer, TokenizerError};
use serde::Deserialize;
use serde_json::Value;
use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

// === impl Tokenizer ===

impl Tokenizer {
    /// Reads `tokenizer.json` and, for the names of special tokens, `tokenizer_config.json`.
    ///
    /// # Errors
    /// When a file cannot be read or its kind of vocabulary is not supported.
    pub fn from_folder(folder: &Path) -> Result<Self, TokenizerError> {
        let path = folder.join("tokenizer.json");
        let bytes = fs::read(&path).map_err(|source| TokenizerError::Read {
            path: path.clone(),
            source,
        })?;
        let invalid = |reason: String| TokenizerError::Invalid {
            path: path.clone(),
            reason,
        };
        refuse_tables(&bytes, &path)?;
        let mut encoder = read_encoder(&bytes).map_err(invalid)?;
        // The engine checks a prompt's length; it must not be truncated or padded here.
        encoder
            .with_truncation(None)
            .map_err(|error| invalid(error.to_string()))?;
        encoder.with_padding(None);
        let (spelling, drops_first_space) = spelling(&encoder, &path)?;
        let config = read_config(folder)?;
        let tokenizer = Self::new(Parts {
            encoder,
            spelling,
            drops_first_space,
            prompt_prefix: None,
            bos_token: special_token(&config, "bos_token"),
            eos_token: special_token(&config, "eos_token"),
        });
        tokenizer.map_err(invalid)
    }
}

/// The table of a `Precompiled` normalizer says its own size, and the library reserves as much. No family
/// that the engine runs has one.
fn refuse_tables(bytes: &[u8], path: &Path) -> Result<(), TokenizerError> {
    #[derive(Deserialize)]
    struct File {
        normalizer: Option<Value>,
    }
    let read: serde_json::Result<File> = serde_json::from_slice(bytes);
    let file = read.map_err(|error| TokenizerError::Invalid {
        path: path.to_owned(),
        reason: error.to_string(),
    })?;
    let normalizer = file.normalizer.unwrap_or_default();
    let mut parts = vec![&normalizer];
    while let Some(part) = parts.pop() {
        if part["type"] == "Precompiled" || !part["precompiled_charsmap"].is_null() {
            return Err(TokenizerError::Unsupported {
                path: path.to_owned(),
                key: "normalizer",
                value: "Precompiled".to_owned(),
                supported: "all others",
            });
        }
        parts.extend(part["normalizers"].as_array().into_iter().flatten());
    }
    Ok(())
}

/// The library panics at some files that it cannot read (`tokenizers` 0.22, `decoders/mod.rs`): a file of a supplier is
/// refused like any other that makes no sense.
fn read_encoder(bytes: &[u8]) -> Result<tokenizers::Tokenizer, String> {
    let read = catch_unwind(|| tokenizers::Tokenizer::from_bytes(bytes));
    match read {
        Ok(read) => read.map_err(|error| error.to_string()),
        Err(_) => Err("the tokenizer library cannot read it".to_owned()),
    }
}

/// `tokenizer_config.json`; empty when there is none.
fn read_config(folder: &Path) -> Result<Value, TokenizerError> {
    let path = folder.join("tokenizer_config.json");
    if !path.exists() {
        return Ok(Value::Null);
    }
    let bytes = fs::read(&path).map_err(|source| TokenizerError::Read {
        path: path.clone(),
        source,
    })?;
    serde_json::from_slice(&bytes).map_err(|error| TokenizerError::Invalid {
        path,
        reason: error.to_string(),
    })
}

/// A token is written as a string, or as an object with its content.
fn special_token(config: &Value, key: &str) -> Option<String> {
    let token = config.get(key)?;
    let content = token.get("content").unwrap_or(token);
    content.as_str().map(str::to_owned)
}

/// How entries spell bytes, and whether a text's first space is dropped, according to the decoder.
fn spelling(
    encoder: &tokenizers::Tokenizer,
    path: &Path,
) -> Result<(Spelling, bool), TokenizerError> {
    let decoder = serde_json::to_value(encoder.get_decoder()).unwrap_or(Value::Null);
    let mut kinds = Vec::new();
    collect_kinds(&decoder, &mut kinds);
    let has = |kind: &str| kinds.iter().any(|known| known == kind);
    if has("ByteLevel") {
        Ok((Spelling::ByteLevel, false))
    } else if has("ByteFallback") || has("Metaspace") {
        Ok((Spelling::SentencePiece, has("Metaspace") || has("Strip")))
    } else {
        Err(TokenizerError::Unsupported {
            path: path.to_owned(),
            key: "decoder",
            value: format!("[{}]", kinds.join(", ")),
            supported: "ByteLevel, ByteFallback, Metaspace",
        })
    }
}

/// The `type` of a decoder and of its children.
fn collect_kinds(decoder: &Value, kinds: &mut Vec<String>) {
    if let Some(kind) = decoder.get("type").and_then(Value::as_str) {
        kinds.push(kind.to_owned());
    }
    let inner = decoder.get("decoders").and_then(Value::as_array);
    for decoder in inner.into_iter().flatten() {
        collect_kinds(decoder, kinds);
    }
}
