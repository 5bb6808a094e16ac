//! Between text and token ids: the tokenizer, its incremental inverse, and the chat template, read
//! from a Hugging Face folder or a GGUF file. Used by HTTP tasks; the scheduler knows only ids, but
//! for stop strings (`sample::stop`).

pub mod chat_template;
pub mod detokenizer;
mod token_bytes;
pub mod tokenizer;

use crate::model::files::{ModelPath, OpenError, tokenizer_files};
use crate::weights::{Gguf, GgufError};
use std::path::{Path, PathBuf};

pub use chat_template::{ChatTemplate, Conversation, Message, TemplateError, TemplateValue};
pub use detokenizer::Detokenizer;
pub use tokenizer::{EncodeError, TextLength, TextTooLong, Tokenizer, TokenizerError};

/// Why a model's text side cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    #[error(transparent)]
    Path(#[from] OpenError),
    #[error(transparent)]
    Gguf(#[from] GgufError),
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    #[error(transparent)]
    Template(#[from] TemplateError),
}

/// The sources of a model's text side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextSources {
    pub model_path: PathBuf,
    /// SGLang's `--tokenizer-path`: a folder with a `tokenizer.json`, or a GGUF file, that replaces
    /// the model's.
    pub tokenizer_path: Option<PathBuf>,
    /// SGLang's `--chat-template`: a Jinja file that replaces the tokenizer's own.
    pub chat_template: Option<PathBuf>,
}

// === impl TextSources ===

impl TextSources {
    /// The model's own.
    pub fn of_model(path: impl Into<PathBuf>) -> Self {
        Self {
            model_path: path.into(),
            tokenizer_path: None,
            chat_template: None,
        }
    }

    /// Where the tokenizer is.
    pub fn tokenizer_path(&self) -> &Path {
        self.tokenizer_path.as_ref().unwrap_or(&self.model_path)
    }

    /// The files that replace the model's own: they, too, determine the meaning of a prompt's KV.
    pub fn replacements(&self) -> Vec<PathBuf> {
        let tokenizer = self.tokenizer_path.iter().flat_map(|path| {
            if path.is_dir() {
                tokenizer_files(path)
            } else {
                vec![path.clone()]
            }
        });
        tokenizer.chain(self.chat_template.clone()).collect()
    }
}

/// The tokenizer, and the chat template if there is one, of the model at `path`.
///
/// # Errors
/// Names the file and what in it is missing or not supported.
pub fn load(path: &Path) -> Result<(Tokenizer, Option<ChatTemplate>), TextError> {
    load_from(&TextSources::of_model(path))
}

/// The tokenizer of the model at `path`.
///
/// # Errors
/// As [`load`].
pub fn load_tokenizer(path: &Path) -> Result<Tokenizer, TextError> {
    Ok(match ModelPath::resolve(path)? {
        ModelPath::Folder(folder) => Tokenizer::from_folder(&folder)?,
        ModelPath::Gguf(file) => Tokenizer::from_gguf(&Gguf::open(&file)?)?,
    })
}

/// As [`load`], from `sources`.
///
/// # Errors
/// Names the file and what in it is missing or not supported.
pub fn load_from(sources: &TextSources) -> Result<(Tokenizer, Option<ChatTemplate>), TextError> {
    let (tokenizer, own) = with_own_template(sources)?;
    let template = match &sources.chat_template {
        Some(file) => Some(ChatTemplate::from_file(file, &tokenizer)?),
        None => own,
    };
    Ok((tokenizer, template))
}

fn with_own_template(
    sources: &TextSources,
) -> Result<(Tokenizer, Option<ChatTemplate>), TextError> {
    let path = sources.tokenizer_path();
    let place = match &sources.tokenizer_path {
        // It need not hold a model.
        Some(folder) if folder.is_dir() => ModelPath::Folder(folder.clone()),
        _ => ModelPath::resolve(path)?,
    };
    match place {
        ModelPath::Folder(folder) => {
            let tokenizer = Tokenizer::from_folder(&folder)?;
            let template = ChatTemplate::from_folder(&folder, &tokenizer)?;
            Ok((tokenizer, template))
        }
        ModelPath::Gguf(file) => {
            let gguf = Gguf::open(&file)?;
            let tokenizer = Tokenizer::from_gguf(&gguf)?;
            let template = ChatTemplate::from_gguf(&gguf, &tokenizer)?;
            Ok((tokenizer, template))
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
