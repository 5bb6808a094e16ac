//! What a model thinks before it answers.

use crate::forms::{UnknownForm, named};
use crate::marks::{Found, Tail, find};
use crate::{Piece, put};
use std::fmt;
use std::str::FromStr;

/// How a family marks its reasoning, under the names of SGLang's `--reasoning-parser`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningForm {
    /// `<think>…</think>`; the template has opened it, so answers begin inside.
    DeepseekR1,
    /// `<think>…</think>`, which the answer opens itself where it reasons.
    Qwen3,
    /// As [`Self::Qwen3`], of models that always reason: answers begin inside.
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
struct Marks {
    open: &'static str,
    close: &'static str,
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
        named(given, "reasoning parser", &Self::ALL, Self::name)
    }
}

// === impl Reasoning ===

impl Reasoning {
    /// `None` for channels, which [`Harmony`](crate::harmony::Harmony) reads.
    pub(crate) fn new(form: ReasoningForm) -> Option<Self> {
        Some(Self {
            marks: form.marks()?,
            at: if form.begins_inside() {
                At::First
            } else {
                At::Before
            },
            input: String::new(),
            tail: Tail::default(),
            begun: false,
        })
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

#[cfg(test)]
mod tests;
