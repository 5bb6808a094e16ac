//! Between text and token ids: the tokenizer, its incremental reverse, and the chat template, read
//! from a Hugging Face folder or a GGUF file. Used by HTTP tasks; the engine itself knows only ids.

pub mod chat_template;
pub mod detokenizer;
mod token_bytes;
pub mod tokenizer;

use std::path::Path;

use crate::model::files::{ModelPath, OpenError};
use crate::weights::{Gguf, GgufError};

pub use chat_template::{ChatTemplate, Message, TemplateError, TemplateValue};
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

/// The tokenizer, and the chat template if there is one, of the model at `path`.
///
/// # Errors
/// Names the file and what in it is missing or not supported.
pub fn load(path: &Path) -> Result<(Tokenizer, Option<ChatTemplate>), TextError> {
    match ModelPath::resolve(path)? {
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
mod tests;
