//! Takes apart what models write: reasoning, calls of tools, and text for the reader.
//!
//! Every family marks these in a form of its own ([`ToolForm`], [`ReasoningForm`]). An [`AnswerReader`] is fed an answer's text
//! as it is decoded, in pieces of any length, and gives [`Piece`]s as soon as it is sure of them: however an answer is cut,
//! its pieces join to the same [`Answer`].
//!
//! What looks like a call and is none stays text. Arguments are handed on as the model writes them; whether they are
//! what a tool's schema asks for is for grammars to enforce and for clients to check.

mod forms;
mod frames;
#[cfg(test)]
mod fuzz;
mod harmony;
mod joined;
mod json;
mod keyed;
mod marked;
mod marks;
mod pythonic;
mod reader;
mod reasoning;
mod surface;
mod tools;
mod types;

pub use forms::UnknownForm;
pub use frames::{AmongText, ArgumentsFrame, CallFrame, KeyedFrame, MessageFrame, ThoughtFrame};
pub use joined::{Answer, Call};
pub use reader::{AnswerReader, Prompt};
pub use reasoning::ReasoningForm;
pub use tools::ToolForm;
pub use types::{ToolTypes, Written};

/// A part of an answer, in the order in which the model wrote them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// More of what the model thinks.
    Reasoning(String),
    /// More of what it says.
    Text(String),
    /// A call begins, of a tool of this name. The id is the model's own, where its form has one.
    Call { name: String, id: Option<String> },
    /// More of the last call's arguments, which together are one JSON value.
    Arguments(String),
}

/// Appends to what the last piece has, where it is of the same kind.
pub(crate) fn put(pieces: &mut Vec<Piece>, piece: Piece) {
    match (pieces.last_mut(), piece) {
        (Some(Piece::Reasoning(last)), Piece::Reasoning(more))
        | (Some(Piece::Text(last)), Piece::Text(more))
        | (Some(Piece::Arguments(last)), Piece::Arguments(more)) => last.push_str(&more),
        (_, Piece::Reasoning(more) | Piece::Text(more) | Piece::Arguments(more))
            if more.is_empty() => {}
        (_, piece) => pieces.push(piece),
    }
}
