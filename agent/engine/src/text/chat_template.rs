//! `ChatTemplate`: the model's own Jinja template, which turns a conversation into a prompt. The
//! environment is the one that templates expect: blocks trimmed, Python's methods on strings,
//! `tojson` as Python writes JSON, `raise_exception` and `strftime_now`.

mod environment;
mod message;
mod source;

use minijinja::{Environment, Value, context};
use serde_json::Map;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub use message::Message;
pub use minijinja::Value as TemplateValue;

use super::tokenizer::Tokenizer;
use crate::weights::gguf::Gguf;

/// The name under which the template is compiled, seen in messages.
const NAME: &str = "chat_template";

/// A compiled chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos_token: String,
    eos_token: String,
}

#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    #[error("cannot read {path}: {source}")]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{path}: {reason}")]
    Invalid { path: PathBuf, reason: String },
    #[error("the chat template refuses these messages: {reason}")]
    Render { reason: String },
    #[error("the last message cannot be continued: {reason}")]
    Continue { reason: &'static str },
}

// === impl ChatTemplate ===

impl ChatTemplate {
    /// The template of a Hugging Face folder: `chat_template.jinja`, or `chat_template` in
    /// `tokenizer_config.json`. `None` when there is neither.
    ///
    /// # Errors
    /// When a file cannot be read or the template does not compile.
    pub fn from_folder(
        folder: &Path,
        tokenizer: &Tokenizer,
    ) -> Result<Option<Self>, TemplateError> {
        let source = source::in_folder(folder)?;
        source
            .map(|(path, source)| Self::compile(path, source, tokenizer))
            .transpose()
    }

    /// The template in a separate file.
    ///
    /// # Errors
    /// When the file cannot be read or does not compile.
    pub fn from_file(path: &Path, tokenizer: &Tokenizer) -> Result<Self, TemplateError> {
        let source = std::fs::read_to_string(path).map_err(|source| TemplateError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::compile(path.to_owned(), source, tokenizer)
    }

    /// The template in a GGUF file's metadata.
    ///
    /// # Errors
    /// When it does not compile.
    pub fn from_gguf(gguf: &Gguf, tokenizer: &Tokenizer) -> Result<Option<Self>, TemplateError> {
        let path = gguf.path();
        let source = gguf.metadata().text("tokenizer.chat_template");
        let source = source.map_err(|error| TemplateError::Invalid {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        let compile = |source: &str| Self::compile(path.to_owned(), source.to_owned(), tokenizer);
        source.map(compile).transpose()
    }

    fn compile(
        path: PathBuf,
        source: String,
        tokenizer: &Tokenizer,
    ) -> Result<Self, TemplateError> {
        let mut environment = environment::for_chat();
        let added = environment.add_template_owned(NAME, source);
        added.map_err(|error| TemplateError::Invalid {
            path,
            reason: environment::explain(&error),
        })?;
        let token = |token: Option<&str>| token.unwrap_or_default().to_owned();
        Ok(Self {
            environment,
            bos_token: token(tokenizer.bos_token()),
            eos_token: token(tokenizer.eos_token()),
        })
    }

    /// The prompt for `messages`, with the opening of an answer if `add_generation_prompt`.
    /// `kwargs` are the client's own variables for the template.
    ///
    /// # Errors
    /// What the template raises, in its own words.
    pub fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
        kwargs: &Map<String, serde_json::Value>,
    ) -> Result<String, TemplateError> {
        self.render_at(SystemTime::now(), messages, add_generation_prompt, kwargs)
    }

    /// The prompt for `messages` up to the last one's text, which the answer continues.
    ///
    /// # Errors
    /// What the template raises; when the last message has no text, or the template leaves it out.
    pub fn render_continued(
        &self,
        messages: &[Message],
        kwargs: &Map<String, serde_json::Value>,
    ) -> Result<String, TemplateError> {
        let last = messages.last().map_or("", |last| last.content.as_str());
        if last.trim().is_empty() {
            let reason = "it has no text";
            return Err(TemplateError::Continue { reason });
        }
        let mut prompt = self.render(messages, false, kwargs)?;
        let place = prompt.rfind(last).map(|at| at + last.len());
        // Some templates trim their input.
        let trimmed = || Some(prompt.rfind(last.trim())? + last.trim().len());
        let end = place.or_else(trimmed).ok_or(TemplateError::Continue {
            reason: "the chat template does not write its text unchanged",
        })?;
        prompt.truncate(end);
        Ok(prompt)
    }

    /// As [`Self::render`], at a given time: some templates write the date.
    ///
    /// # Errors
    /// What the template raises, in its own words.
    pub fn render_at(
        &self,
        now: SystemTime,
        messages: &[Message],
        add_generation_prompt: bool,
        kwargs: &Map<String, serde_json::Value>,
    ) -> Result<String, TemplateError> {
        let failed = |error: minijinja::Error| TemplateError::Render {
            reason: environment::explain(&error),
        };
        let template = self.environment.get_template(NAME).map_err(failed)?;
        let own = context! {
            messages => messages,
            add_generation_prompt => add_generation_prompt,
            bos_token => self.bos_token,
            eos_token => self.eos_token,
            strftime_now => environment::strftime_at(now),
        };
        let variables = context! { ..own, ..Value::from_serialize(kwargs) };
        template.render(variables).map_err(failed)
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
