//! Text around calls.

use crate::marks::{Found, Tail, find};
use crate::{Piece, put};

/// The marks that a family writes around calls.
#[derive(Debug)]
pub(crate) struct CallMarks {
    /// A call follows.
    pub(crate) begin: &'static str,
    /// Marks before it, which are passed over.
    pub(crate) opens: &'static [&'static str],
    /// Marks behind a call, which are passed over where there was one.
    pub(crate) closes: &'static [&'static str],
}

/// What an answer shows beside its calls.
#[derive(Debug, Default)]
pub(crate) struct Surface {
    tail: Tail,
    begun: bool,
    called: bool,
}

/// What comes next in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Call,
    /// A mark that is passed over.
    Mark,
    /// More text is needed.
    Unknown,
}

// === impl CallMarks ===

impl CallMarks {
    /// Those before a call, then those behind it.
    pub(crate) fn all(&self) -> impl Iterator<Item = &'static str> {
        let around = self.opens.iter().chain(self.closes);
        std::iter::once(self.begin).chain(around.copied())
    }
}

// === impl Surface ===

impl Surface {
    /// Whether nothing but white space was shown, and no call begun.
    pub(crate) fn is_blank(&self) -> bool {
        !self.begun
    }

    /// Shows `input` up to the next mark, and takes both from it.
    pub(crate) fn next(
        &mut self,
        input: &mut String,
        marks: &CallMarks,
        pieces: &mut Vec<Piece>,
    ) -> Next {
        let closes = if self.called { marks.closes } else { &[] };
        let all: Vec<_> = std::iter::once(marks.begin)
            .chain(marks.opens.iter().copied())
            .chain(closes.iter().copied())
            .collect();
        let (len, mark) = match find(input, &all) {
            Found::Mark { at, mark } => (at, Some(mark)),
            Found::Nothing { free } => (free, None),
        };
        self.show(&input[..len], pieces);
        input.drain(..len + mark.map_or(0, |mark| all[mark].len()));
        match mark {
            None => Next::Unknown,
            Some(0) => Next::Call,
            Some(_) => {
                self.is_mark();
                Next::Mark
            }
        }
    }

    /// A mark is passed over: white space before it was that mark's.
    pub(crate) fn is_mark(&mut self) {
        self.tail.take();
    }

    /// Shows text, but for white space at its end: that is held until more follows.
    pub(crate) fn show(&mut self, text: &str, pieces: &mut Vec<Piece>) {
        let shown = self.tail.push(text);
        self.begun |= !shown.is_empty();
        put(pieces, Piece::Text(shown));
    }

    /// What looked like a call is text.
    pub(crate) fn is_no_call(&mut self, mark: &str, pieces: &mut Vec<Piece>) {
        self.begun = true;
        self.show(mark, pieces);
    }

    /// A call begins: white space before it was not the answer's.
    pub(crate) fn is_call(&mut self) {
        (self.begun, self.called) = (true, true);
        self.tail.take();
    }

    /// The answer ends with `rest`. Behind a call, white space is none of it.
    pub(crate) fn end(&mut self, rest: &str, pieces: &mut Vec<Piece>) {
        let rest = self.tail.take() + rest;
        if !(self.called && rest.trim().is_empty()) {
            put(pieces, Piece::Text(rest));
        }
    }
}
