//! What a model thinks before it answers.

use crate::forms::{UnknownForm, named, of_template};
use crate::harmony;
use crate::marks::{Found, Tail, find};
use crate::{Piece, Prompt, put};
use std::fmt;
use std::str::FromStr;

/// How a family marks its reasoning, under the names of SGLang's `--reasoning-parser`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningForm {
    /// `<think>…</think>`, of models that always reason: answers begin inside.
    DeepseekR1,
    /// `<think>…</think>`, which the prompt or the answer opens where the model reasons.
    Qwen3,
    /// As [`Self::DeepseekR1`].
    Qwen3Thinking,
    Glm45,
    /// `◁think▷…◁/think▷`.
    Kimi,
    KimiK2,
    /// `[THINK]…[/THINK]`.
    Mistral,
    /// Channels of gpt-oss.
    Harmony,
}

/// SGLang's further names of these forms.
const OTHER_NAMES: &[(&str, ReasoningForm)] = &[
    ("deepseek-v3", ReasoningForm::Qwen3),
    ("dots", ReasoningForm::Qwen3),
    ("gigachat35", ReasoningForm::DeepseekR1),
    ("interns1", ReasoningForm::Qwen3),
    ("minimax", ReasoningForm::Qwen3Thinking),
    ("nanbeige", ReasoningForm::Qwen3),
    ("step3", ReasoningForm::DeepseekR1),
    ("step3p5", ReasoningForm::DeepseekR1),
];

/// What a chat template has of each form. Where an answer begins is seen in the prompt.
const SIGNS: &[(&[&str], ReasoningForm)] = &[
    (&["<|channel|>", "<|message|>"], ReasoningForm::Harmony),
    (&["◁think▷"], ReasoningForm::Kimi),
    (&["[THINK]"], ReasoningForm::Mistral),
    (&["</think>"], ReasoningForm::Qwen3),
];

/// One answer's reasoning, and where it ends.
#[derive(Debug)]
pub(crate) struct Reasoning {
    marks: Marks,
    at: At,
    /// Text that is not sure yet.
    input: String,
    /// White space at the end of the reasoning so far.
    tail: Tail,
    /// Whether white space at the beginning of the reasoning, or behind it, is over.
    begun: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks {
    pub(crate) open: &'static str,
    pub(crate) close: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Before an opening mark, which may not come.
    Before,
    /// Inside from the first character on; a mark that opens it again is passed over.
    First,
    Inside,
    Behind,
}

// === impl ReasoningForm ===

impl ReasoningForm {
    pub const ALL: [Self; 8] = [
        Self::DeepseekR1,
        Self::Qwen3,
        Self::Qwen3Thinking,
        Self::Glm45,
        Self::Kimi,
        Self::KimiK2,
        Self::Mistral,
        Self::Harmony,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::DeepseekR1 => "deepseek-r1",
            Self::Qwen3 => "qwen3",
            Self::Qwen3Thinking => "qwen3-thinking",
            Self::Glm45 => "glm45",
            Self::Kimi => "kimi",
            Self::KimiK2 => "kimi_k2",
            Self::Mistral => "mistral",
            Self::Harmony => "gpt-oss",
        }
    }

    /// The form that a chat template asks for, if it is one of these.
    pub fn of_template(template: &str) -> Option<Self> {
        of_template(template, SIGNS)
    }

    /// All marks of the form: a tokenizer may have them as special tokens.
    pub fn all_marks(self) -> Vec<&'static str> {
        let around = self.marks().map(|marks| vec![marks.open, marks.close]);
        around.unwrap_or_else(|| harmony::MARKS.to_vec())
    }

    /// `None` for channels.
    const fn marks(self) -> Option<Marks> {
        let (open, close) = match self {
            Self::Harmony => return None,
            Self::Kimi => ("◁think▷", "◁/think▷"),
            Self::Mistral => ("[THINK]", "[/THINK]"),
            Self::DeepseekR1 | Self::Qwen3 | Self::Qwen3Thinking | Self::Glm45 | Self::KimiK2 => {
                ("<think>", "</think>")
            }
        };
        Some(Marks { open, close })
    }

    /// The marks around a thought, and whether an answer behind `prompt` begins inside one; `None` if it can have none, and
    /// for channels.
    pub(crate) fn begins(self, prompt: Prompt<'_>) -> Option<(Marks, bool)> {
        let marks = self.marks()?;
        match Reasoning::new(self, prompt)?.at {
            At::Before => Some((marks, false)),
            At::First | At::Inside => Some((marks, true)),
            At::Behind => None,
        }
    }

    const fn begins_inside(self) -> bool {
        matches!(self, Self::DeepseekR1 | Self::Qwen3Thinking | Self::KimiK2)
    }
}

impl fmt::Display for ReasoningForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ReasoningForm {
    type Err = UnknownForm;

    fn from_str(given: &str) -> Result<Self, UnknownForm> {
        named(
            given,
            "reasoning parser",
            &Self::ALL,
            Self::name,
            OTHER_NAMES,
        )
    }
}

// === impl Reasoning ===

impl Reasoning {
    /// Of an answer that goes on behind `prompt`. `None` for channels, which [`Harmony`](crate::harmony::Harmony) reads.
    pub(crate) fn new(form: ReasoningForm, prompt: Prompt<'_>) -> Option<Self> {
        let marks = form.marks()?;
        Some(Self {
            marks,
            at: match begins(prompt, marks) {
                Some(at) => at,
                None if form.begins_inside() => At::First,
                None => At::Before,
            },
            input: String::new(),
            tail: Tail::default(),
            begun: matches!(prompt, Prompt::Continued(_)),
        })
    }

    pub(crate) fn is_inside(&self) -> bool {
        matches!(self.at, At::First | At::Inside)
    }

    /// Adds reasoning to `pieces`, and what comes behind it to `behind`.
    pub(crate) fn push(&mut self, text: &str, pieces: &mut Vec<Piece>, behind: &mut String) {
        self.input.push_str(text);
        while self.step(pieces, behind) {}
    }

    pub(crate) fn end(&mut self, pieces: &mut Vec<Piece>, behind: &mut String) {
        let rest = std::mem::take(&mut self.input);
        match self.at {
            At::Before | At::Behind => behind.push_str(&rest),
            At::First | At::Inside => self.think(&rest, pieces),
        }
    }

    fn think(&mut self, text: &str, pieces: &mut Vec<Piece>) {
        let text = if self.begun { text } else { text.trim_start() };
        self.begun |= !text.is_empty();
        put(pieces, Piece::Reasoning(self.tail.push(text)));
    }

    /// Goes on by one mark; `false` when more text is needed.
    fn step(&mut self, pieces: &mut Vec<Piece>, behind: &mut String) -> bool {
        match self.at {
            At::Before | At::First => {
                let text = self.input.trim_start();
                let opens = text.starts_with(self.marks.open);
                if !opens && self.marks.open.starts_with(text) {
                    return false;
                }
                if opens {
                    let at = self.input.len() - text.len() + self.marks.open.len();
                    self.input.drain(..at);
                }
                self.at = if opens || self.at == At::First {
                    At::Inside
                } else {
                    At::Behind
                };
                // Without reasoning, white space is the answer's own.
                self.begun = self.at == At::Behind;
                true
            }
            At::Inside => {
                let (len, mark, ended) = match find(&self.input, &[self.marks.close]) {
                    Found::Mark { at, .. } => (at, self.marks.close.len(), true),
                    Found::Nothing { free } => (free, 0, false),
                };
                let thought: String = self.input.drain(..len).collect();
                self.input.drain(..mark);
                self.think(&thought, pieces);
                if ended {
                    self.at = At::Behind;
                    self.begun = false;
                }
                ended
            }
            At::Behind => {
                let text = std::mem::take(&mut self.input);
                let text = if self.begun {
                    text.as_str()
                } else {
                    text.trim_start()
                };
                self.begun |= !text.is_empty();
                behind.push_str(text);
                false
            }
        }
    }
}

/// Where an answer begins, as far as the end of its prompt says.
fn begins(prompt: Prompt<'_>, marks: Marks) -> Option<At> {
    match prompt {
        Prompt::Opened(prompt) => {
            let end = prompt.trim_end();
            let inside = end.ends_with(marks.open).then_some(At::First);
            inside.or_else(|| end.ends_with(marks.close).then_some(At::Behind))
        }
        Prompt::Continued(message) => match (message.rfind(marks.open), message.rfind(marks.close))
        {
            (Some(open), close) if close.is_none_or(|close| close < open) => Some(At::Inside),
            (None, None) if message.trim().is_empty() => None,
            _ => Some(At::Behind),
        },
    }
}

#[cfg(test)]
mod tests;
