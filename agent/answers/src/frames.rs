//! What forms write around calls and thoughts, for grammars that make a model write in them.

use crate::reader::Prompt;
use crate::reasoning::ReasoningForm;
use crate::tools::ToolForm;

/// What a form writes around calls whose arguments are JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallFrame {
    /// Ahead of the first call.
    pub open: &'static str,
    /// Ahead of a call's name.
    pub before_name: &'static str,
    /// Between the name and the arguments.
    pub before_arguments: &'static str,
    /// Behind the arguments.
    pub end: &'static str,
    /// Between two calls; `None` for forms of which only one can be framed.
    pub between: Option<&'static str>,
    /// Behind the last call.
    pub close: &'static str,
    /// What begins each call, and nothing else in a text; `None` for forms whose calls have more around them.
    pub trigger: Option<&'static str>,
}

/// What a form writes around a thought, ahead of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThoughtFrame {
    /// Begins it, unless the answer begins inside; there may be none then.
    pub open: Option<&'static str>,
    pub close: &'static str,
    /// Ahead of a text, with a thought or without.
    pub lead: &'static str,
}

// === impl ToolForm ===

impl ToolForm {
    /// `None` for forms that write arguments in another way than JSON.
    pub const fn frame(self) -> Option<CallFrame> {
        let frame = match self {
            Self::Qwen25 | Self::Hermes => CallFrame {
                open: "",
                before_name: "<tool_call>\n{\"name\": \"",
                before_arguments: "\", \"arguments\": ",
                end: "}\n</tool_call>",
                between: Some("\n"),
                close: "",
                trigger: Some("<tool_call>"),
            },
            Self::Llama3 => CallFrame {
                open: "",
                before_name: "{\"name\": \"",
                before_arguments: "\", \"parameters\": ",
                end: "}",
                between: Some("; "),
                close: "",
                trigger: None,
            },
            Self::Mistral => CallFrame {
                open: "[TOOL_CALLS][",
                before_name: "{\"name\": \"",
                before_arguments: "\", \"arguments\": ",
                end: "}",
                between: Some(", "),
                close: "]",
                trigger: None,
            },
            Self::DeepseekV3 => CallFrame {
                open: "<｜tool▁calls▁begin｜>",
                before_name: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
                before_arguments: "\n```json\n",
                end: "\n```<｜tool▁call▁end｜>",
                between: Some("\n"),
                close: "<｜tool▁calls▁end｜>",
                trigger: None,
            },
            Self::DeepseekV31 => CallFrame {
                open: "<｜tool▁calls▁begin｜>",
                before_name: "<｜tool▁call▁begin｜>",
                before_arguments: "<｜tool▁sep｜>",
                end: "<｜tool▁call▁end｜>",
                between: Some(""),
                close: "<｜tool▁calls▁end｜>",
                trigger: None,
            },
            // Its ids count the calls, which no frame does.
            Self::KimiK2 => CallFrame {
                open: "<|tool_calls_section_begin|>",
                before_name: "<|tool_call_begin|>functions.",
                before_arguments: ":0<|tool_call_argument_begin|>",
                end: "<|tool_call_end|>",
                between: None,
                close: "<|tool_calls_section_end|>",
                trigger: None,
            },
            // An answer ends with its call.
            Self::Harmony => CallFrame {
                open: "<|channel|>commentary to=functions.",
                before_name: "",
                before_arguments: " <|constrain|>json<|message|>",
                end: "",
                between: None,
                close: "",
                trigger: None,
            },
            Self::Qwen3Coder | Self::Glm45 | Self::Pythonic => return None,
        };
        Some(frame)
    }
}

// === impl ReasoningForm ===

impl ReasoningForm {
    /// What may come ahead of an answer behind `prompt`; `None` where no thought can.
    pub fn frame(self, prompt: Prompt<'_>) -> Option<ThoughtFrame> {
        if self == Self::Harmony {
            return matches!(prompt, Prompt::Opened(_)).then_some(ThoughtFrame {
                open: Some("<|channel|>analysis<|message|>"),
                close: "<|end|><|start|>assistant",
                lead: "<|channel|>final<|message|>",
            });
        }
        let (marks, is_inside) = self.begins(prompt)?;
        Some(ThoughtFrame {
            open: (!is_inside).then_some(marks.open),
            close: marks.close,
            lead: "",
        })
    }
}

#[cfg(test)]
mod tests;
