//! What forms write around calls and thoughts, for grammars that make a model write in them.

use crate::pythonic;
use crate::reader::Prompt;
use crate::reasoning::ReasoningForm;
use crate::tools::ToolForm;

/// What a form writes around calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallFrame {
    /// Ahead of the first call.
    pub open: &'static str,
    /// Ahead of a call's name.
    pub before_name: &'static str,
    /// Between the name and the arguments.
    pub before_arguments: &'static str,
    /// Where calls are numbered, in front of the arguments: what comes behind the number.
    pub behind_number: Option<&'static str>,
    pub arguments: ArgumentsFrame,
    /// Behind the arguments.
    pub end: &'static str,
    /// Between two calls; `None` for forms of which only one can be framed.
    pub between: Option<&'static str>,
    /// Behind the last call.
    pub close: &'static str,
    pub among_text: AmongText,
}

/// Where calls are in an answer that has text, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmongText {
    /// This begins each call, and nothing else.
    Mark(&'static str),
    /// A call is a message, behind others of text.
    Messages(MessageFrame),
    /// Nothing sets them apart before they are read.
    Unmarked,
}

/// What is around messages that are no calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageFrame {
    /// Each begins one.
    pub begins: &'static [&'static str],
    /// Between two messages.
    pub between: &'static str,
}

/// How a form writes a call's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentsFrame {
    /// One JSON object.
    Json,
    /// One by one: strings as they are, other values as JSON.
    Keyed(KeyedFrame),
    /// `KEY=VALUE, …`, in Python's literals.
    Python,
}

/// What a form writes around each argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyedFrame {
    pub before_key: &'static str,
    /// Between the key and its value.
    pub before_value: &'static str,
    /// Behind the value.
    pub end: &'static str,
    /// Whether line breaks between marks, and around calls, may be left out.
    pub has_free_breaks: bool,
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

/// Calls as JSON, without marks; what forms have in common.
const JSON: CallFrame = CallFrame {
    open: "",
    before_name: "{\"name\": \"",
    before_arguments: "\", \"arguments\": ",
    behind_number: None,
    arguments: ArgumentsFrame::Json,
    end: "}",
    between: Some(", "),
    close: "",
    among_text: AmongText::Unmarked,
};

const HERMES: CallFrame = CallFrame {
    before_name: "<tool_call>\n{\"name\": \"",
    end: "}\n</tool_call>",
    between: Some("\n"),
    among_text: AmongText::Mark("<tool_call>"),
    ..JSON
};

const LLAMA3: CallFrame = CallFrame {
    before_arguments: "\", \"parameters\": ",
    between: Some("; "),
    ..JSON
};

const MISTRAL: CallFrame = CallFrame {
    open: "[TOOL_CALLS][",
    close: "]",
    ..JSON
};

const DEEPSEEK_V3: CallFrame = CallFrame {
    open: "<｜tool▁calls▁begin｜>",
    before_name: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
    before_arguments: "\n```json\n",
    end: "\n```<｜tool▁call▁end｜>",
    between: Some("\n"),
    close: "<｜tool▁calls▁end｜>",
    among_text: AmongText::Mark("<｜tool▁call▁begin｜>"),
    ..JSON
};

const DEEPSEEK_V31: CallFrame = CallFrame {
    open: "<｜tool▁calls▁begin｜>",
    before_name: "<｜tool▁call▁begin｜>",
    before_arguments: "<｜tool▁sep｜>",
    end: "<｜tool▁call▁end｜>",
    between: Some(""),
    close: "<｜tool▁calls▁end｜>",
    among_text: AmongText::Mark("<｜tool▁call▁begin｜>"),
    ..JSON
};

const KIMI_K2: CallFrame = CallFrame {
    open: "<|tool_calls_section_begin|>",
    before_name: "<|tool_call_begin|>functions.",
    before_arguments: ":",
    behind_number: Some("<|tool_call_argument_begin|>"),
    end: "<|tool_call_end|>",
    between: Some(""),
    close: "<|tool_calls_section_end|>",
    among_text: AmongText::Mark("<|tool_call_begin|>"),
    ..JSON
};

/// An answer ends with its call.
const HARMONY: CallFrame = CallFrame {
    before_name: "<|channel|>commentary to=functions.",
    before_arguments: " <|constrain|>json<|message|>",
    end: "",
    between: None,
    among_text: AmongText::Messages(MessageFrame {
        begins: &[
            "<|channel|>analysis<|message|>",
            "<|channel|>commentary<|message|>",
            "<|channel|>final<|message|>",
        ],
        between: "<|end|><|start|>assistant",
    }),
    ..JSON
};

const QWEN3_CODER: CallFrame = CallFrame {
    before_name: "<tool_call>\n<function=",
    before_arguments: ">\n",
    arguments: ArgumentsFrame::Keyed(KeyedFrame {
        before_key: "<parameter=",
        before_value: ">\n",
        end: "\n</parameter>\n",
        has_free_breaks: false,
    }),
    end: "</function>\n</tool_call>",
    between: Some("\n"),
    among_text: AmongText::Mark("<function="),
    ..JSON
};

/// GLM-4.5 and 4.6 break lines, GLM-4.7 does not.
const GLM45: CallFrame = CallFrame {
    open: "\n",
    before_name: "<tool_call>",
    before_arguments: "\n",
    arguments: ArgumentsFrame::Keyed(KeyedFrame {
        before_key: "<arg_key>",
        before_value: "</arg_key>\n<arg_value>",
        end: "</arg_value>\n",
        has_free_breaks: true,
    }),
    end: "</tool_call>",
    between: Some("\n"),
    among_text: AmongText::Mark("<tool_call>"),
    ..JSON
};

const PYTHONIC: CallFrame = CallFrame {
    open: "[",
    before_name: "",
    before_arguments: "(",
    arguments: ArgumentsFrame::Python,
    end: ")",
    close: "]",
    ..JSON
};

// === impl ToolForm ===

impl ToolForm {
    pub const fn frame(self) -> CallFrame {
        match self {
            Self::Qwen25 | Self::Hermes => HERMES,
            Self::Llama3 => LLAMA3,
            Self::Mistral => MISTRAL,
            Self::DeepseekV3 => DEEPSEEK_V3,
            Self::DeepseekV31 => DEEPSEEK_V31,
            Self::KimiK2 => KIMI_K2,
            Self::Harmony => HARMONY,
            Self::Qwen3Coder => QWEN3_CODER,
            Self::Glm45 => GLM45,
            Self::Pythonic => PYTHONIC,
        }
    }

    /// Whether calls of the form can name such a tool.
    pub fn can_name(self, tool: &str) -> bool {
        self != Self::Pythonic || pythonic::is_name(tool)
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
