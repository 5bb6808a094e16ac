//! The forms in which families write calls of tools.

use crate::Piece;
use crate::forms::{UnknownForm, named, of_template};
use crate::harmony;
use crate::keyed::{Keyed, KeyedForm};
use crate::marked::{CallForm, Marked, MarkedForm};
use crate::pythonic::{self, Pythonic};
use crate::surface::CallMarks;
use crate::types::ToolTypes;
use std::fmt::{self, Debug};
use std::str::FromStr;

/// How a family writes calls, under the names of SGLang's `--tool-call-parser`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolForm {
    /// `<tool_call>{"name": …, "arguments": {…}}</tool_call>`: Qwen2.5, Qwen3, Hermes.
    Qwen25,
    Hermes,
    /// `<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>`: Qwen3-Coder, Qwen3.5.
    Qwen3Coder,
    /// `{"name": …, "parameters": {…}}`, behind `<|python_tag|>` or as the whole answer.
    Llama3,
    /// `[TOOL_CALLS] [{"name": …, "arguments": {…}}]`, or `[TOOL_CALLS]NAME[ARGS]{…}`.
    Mistral,
    /// `<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME`, then the arguments in a fence.
    DeepseekV3,
    /// `<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜>`.
    DeepseekV31,
    /// `<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>`.
    Glm45,
    /// `<|tool_call_begin|>functions.NAME:INDEX<|tool_call_argument_begin|>{…}<|tool_call_end|>`.
    KimiK2,
    /// `[NAME(KEY=VALUE, …), …]`, in Python's literals: Llama 3.2 and 4.
    Pythonic,
    /// Channels of gpt-oss.
    Harmony,
}

/// Reads calls out of the text of one answer.
pub(crate) trait ToolReader: Debug + Send {
    fn push(&mut self, text: &str, pieces: &mut Vec<Piece>);
    fn end(&mut self, pieces: &mut Vec<Piece>);
}

/// SGLang's further names of these forms.
const OTHER_NAMES: &[(&str, ToolForm)] = &[
    ("qwen", ToolForm::Qwen25),
    ("nanbeige", ToolForm::Qwen3Coder),
    ("step3p5", ToolForm::Qwen3Coder),
    ("glm", ToolForm::Glm45),
    ("glm47", ToolForm::Glm45),
];

/// What a chat template that takes tools writes of each form, the most particular first.
const SIGNS: &[(&[&str], ToolForm)] = &[
    (&["<|channel|>", "<|message|>"], ToolForm::Harmony),
    (
        &["<|tool_call_begin|>", "<|tool_call_argument_begin|>"],
        ToolForm::KimiK2,
    ),
    (&["<｜tool▁call▁begin｜>", "```json"], ToolForm::DeepseekV3),
    (&["<｜tool▁call▁begin｜>"], ToolForm::DeepseekV31),
    (&["<tool_call>", "<arg_key>"], ToolForm::Glm45),
    (
        &["<tool_call>", "<function=", "<parameter="],
        ToolForm::Qwen3Coder,
    ),
    (&["<tool_call>", "{\"name\""], ToolForm::Hermes),
    // Inside a string of the template.
    (&["<tool_call>", "{\\\"name\\\""], ToolForm::Hermes),
    (&["[TOOL_CALLS]"], ToolForm::Mistral),
    (&["[func_name1("], ToolForm::Pythonic),
    (
        &["\"parameters\": dictionary of argument name"],
        ToolForm::Llama3,
    ),
];

// === impl ToolForm ===

impl ToolForm {
    pub const ALL: [Self; 11] = [
        Self::Qwen25,
        Self::Hermes,
        Self::Qwen3Coder,
        Self::Llama3,
        Self::Mistral,
        Self::DeepseekV3,
        Self::DeepseekV31,
        Self::Glm45,
        Self::KimiK2,
        Self::Pythonic,
        Self::Harmony,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Qwen25 => "qwen25",
            Self::Hermes => "hermes",
            Self::Qwen3Coder => "qwen3_coder",
            Self::Llama3 => "llama3",
            Self::Mistral => "mistral",
            Self::DeepseekV3 => "deepseekv3",
            Self::DeepseekV31 => "deepseekv31",
            Self::Glm45 => "glm45",
            Self::KimiK2 => "kimi_k2",
            Self::Pythonic => "pythonic",
            Self::Harmony => "gpt-oss",
        }
    }

    /// The form that a chat template asks for, if it is one of these.
    pub fn of_template(template: &str) -> Option<Self> {
        // Lists of calls in one element look like single ones otherwise.
        of_template(template, SIGNS).filter(|_| !template.contains("<tool_calls>"))
    }

    /// All marks of the form: a tokenizer may have them as special tokens.
    pub fn all_marks(self) -> Vec<&'static str> {
        match self {
            Self::Qwen25 | Self::Hermes => HERMES.all_marks(),
            Self::Llama3 => LLAMA3.all_marks(),
            Self::Mistral => MISTRAL.all_marks(),
            Self::DeepseekV3 => DEEPSEEK_V3.all_marks(),
            Self::DeepseekV31 => DEEPSEEK_V31.all_marks(),
            Self::KimiK2 => KIMI_K2.all_marks(),
            Self::Qwen3Coder => QWEN3_CODER.all_marks(),
            Self::Glm45 => GLM45.all_marks(),
            Self::Pythonic => pythonic::MARKS.to_vec(),
            Self::Harmony => harmony::MARKS.to_vec(),
        }
    }

    /// An id for a call that its model gave none. Templates of Mistral take nine letters and digits only.
    pub fn call_id(self, drawn: u128) -> String {
        match self {
            Self::Mistral => format!("{:09x}", drawn >> 92),
            Self::Qwen25
            | Self::Hermes
            | Self::Qwen3Coder
            | Self::Llama3
            | Self::DeepseekV3
            | Self::DeepseekV31
            | Self::Glm45
            | Self::KimiK2
            | Self::Pythonic
            | Self::Harmony => format!("call_{:024x}", drawn >> 32),
        }
    }

    /// `None` for channels, which [`Harmony`](crate::harmony::Harmony) reads.
    pub(crate) fn reader(self, types: ToolTypes) -> Option<Box<dyn ToolReader>> {
        let marked = match self {
            Self::Qwen25 | Self::Hermes => &HERMES,
            Self::Llama3 => &LLAMA3,
            Self::Mistral => &MISTRAL,
            Self::DeepseekV3 => &DEEPSEEK_V3,
            Self::DeepseekV31 => &DEEPSEEK_V31,
            Self::KimiK2 => &KIMI_K2,
            Self::Qwen3Coder => return Some(Box::new(Keyed::new(&QWEN3_CODER, types))),
            Self::Glm45 => return Some(Box::new(Keyed::new(&GLM45, types))),
            Self::Pythonic => return Some(Box::new(Pythonic::default())),
            Self::Harmony => return None,
        };
        Some(Box::new(Marked::new(marked)))
    }
}

impl fmt::Display for ToolForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ToolForm {
    type Err = UnknownForm;

    fn from_str(given: &str) -> Result<Self, UnknownForm> {
        named(
            given,
            "tool call parser",
            &Self::ALL,
            Self::name,
            OTHER_NAMES,
        )
    }
}

// === the forms ===

static HERMES: MarkedForm = MarkedForm {
    marks: CallMarks {
        begin: "<tool_call>",
        opens: &[],
        closes: &["</tool_call>"],
    },
    call: CallForm::Object { between: "" },
    may_be_bare: false,
};

static LLAMA3: MarkedForm = MarkedForm {
    marks: CallMarks {
        begin: "<|python_tag|>",
        opens: &[],
        closes: &["<|eom_id|>"],
    },
    call: CallForm::Object { between: ";" },
    may_be_bare: true,
};

static MISTRAL: MarkedForm = MarkedForm {
    marks: CallMarks {
        begin: "[TOOL_CALLS]",
        opens: &[],
        closes: &[],
    },
    call: CallForm::Either {
        between: "[],",
        header_end: "[ARGS]",
        name: |header| match header.split_once("[CALL_ID]") {
            Some((name, id)) => (name, Some(id)),
            None => (header, None),
        },
    },
    may_be_bare: false,
};

static DEEPSEEK_V3: MarkedForm = MarkedForm {
    marks: CallMarks {
        begin: "<｜tool▁call▁begin｜>",
        opens: &["<｜tool▁calls▁begin｜>"],
        closes: &["```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"],
    },
    call: CallForm::Header {
        end: "```json",
        name: |header| match header.split_once("<｜tool▁sep｜>") {
            Some((_, name)) => (name, None),
            None => (header, None),
        },
    },
    may_be_bare: false,
};

static DEEPSEEK_V31: MarkedForm = MarkedForm {
    marks: CallMarks {
        begin: "<｜tool▁call▁begin｜>",
        opens: &["<｜tool▁calls▁begin｜>"],
        closes: &["<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"],
    },
    call: CallForm::Header {
        end: "<｜tool▁sep｜>",
        name: |header| (header, None),
    },
    may_be_bare: false,
};

static KIMI_K2: MarkedForm = MarkedForm {
    marks: CallMarks {
        begin: "<|tool_call_begin|>",
        opens: &["<|tool_calls_section_begin|>"],
        closes: &["<|tool_call_end|>", "<|tool_calls_section_end|>"],
    },
    call: CallForm::Header {
        end: "<|tool_call_argument_begin|>",
        name: |header| {
            let name = header.trim();
            let name = name.strip_prefix("functions.").unwrap_or(name);
            let name = name.rsplit_once(':').map_or(name, |(name, _)| name);
            (name, Some(header))
        },
    },
    may_be_bare: false,
};

static QWEN3_CODER: KeyedForm = KeyedForm {
    marks: CallMarks {
        begin: "<function=",
        opens: &["<tool_call>"],
        closes: &["</tool_call>"],
    },
    name_ends: &[">"],
    key: ("<parameter=", ">"),
    value: ("", "</parameter>"),
    value_is_lines: true,
    ends: &["</function>"],
};

static GLM45: KeyedForm = KeyedForm {
    marks: CallMarks {
        begin: "<tool_call>",
        opens: &[],
        closes: &[],
    },
    name_ends: &["\n", "<arg_key>", "</tool_call>"],
    key: ("<arg_key>", "</arg_key>"),
    value: ("<arg_value>", "</arg_value>"),
    value_is_lines: false,
    ends: &["</tool_call>"],
};

#[cfg(test)]
pub(crate) mod tests;
