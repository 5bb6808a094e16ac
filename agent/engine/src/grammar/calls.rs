//! Calls of tools in a model's own form, one or more of them, and nothing else: what `tool_choice` asks for where it requires a
//! call.

use super::compile::with_options;
use super::tags::{TAGS_MAX, Tag, lark_of};
use super::vocabulary::Vocabulary;
use serde::Serialize;
use std::fmt::Write;

/// One call of several tools, or a list of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Calls {
    /// Ahead of the first call.
    pub open: String,
    /// A call of each tool: its arguments are JSON of the schema.
    pub tools: Vec<Tag>,
    /// Between two calls; `None` for one call.
    pub between: Option<String>,
    /// Behind the last call.
    pub close: String,
}

// === impl Calls ===

impl Calls {
    pub(super) fn text(&self) -> String {
        serde_json::to_string(self).expect("it is of texts and JSON")
    }
}

/// # Errors
/// Says which tool is wrong, and where in its schema.
pub(super) fn to_lark(calls: &Calls, vocabulary: &Vocabulary) -> Result<String, String> {
    let Calls {
        open,
        tools,
        between,
        close,
    } = calls;
    if tools.is_empty() || tools.len() > TAGS_MAX {
        return Err(format!("give from 1 to {TAGS_MAX} of them"));
    }
    let [open, close] = [open, close].map(|text| lark_of(text, vocabulary));
    let more = between
        .as_ref()
        .map(|text| format!("({} call)*", lark_of(text, vocabulary)));
    let mut lark = format!("start: {open} call {} {close}\n", more.unwrap_or_default());
    let mut ways = Vec::with_capacity(tools.len());
    for (place, tool) in tools.iter().enumerate() {
        tool.check()?;
        let [begin, end] = [&tool.begin, &tool.end].map(|text| lark_of(text, vocabulary));
        let schema = with_options(tool.schema.clone());
        let _infallible = writeln!(lark, "tool{place}: {begin} %json {schema} {end}");
        ways.push(format!("tool{place}"));
    }
    let _infallible = writeln!(lark, "call: {}", ways.join(" | "));
    Ok(lark)
}

#[cfg(test)]
mod tests;
