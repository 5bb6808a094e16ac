//! Where a Hugging Face folder keeps its chat template.

use super::TemplateError;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// The template's file and text.
pub(super) fn in_folder(folder: &Path) -> Result<Option<(PathBuf, String)>, TemplateError> {
    let file = folder.join("chat_template.jinja");
    if file.exists() {
        return Ok(Some((file.clone(), read(&file)?)));
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
    Ok(of_config(&fields).map(|template| (config, template.to_owned())))
}

/// A string, or a list of named templates, of which the default is taken.
fn of_config(fields: &Value) -> Option<&str> {
    let template = fields.get("chat_template")?;
    if let Some(list) = template.as_array() {
        let is_default = |entry: &&Value| entry.get("name").is_some_and(|name| name == "default");
        return list.iter().find(is_default)?.get("template")?.as_str();
    }
    template.as_str()
}

fn read(path: &Path) -> Result<String, TemplateError> {
    fs::read_to_string(path).map_err(|source| TemplateError::Read {
        path: path.to_owned(),
        source,
    })
}
