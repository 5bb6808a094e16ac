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

use self::source::Source;
use super::tokenizer::Tokenizer;
use crate::weights::gguf::Gguf;

/// The name under which the template is compiled, seen in messages.
const NAME: &str = "chat_template";
/// The name of a separate one for conversations with tools, as Hugging Face has it.
const TOOL_USE: &str = "tool_use";

/// A compiled chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    /// [`TOOL_USE`] where there is such a one.
    with_tools: &'static str,
    bos_token: String,
    eos_token: String,
}

/// What a template writes a prompt of.
#[derive(Clone, Copy, Debug)]
pub struct Conversation<'a> {
    pub messages: &'a [Message],
    /// Tools that the answer may call, as the API has them.
    pub tools: &'a [Value],
    /// The client's own variables.
    pub kwargs: &'a Map<String, serde_json::Value>,
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
        let source = Source::from(source::read(path)?);
        Self::compile(path.to_owned(), source, tokenizer)
    }

    /// The template in a GGUF file's metadata.
    ///
    /// # Errors
    /// When it does not compile.
    pub fn from_gguf(gguf: &Gguf, tokenizer: &Tokenizer) -> Result<Option<Self>, TemplateError> {
        let path = gguf.path();
        let text = |key: &str| {
            let text = gguf.metadata().text(key);
            text.map_err(|error| TemplateError::Invalid {
                path: path.to_owned(),
                reason: error.to_string(),
            })
        };
        let with_tools = text("tokenizer.chat_template.tool_use")?;
        let source = text("tokenizer.chat_template")?.map(|default| Source {
            default: default.to_owned(),
            with_tools: with_tools.map(str::to_owned),
        });
        let compile = |source| Self::compile(path.to_owned(), source, tokenizer);
        source.map(compile).transpose()
    }

    fn compile(
        path: PathBuf,
        source: Source,
        tokenizer: &Tokenizer,
    ) -> Result<Self, TemplateError> {
        let mut environment = environment::for_chat();
        let Source {
            default,
            with_tools,
        } = source;
        let name = with_tools.as_ref().map_or(NAME, |_| TOOL_USE);
        let with_tools = with_tools.map(|source| (TOOL_USE, source));
        for (name, source) in std::iter::once((NAME, default)).chain(with_tools) {
            let added = environment.add_template_owned(name, source::without_generation(&source));
            added.map_err(|error| TemplateError::Invalid {
                path: path.clone(),
                reason: environment::explain(&error),
            })?;
        }
        let token = |token: Option<&str>| token.unwrap_or_default().to_owned();
        Ok(Self {
            environment,
            with_tools: name,
            bos_token: token(tokenizer.bos_token()),
            eos_token: token(tokenizer.eos_token()),
        })
    }

    /// What the template that takes tools is written in: by it, one sees the form of the model's answers. `None` if the
    /// template takes no tools.
    pub fn source_with_tools(&self) -> Option<String> {
        let source = self.source(self.with_tools);
        Some(source).filter(|source| source.contains("tools"))
    }

    /// What the template is written in.
    pub fn source_without_tools(&self) -> String {
        self.source(NAME)
    }

    fn source(&self, name: &'static str) -> String {
        let template = self.environment.get_template(name);
        template.expect("it was compiled").source().to_owned()
    }

    /// The prompt for a conversation, with the opening of an answer if `add_generation_prompt`.
    ///
    /// # Errors
    /// What the template raises, in its own words.
    pub fn render(
        &self,
        conversation: Conversation<'_>,
        add_generation_prompt: bool,
    ) -> Result<String, TemplateError> {
        self.render_at(SystemTime::now(), conversation, add_generation_prompt)
    }

    /// The prompt for a conversation up to its last message's text, which the answer continues.
    ///
    /// # Errors
    /// What the template raises; when the last message has no text, or the template leaves it out.
    pub fn render_continued(
        &self,
        conversation: Conversation<'_>,
    ) -> Result<String, TemplateError> {
        let last = conversation.messages.last();
        let last = last.map_or("", |last| last.content.as_str());
        if last.trim().is_empty() {
            let reason = "it has no text";
            return Err(TemplateError::Continue { reason });
        }
        let mut prompt = self.render(conversation, false)?;
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
        conversation: Conversation<'_>,
        add_generation_prompt: bool,
    ) -> Result<String, TemplateError> {
        let Conversation {
            messages,
            tools,
            kwargs,
        } = conversation;
        let failed = |error: minijinja::Error| TemplateError::Render {
            reason: environment::explain(&error),
        };
        let (name, given) = if tools.is_empty() {
            (NAME, context! {})
        } else {
            (self.with_tools, context! { tools => tools })
        };
        let template = self.environment.get_template(name).map_err(failed)?;
        let own = context! {
            messages => messages,
            add_generation_prompt => add_generation_prompt,
            bos_token => self.bos_token,
            eos_token => self.eos_token,
            strftime_now => environment::strftime_at(now),
        };
        // As in Hugging Face's, templates find `tools` none where there are none.
        let toolless = context! { tools => () };
        let variables = context! { ..own, ..given, ..Value::from_serialize(kwargs), ..toolless };
        template.render(variables).map_err(failed)
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod published;
#[cfg(test)]
mod tests;
