//! Where a Hugging Face folder keeps its chat template.

use super::TemplateError;
use regex::{Captures, Regex};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// What templates are written in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) default: String,
    /// A separate one for conversations with tools.
    pub(super) with_tools: Option<String>,
}

/// The template's file and text.
pub(super) fn in_folder(folder: &Path) -> Result<Option<(PathBuf, Source)>, TemplateError> {
    let file = folder.join("chat_template.jinja");
    if file.exists() {
        let with_tools = folder.join("additional_chat_templates/tool_use.jinja");
        let with_tools = with_tools.exists().then(|| read(&with_tools)).transpose()?;
        let default = read(&file)?;
        let source = Source {
            default,
            with_tools,
        };
        return Ok(Some((file, source)));
    }
    let config = folder.join("tokenizer_config.json");
    if !config.exists() {
        return Ok(None);
    }
    let fields: Value =
        serde_json::from_str(&read(&config)?).map_err(|error| TemplateError::Invalid {
            path: config.clone(),
            reason: error.to_string(),
        })?;
    Ok(of_config(&fields).map(|source| (config, source)))
}

/// A string, or a list of named templates.
fn of_config(fields: &Value) -> Option<Source> {
    let template = fields.get("chat_template")?;
    let Some(list) = template.as_array() else {
        return Some(Source::from(template.as_str()?.to_owned()));
    };
    let named = |name: &str| {
        let is_it = |entry: &&Value| entry.get("name").is_some_and(|given| given == name);
        let template = list.iter().find(is_it)?.get("template")?.as_str()?;
        Some(template.to_owned())
    };
    Some(Source {
        default: named("default")?,
        with_tools: named(super::TOOL_USE),
    })
}

/// The template without the marks around what a model wrote, which are for training: they write nothing, and keep white
/// space as they did.
pub(super) fn without_generation(source: &str) -> String {
    static MARKS: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}").expect("it is a pattern")
    });
    let written = MARKS.replace_all(source, |mark: &Captures<'_>| {
        let word = if mark.get(2).is_some() {
            "endif"
        } else {
            "if true"
        };
        format!("{{%{} {word} {}%}}", &mark[1], &mark[3])
    });
    written.into_owned()
}

pub(super) fn read(path: &Path) -> Result<String, TemplateError> {
    fs::read_to_string(path).map_err(|source| TemplateError::Read {
        path: path.to_owned(),
        source,
    })
}

impl From<String> for Source {
    fn from(default: String) -> Self {
        Self {
            default,
            with_tools: None,
        }
    }
}
