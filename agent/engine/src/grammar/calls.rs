//! Calls of tools in a model's own form: an answer of them and nothing else, which is what `tool_choice` asks for where it
//! requires a call; or text in which each call keeps to its tool's schema.

mod keyed;
mod parameters;
mod python;
mod raw;

use super::notation::with_options;
use super::schema;
use super::tags::{Part, TAGS_MAX, TEXT_BYTES_MAX, lark_of, parts, until};
use super::vocabulary::Vocabulary;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::Write;

pub use keyed::{KeyedArguments, TextParameter};

/// Calls of several tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calls {
    pub tools: Vec<ToolCall>,
    pub around: Around,
}

/// What an answer has beside its calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Around {
    /// Nothing: it is a call, or a list of them.
    Marks {
        /// Ahead of the first call.
        open: String,
        /// Between two calls; `None` for one call.
        between: Option<String>,
        /// Behind the last call.
        close: String,
    },
    /// Text, in which this begins a call wherever it is; it is part of the begin of each.
    Text { trigger: String },
    /// Messages of text, of which one may be a call instead, which is the last one.
    Messages {
        /// Each begins a message of text.
        begins: Vec<String>,
        /// Between two messages; it begins with a special token.
        between: String,
    },
}

/// A call of one tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    pub begin: String,
    /// Where calls are numbered, in front of the arguments: what comes behind the number.
    pub behind_number: Option<String>,
    pub arguments: Arguments,
    pub end: String,
}

/// How a call's arguments are written, of which a JSON schema says what they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Arguments {
    Json(Value),
    /// One by one, each between marks.
    Keyed(KeyedArguments),
    /// `KEY=VALUE, …`, in Python's literals.
    Python(Value),
}

/// Text without special tokens.
const ANY: &str = "ANY: /(?s:.*)/\n";
/// A call's number.
const NUMBER: &str = "/[0-9]{1,4}/";

// === impl Calls ===

impl Calls {
    pub(super) fn text(&self) -> String {
        serde_json::to_string(self).expect("it is of texts and JSON")
    }
}

/// # Errors
/// Says which tool is wrong, and where in its schema.
pub(super) fn to_lark(calls: &Calls, vocabulary: &Vocabulary) -> Result<String, String> {
    let Calls { tools, around } = calls;
    if tools.is_empty() || tools.len() > TAGS_MAX {
        return Err(format!("give from 1 to {TAGS_MAX} of them"));
    }
    let breaks = Breaks {
        vocabulary,
        are_free: tools.iter().any(ToolCall::has_free_breaks),
    };
    let mut lark = around.to_lark(breaks)?;
    let mut ways = Vec::with_capacity(tools.len());
    let mut values = python::Values::default();
    for (place, tool) in tools.iter().enumerate() {
        let begin = match around {
            Around::Marks { .. } | Around::Messages { .. } => tool.begin.as_str(),
            Around::Text { trigger } => tool.behind(trigger)?,
        };
        let rule = format!("tool{place}");
        let call = tool.to_lark(&rule, begin, breaks, &mut values);
        let call = call.map_err(|error| format!("{:.100}: {error}", tool.begin.trim()))?;
        lark.push_str(&call);
        ways.push(rule);
    }
    let _infallible = write!(lark, "call: {}\n{}", ways.join(" | "), values.into_lark());
    Ok(lark)
}

/// How texts of marks become Lark.
#[derive(Clone, Copy)]
struct Breaks<'a> {
    vocabulary: &'a Vocabulary,
    /// Whether line breaks in them may be left out.
    are_free: bool,
}

// === impl Breaks ===

impl Breaks<'_> {
    fn lark_of(self, text: &str) -> String {
        if !self.are_free {
            return lark_of(text, self.vocabulary);
        }
        let lines: Vec<_> = text
            .split('\n')
            .map(|line| lark_of(line, self.vocabulary))
            .collect();
        lines.join(r#" "\n"? "#)
    }
}

// === impl Around ===

impl Around {
    /// Rule `start`, which needs rule `call`.
    fn to_lark(&self, breaks: Breaks<'_>) -> Result<String, String> {
        Ok(match self {
            Self::Marks {
                open,
                between,
                close,
            } => {
                let [open, close] = [open, close].map(|text| breaks.lark_of(text));
                let more = between
                    .as_ref()
                    .map(|text| format!("({} call)*", breaks.lark_of(text)));
                format!("start: {open} call {} {close}\n", more.unwrap_or_default())
            }
            Self::Text { trigger } => {
                let until = until("trigger", trigger, breaks.vocabulary)?;
                format!("{until}\nstart: (trigger call)* rest\nrest: ANY\n{ANY}")
            }
            Self::Messages { begins, between } => {
                let first = parts(between, breaks.vocabulary).first().copied();
                if !matches!(first, Some(Part::Special(_))) {
                    return Err(format!("{between:.100} begins with no token of this model"));
                }
                let begins: Vec<_> = begins.iter().map(|text| breaks.lark_of(text)).collect();
                let between = breaks.lark_of(between);
                format!(
                    "start: (text {between})* (text | call)\ntext: ({}) ANY\n{ANY}",
                    begins.join(" | ")
                )
            }
        })
    }
}

// === impl ToolCall ===

impl ToolCall {
    fn has_free_breaks(&self) -> bool {
        match &self.arguments {
            Arguments::Keyed(keyed) => keyed.has_free_breaks,
            Arguments::Json(_) | Arguments::Python(_) => false,
        }
    }

    /// Of its begin what comes behind the trigger.
    fn behind(&self, trigger: &str) -> Result<&str, String> {
        let at = self.begin.find(trigger).filter(|_| !trigger.is_empty());
        let at = at.ok_or_else(|| format!("{:.100} has no {trigger:.100}", self.begin))?;
        Ok(&self.begin[at + trigger.len()..])
    }

    /// Rule `rule`, and those that it needs.
    fn to_lark(
        &self,
        rule: &str,
        begin: &str,
        breaks: Breaks<'_>,
        values: &mut python::Values,
    ) -> Result<String, String> {
        let Self {
            behind_number,
            arguments,
            end,
            ..
        } = self;
        let long = [begin, end]
            .into_iter()
            .find(|text| text.len() > TEXT_BYTES_MAX);
        if let Some(text) = long {
            return Err(format!("{text:.100} is longer than {TEXT_BYTES_MAX} bytes"));
        }
        let (Arguments::Json(schema)
        | Arguments::Python(schema)
        | Arguments::Keyed(KeyedArguments { schema, .. })) = arguments;
        schema::check(schema).map_err(|error| error.to_string())?;
        let (arguments, rules) = match arguments {
            Arguments::Json(schema) => {
                let schema = with_options(schema.clone());
                (format!("%json {schema}"), String::new())
            }
            Arguments::Keyed(keyed) => {
                let rules = keyed.to_lark(&format!("{rule}args"), breaks);
                let rules = rules.map_err(|error| error.to_string())?;
                (format!("{rule}args"), rules)
            }
            Arguments::Python(schema) => {
                let arguments = values.arguments(schema);
                (arguments.map_err(|error| error.to_string())?, String::new())
            }
        };
        let [begin, end] = [begin, end].map(|text| breaks.lark_of(text));
        let number = behind_number
            .as_ref()
            .map(|text| format!("{NUMBER} {}", breaks.lark_of(text)));
        let number = number.unwrap_or_default();
        Ok(format!(
            "{rule}: {begin} {number} {arguments} {end}\n{rules}"
        ))
    }
}

#[cfg(test)]
mod tests;
