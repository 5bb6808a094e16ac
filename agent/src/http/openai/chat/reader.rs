//! One choice's answer, taken apart as it arrives: what the model thinks, what it says, which tools it calls.

use crate::http::choice::{Delta, Finish};
use crate::http::openai::tools::Tools;
use crate::http::openai::{FinishBody, OpenAiRequest};
use crate::service::answer_forms::ReadForms;
use pd_answers::{AnswerReader, Piece, Prompt, ToolForm, ToolTypes};

/// A part of an answer, as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChatPart {
    Reasoning(String),
    Text(String),
    /// Call `index` of the answer begins.
    Call {
        index: usize,
        id: String,
        name: String,
    },
    /// More of call `index`'s arguments.
    Arguments {
        index: usize,
        more: String,
    },
}

/// What a client is shown of a model's reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReasoningShown {
    /// In a field of its own, as it arrives.
    Apart,
    /// In a field of its own, when it has ended.
    AtOnce,
    /// In the answer's text.
    InText,
    Omitted,
}

#[derive(Debug)]
pub(crate) struct ChoiceReader {
    answer: AnswerReader,
    tool_form: Option<ToolForm>,
    parallel_calls: bool,
    shown: ReasoningShown,
    /// Reasoning that has not ended, where it is shown at once.
    held: String,
    calls: usize,
    /// Those of its calls that the model gave ids.
    ids: Vec<String>,
    /// The last call is one too many.
    drops_call: bool,
}

/// What a step adds to a choice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) parts: Vec<ChatPart>,
    pub(crate) reasoning_tokens: usize,
    /// Which of its tokens are neither of reasoning nor behind the beginning of a call.
    pub(crate) text_tokens: Vec<usize>,
}

// === impl ReasoningShown ===

impl ReasoningShown {
    pub(crate) fn of(request: &OpenAiRequest<bool>) -> Self {
        if request.include_reasoning == Some(false) {
            Self::Omitted
        } else if request.separate_reasoning == Some(false) {
            Self::InText
        } else if request.stream_reasoning == Some(false) {
            Self::AtOnce
        } else {
            Self::Apart
        }
    }
}

// === impl ChoiceReader ===

impl ChoiceReader {
    /// For an answer behind `prompt`, to a request that offers `tools`.
    pub(crate) fn new(
        forms: ReadForms<'_>,
        tools: Option<&Tools>,
        shown: ReasoningShown,
        prompt: Prompt<'_>,
    ) -> Self {
        let types = tools.map_or_else(ToolTypes::default, |tools| tools.types.clone());
        Self {
            answer: forms.reader(types, prompt),
            tool_form: forms.tool_form(),
            parallel_calls: tools.is_none_or(|tools| tools.parallel),
            shown,
            held: String::new(),
            calls: 0,
            ids: Vec::new(),
            drops_call: false,
        }
    }

    fn has_called(&self) -> bool {
        self.calls > 0
    }

    /// How the answer ended, if it has.
    pub(crate) fn finish_body(&self, finish: Option<&Finish>) -> FinishBody {
        if self.has_called() {
            FinishBody::of_calls(finish)
        } else {
            FinishBody::from(finish)
        }
    }

    /// Takes the next step of the answer apart.
    pub(crate) fn read(&mut self, delta: &Delta) -> Read {
        let mut pieces = Vec::new();
        let mut read = Read::default();
        for (token, text) in delta.texts.iter().enumerate() {
            let was_reasoning = self.answer.is_reasoning();
            self.answer.push(text, &mut pieces);
            if token >= delta.token_ids.len() {
                continue;
            }
            // The marks around reasoning are part of it.
            if was_reasoning || self.answer.is_reasoning() {
                read.reasoning_tokens += 1;
            } else if !self.has_called() && !pieces.iter().any(is_call) {
                read.text_tokens.push(token);
            }
        }
        if delta.finish.is_some() {
            self.answer.end(&mut pieces);
        }
        for piece in pieces {
            self.show(piece, &mut read.parts);
        }
        if delta.finish.is_some() {
            self.end_reasoning(&mut read.parts);
        }
        read
    }

    fn show(&mut self, piece: Piece, parts: &mut Vec<ChatPart>) {
        match (piece, self.shown) {
            (Piece::Reasoning(more), ReasoningShown::Apart) => {
                parts.push(ChatPart::Reasoning(more));
            }
            (Piece::Reasoning(more), ReasoningShown::AtOnce) => self.held.push_str(&more),
            (Piece::Reasoning(more), ReasoningShown::InText) => parts.push(ChatPart::Text(more)),
            (Piece::Reasoning(_), ReasoningShown::Omitted) => {}
            (piece, _) => {
                self.end_reasoning(parts);
                parts.extend(self.answer_part(piece));
            }
        }
    }

    fn end_reasoning(&mut self, parts: &mut Vec<ChatPart>) {
        let held = std::mem::take(&mut self.held);
        if !held.is_empty() {
            parts.push(ChatPart::Reasoning(held));
        }
    }

    /// A piece behind the reasoning; `None` if it is of a call that the client did not allow.
    fn answer_part(&mut self, piece: Piece) -> Option<ChatPart> {
        match piece {
            Piece::Reasoning(more) | Piece::Text(more) => Some(ChatPart::Text(more)),
            Piece::Call { name, id } => {
                self.drops_call = self.has_called() && !self.parallel_calls;
                if self.drops_call {
                    return None;
                }
                let index = self.calls;
                self.calls += 1;
                let form = self.tool_form.unwrap_or(ToolForm::Harmony);
                // Models number their calls themselves, some of them twice alike.
                let id = id.filter(|id| !self.ids.contains(id));
                self.ids.extend(id.clone());
                let id = id.unwrap_or_else(|| form.call_id(rand::random()));
                Some(ChatPart::Call { index, id, name })
            }
            Piece::Arguments(_) if self.drops_call => None,
            Piece::Arguments(more) => Some(ChatPart::Arguments {
                index: self.calls - 1,
                more,
            }),
        }
    }
}

fn is_call(piece: &Piece) -> bool {
    match piece {
        Piece::Call { .. } => true,
        Piece::Reasoning(_) | Piece::Text(_) | Piece::Arguments(_) => false,
    }
}

#[cfg(test)]
pub(crate) mod tests;
