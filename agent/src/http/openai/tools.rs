//! Tools of a chat: what a request offers the model to call.

use super::OpenAiRequest;
use crate::http::constraint::Constraint;
use crate::http::dialect::Dialect;
use crate::http::error::ApiError;
use crate::service::answer_forms::{AnswerForms, Toolless};
use pd_answers::{AmongText, ArgumentsFrame, CallFrame, KeyedFrame, MessageFrame};
use pd_answers::{ToolForm, ToolTypes, Written};
use pd_engine::grammar::{Arguments, Around, Calls, KeyedArguments, TextParameter, ToolCall};
use pd_engine::text::TemplateValue;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashSet};

/// Longest name of a tool; OpenAI's bound is 64.
const NAME_BYTES_MAX: usize = 256;

/// What a request says of its tools.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "tool_choice is \"none\", \"auto\", \"required\", or a function's name in an object"
)]
pub(crate) enum ToolChoice {
    Mode(String),
    Named(NamedTool),
}

#[derive(Debug, Deserialize)]
pub(crate) struct NamedTool {
    function: NamedFunction,
}

#[derive(Debug, Deserialize)]
struct NamedFunction {
    name: String,
}

/// Tools that answers may call.
#[derive(Debug)]
pub(crate) struct Tools {
    /// As the client gave them, for the chat template.
    pub(crate) offered: Vec<TemplateValue>,
    pub(crate) types: ToolTypes,
    /// Whether an answer may call more than one.
    pub(crate) parallel: bool,
    /// What the choice and strict schemas ask of an answer.
    pub(crate) constraint: Option<Constraint>,
}

/// A tool as far as it is read here.
#[derive(Clone)]
struct Function {
    name: String,
    parameters: Value,
    /// Whether calls keep to the schema of the parameters.
    strict: bool,
}

/// What answers are to do with the tools.
enum Choice {
    Nothing,
    AsTheyLike,
    /// Call one of them, or more, and do nothing else.
    Call(Vec<Function>),
}

// === impl ToolChoice ===

impl ToolChoice {
    pub(crate) fn named(name: String) -> Self {
        Self::Named(NamedTool {
            function: NamedFunction { name },
        })
    }
}

// === impl Tools ===

impl Tools {
    /// Takes the tools out of a request; `None` when its answers are to call none.
    ///
    /// # Errors
    /// 400 for a tool that is not whole, for two of one name, for a choice that cannot be kept, and when the model
    /// cannot call tools.
    pub(crate) fn take(
        request: &mut OpenAiRequest<bool>,
        forms: &AnswerForms,
        dialect: Dialect,
    ) -> Result<Option<Self>, ApiError> {
        let offered = request.tools.take().unwrap_or_default();
        let chosen = choose(&offered, request.tool_choice.take(), forms, dialect)?;
        let Some((functions, choice, form)) = chosen else {
            return Ok(None);
        };
        let parallel = request.parallel_tool_calls.unwrap_or(true);
        let schemas = functions.iter().map(|f| (f.name.as_str(), &f.parameters));
        let types = ToolTypes::new(schemas);
        Ok(Some(Self {
            offered,
            parallel,
            constraint: match choice {
                Choice::Call(named) => Some(required(form, named, &types, parallel)?),
                Choice::Nothing | Choice::AsTheyLike => strict(form, functions, &types, dialect)?,
            },
            types,
        }))
    }
}

/// The tools of which the template writes: those of a chat with these fields.
///
/// # Errors
/// As [`Tools::take`].
pub(crate) fn offered(
    tools: Vec<TemplateValue>,
    choice: Option<ToolChoice>,
    forms: &AnswerForms,
    dialect: Dialect,
) -> Result<Vec<TemplateValue>, ApiError> {
    let chosen = choose(&tools, choice, forms, dialect)?;
    Ok(chosen.map_or_else(Vec::new, |_| tools))
}

/// The functions, what answers are to do with them, and how they are called; `None` when answers are to call none.
fn choose(
    tools: &[TemplateValue],
    choice: Option<ToolChoice>,
    forms: &AnswerForms,
    dialect: Dialect,
) -> Result<Option<(Vec<Function>, Choice, ToolForm)>, ApiError> {
    let functions = tools.iter().enumerate();
    let functions = functions.map(|(index, tool)| read(index, tool, dialect));
    let functions = functions.collect::<Result<Vec<Function>, ApiError>>()?;
    check_names(&functions, dialect)?;
    let choice = read_choice(choice, &functions)?;
    if functions.is_empty() || matches!(choice, Choice::Nothing) {
        return Ok(None);
    }
    let form = forms.tool_form().map_err(refusal)?;
    Ok(Some((functions, choice, form)))
}

/// Calls of some of `functions`, and nothing else.
fn required(
    form: ToolForm,
    functions: Vec<Function>,
    types: &ToolTypes,
    parallel: bool,
) -> Result<Constraint, ApiError> {
    let frame = form.frame();
    if let Some(Function { name, .. }) = functions.iter().find(|f| !form.can_name(&f.name)) {
        let message = format!(
            "a call of `{name}` cannot be required in the form {form}; give a name of letters, digits, `_` and `.`"
        );
        return Err(ApiError::field("tools", message));
    }
    let tools = functions.into_iter().map(|f| f.call(&frame, types));
    Ok(Constraint::of_calls(Calls {
        tools: tools.collect(),
        around: Around::Marks {
            open: frame.open.to_owned(),
            between: frame.between.filter(|_| parallel).map(str::to_owned),
            close: frame.close.to_owned(),
        },
    }))
}

/// Text with calls in it, which keep to the schemas of strict functions; `None` if there is none.
fn strict(
    form: ToolForm,
    functions: Vec<Function>,
    types: &ToolTypes,
    dialect: Dialect,
) -> Result<Option<Constraint>, ApiError> {
    let Some(index) = functions.iter().position(|f| f.strict) else {
        return Ok(None);
    };
    let frame = form.frame();
    let around = match frame.among_text {
        AmongText::Mark(mark) => Around::Text {
            trigger: mark.to_owned(),
        },
        AmongText::Messages(MessageFrame { begins, between }) => Around::Messages {
            begins: begins.iter().map(|&begin| begin.to_owned()).collect(),
            between: between.to_owned(),
        },
        AmongText::Unmarked => {
            let instead = format!(
                "in the form {form}, calls keep to their schemas only where `tool_choice` requires a call; leave it out"
            );
            let field = format!("tools[{index}]{}.strict", dialect.function);
            return Err(ApiError::unsupported(&field, &instead));
        }
    };
    let tools = functions.into_iter().map(|f| f.call(&frame, types));
    Ok(Some(Constraint::of_calls(Calls {
        tools: tools.collect(),
        around,
    })))
}

// === impl Function ===

impl Function {
    /// A call of it, as a form frames it.
    fn call(self, frame: &CallFrame, types: &ToolTypes) -> ToolCall {
        let schema = if self.parameters.is_null() {
            json!({"type": "object", "additionalProperties": false})
        } else {
            self.parameters
        };
        ToolCall {
            begin: format!(
                "{}{}{}",
                frame.before_name, self.name, frame.before_arguments
            ),
            behind_number: frame.behind_number.map(str::to_owned),
            arguments: match frame.arguments {
                ArgumentsFrame::Json => Arguments::Json(schema),
                ArgumentsFrame::Python => Arguments::Python(schema),
                ArgumentsFrame::Keyed(keyed) => {
                    Arguments::Keyed(keyed_arguments(keyed, &self.name, schema, types))
                }
            },
            end: frame.end.to_owned(),
        }
    }
}

/// The arguments of a tool as a form writes them one by one, each to be read as it is read.
fn keyed_arguments(
    frame: KeyedFrame,
    tool: &str,
    schema: Value,
    types: &ToolTypes,
) -> KeyedArguments {
    let properties = schema["properties"].as_object();
    let named = properties
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str());
    let required = schema["required"].as_array().into_iter().flatten();
    let names: BTreeSet<&str> = named.chain(required.filter_map(Value::as_str)).collect();
    let text = |name: &str| match types.written(tool, name) {
        Written::Text { or_null } => Some(TextParameter {
            name: name.to_owned(),
            or_null,
        }),
        Written::Json => None,
    };
    KeyedArguments {
        before_key: frame.before_key.to_owned(),
        before_value: frame.before_value.to_owned(),
        end: frame.end.to_owned(),
        has_free_breaks: frame.has_free_breaks,
        texts: names.into_iter().filter_map(text).collect(),
        schema,
    }
}

fn refusal(why: Toolless) -> ApiError {
    let message = match why {
        Toolless::Template => {
            "the model's chat template does not take tools; serve it with a --chat-template that does, or leave them out"
        }
        Toolless::Form => {
            "the form of this model's tool calls is unknown; name it by --tool-call-parser, or leave the tools out"
        }
    };
    ApiError::field("tools", message)
}

fn read(index: usize, tool: &TemplateValue, dialect: Dialect) -> Result<Function, ApiError> {
    let wrong = |place: &str, message: String| {
        Err(ApiError::field(format!("tools[{index}]{place}"), message))
    };
    let tool = serde_json::to_value(tool).unwrap_or_default();
    match tool.get("type").and_then(Value::as_str) {
        Some("function") => {}
        Some(other) => {
            let message = format!("tools of type `{other}` are not supported; give functions");
            return wrong(".type", message);
        }
        None => {
            return wrong(
                ".type",
                "a tool has no `type`; give \"function\"".to_owned(),
            );
        }
    }
    let function = &tool["function"];
    let name = function
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let is_in_name = |c: char| c.is_alphanumeric() || "_-.:/".contains(c);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_in_name) {
        let message = format!(
            "a function has a name of 1 to {NAME_BYTES_MAX} bytes, of letters, digits and `_-.:/`"
        );
        return wrong(&format!("{}.name", dialect.function), message);
    }
    let parameters = &function["parameters"];
    if !parameters.is_object() && !parameters.is_null() {
        let message = "parameters are a JSON schema, an object; leave them out if there are none";
        let place = format!("{}.parameters", dialect.function);
        return wrong(&place, message.to_owned());
    }
    Ok(Function {
        name: name.to_owned(),
        parameters: parameters.clone(),
        strict: function.get("strict") == Some(&Value::Bool(true)),
    })
}

fn check_names(functions: &[Function], dialect: Dialect) -> Result<(), ApiError> {
    let mut names = HashSet::new();
    for (index, Function { name, .. }) in functions.iter().enumerate() {
        if !names.insert(name) {
            let message = format!("another tool is named `{name}`, too; give each its own name");
            return Err(ApiError::field(
                format!("tools[{index}]{}.name", dialect.function),
                message,
            ));
        }
    }
    Ok(())
}

/// What the choice asks of answers.
fn read_choice(choice: Option<ToolChoice>, functions: &[Function]) -> Result<Choice, ApiError> {
    let wrong = |message: String| Err(ApiError::field("tool_choice", message));
    match choice {
        None => Ok(Choice::AsTheyLike),
        Some(ToolChoice::Mode(mode)) => match mode.as_str() {
            "auto" => Ok(Choice::AsTheyLike),
            "none" => Ok(Choice::Nothing),
            "required" if functions.is_empty() => {
                wrong("a call is required, but `tools` is missing or empty".to_owned())
            }
            "required" => Ok(Choice::Call(functions.to_vec())),
            other => wrong(format!(
                "`{other}` is no choice; give \"none\", \"auto\", \"required\", or a function's name in an object"
            )),
        },
        Some(ToolChoice::Named(NamedTool { function })) => {
            match functions.iter().find(|f| f.name == function.name) {
                Some(named) => Ok(Choice::Call(vec![named.clone()])),
                None => wrong(format!("`tools` has no function `{}`", function.name)),
            }
        }
    }
}

#[cfg(test)]
mod tests;
