//! Tools of a chat: what a request offers the model to call.

use super::OpenAiRequest;
use crate::http::error::ApiError;
use crate::service::answer_forms::{AnswerForms, Toolless};
use pd_answers::ToolTypes;
use pd_engine::text::TemplateValue;
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashSet;

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
}

/// A tool as far as it is read here.
struct Function {
    name: String,
    parameters: Value,
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
    ) -> Result<Option<Self>, ApiError> {
        let offered = request.tools.take().unwrap_or_default();
        let functions = offered.iter().enumerate();
        let functions = functions.map(|(index, tool)| read(index, tool));
        let functions = functions.collect::<Result<Vec<Function>, ApiError>>()?;
        check_names(&functions)?;
        let calls = check_choice(request.tool_choice.take(), &functions)?;
        if functions.is_empty() || !calls {
            return Ok(None);
        }
        forms.check_tools().map_err(refusal)?;
        let schemas = functions.iter().map(|f| (f.name.as_str(), &f.parameters));
        Ok(Some(Self {
            types: ToolTypes::new(schemas),
            offered,
            parallel: request.parallel_tool_calls.unwrap_or(true),
        }))
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

fn read(index: usize, tool: &TemplateValue) -> Result<Function, ApiError> {
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
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(char::is_whitespace) {
        let message =
            format!("a function has a name of 1 to {NAME_BYTES_MAX} bytes without white space");
        return wrong(".function.name", message);
    }
    if function.get("strict") == Some(&Value::Bool(true)) {
        return Err(ApiError::unsupported(
            &format!("tools[{index}].function.strict"),
            "answers are not constrained to a grammar; leave it out",
        ));
    }
    let parameters = &function["parameters"];
    if !parameters.is_object() && !parameters.is_null() {
        let message = "parameters are a JSON schema, an object; leave them out if there are none";
        return wrong(".function.parameters", message.to_owned());
    }
    Ok(Function {
        name: name.to_owned(),
        parameters: parameters.clone(),
    })
}

fn check_names(functions: &[Function]) -> Result<(), ApiError> {
    let mut names = HashSet::new();
    for (index, Function { name, .. }) in functions.iter().enumerate() {
        if !names.insert(name) {
            let message = format!("another tool is named `{name}`, too; give each its own name");
            return Err(ApiError::field(
                format!("tools[{index}].function.name"),
                message,
            ));
        }
    }
    Ok(())
}

/// Whether answers may call tools.
fn check_choice(choice: Option<ToolChoice>, functions: &[Function]) -> Result<bool, ApiError> {
    const UNCONSTRAINED: &str =
        "answers are not constrained to a grammar; give \"auto\" or \"none\"";
    let wrong = |message: String| Err(ApiError::field("tool_choice", message));
    match choice {
        None => Ok(true),
        Some(ToolChoice::Mode(mode)) => match mode.as_str() {
            "auto" => Ok(true),
            "none" => Ok(false),
            "required" if functions.is_empty() => {
                wrong("a call is required, but `tools` is missing or empty".to_owned())
            }
            "required" => Err(ApiError::unsupported("tool_choice", UNCONSTRAINED)),
            other => wrong(format!(
                "`{other}` is no choice; give \"none\", \"auto\", \"required\", or a function's name in an object"
            )),
        },
        Some(ToolChoice::Named(NamedTool { function })) => {
            if functions.iter().any(|f| f.name == function.name) {
                return Err(ApiError::unsupported("tool_choice", UNCONSTRAINED));
            }
            wrong(format!("`tools` has no function `{}`", function.name))
        }
    }
}

#[cfg(test)]
mod tests;
