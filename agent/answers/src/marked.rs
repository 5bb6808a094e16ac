//! Calls behind marks, whose arguments are written as JSON.

use crate::json::{ObjectCall, Taken, Value};
use crate::marks::{Found, find};
use crate::surface::{CallMarks, Next, Surface};
use crate::tools::ToolReader;
use crate::{Piece, put};

/// Longest text between a mark and a call's arguments; beyond it, it is no call.
const HEADER_BYTES_MAX: usize = 512;

/// How a family writes calls.
#[derive(Debug)]
pub(crate) struct MarkedForm {
    pub(crate) marks: CallMarks,
    pub(crate) call: CallForm,
    /// Whether an answer that is an object from its first character on may be a call without a mark.
    pub(crate) may_be_bare: bool,
}

#[derive(Debug)]
pub(crate) enum CallForm {
    /// An object that names the tool; more may follow, with these characters between them.
    Object { between: &'static str },
    /// The tool's name, and the call's id where there is one, then a mark, then the arguments.
    Header { end: &'static str, name: NameOf },
    /// One or the other: objects begin with a brace or a bracket.
    Either {
        between: &'static str,
        header_end: &'static str,
        name: NameOf,
    },
}

pub(crate) type NameOf = fn(header: &str) -> (&str, Option<&str>);

#[derive(Debug)]
pub(crate) struct Marked {
    form: &'static MarkedForm,
    at: At,
    /// Text that is not sure yet.
    input: String,
    surface: Surface,
    /// The mark, and what was read behind it: they are the answer's own if that is no call.
    mark: &'static str,
    raw: String,
}

#[derive(Debug)]
enum At {
    Text,
    /// Behind a mark.
    Call,
    /// Behind an object, where another one may follow.
    More,
    Object(ObjectCall),
    Header,
    /// White space before arguments.
    Before,
    Arguments(Value),
}

// === impl MarkedForm ===

impl MarkedForm {
    pub(crate) fn all_marks(&self) -> Vec<&'static str> {
        let header = self.call.header().map(|(end, _)| end);
        self.marks.all().chain(header).collect()
    }
}

// === impl CallForm ===

impl CallForm {
    const fn between(&self) -> Option<&'static str> {
        match self {
            Self::Object { between } | Self::Either { between, .. } => Some(between),
            Self::Header { .. } => None,
        }
    }

    const fn header(&self) -> Option<(&'static str, NameOf)> {
        match self {
            Self::Header { end, name }
            | Self::Either {
                header_end: end,
                name,
                ..
            } => Some((end, *name)),
            Self::Object { .. } => None,
        }
    }
}

// === impl Marked ===

impl Marked {
    pub(crate) fn new(form: &'static MarkedForm) -> Self {
        Self {
            form,
            at: At::Text,
            input: String::new(),
            surface: Surface::default(),
            mark: "",
            raw: String::new(),
        }
    }

    /// Goes on to the next place; `false` when more text is needed.
    fn step(&mut self, pieces: &mut Vec<Piece>) -> bool {
        match &mut self.at {
            At::Text => self.text(pieces),
            At::Call => self.call(pieces),
            At::More => self.more(pieces),
            At::Object(_) => self.object(pieces),
            At::Header => self.header(pieces),
            At::Before => {
                let text = self.input.trim_start();
                let Some(next) = text.chars().next() else {
                    return false;
                };
                self.input = text.to_owned();
                self.at = if next == '{' {
                    At::Arguments(Value::default())
                } else {
                    put(pieces, Piece::Arguments("{}".to_owned()));
                    At::Text
                };
                true
            }
            At::Arguments(value) => {
                let (len, ended) = value.take(&self.input);
                let more = self.input.drain(..len).collect();
                put(pieces, Piece::Arguments(more));
                if ended {
                    self.at = At::Text;
                }
                ended
            }
        }
    }

    fn text(&mut self, pieces: &mut Vec<Piece>) -> bool {
        if self.form.may_be_bare && self.surface.is_blank() {
            let text = self.input.trim_start();
            if text.starts_with('{') {
                let space: String = self.input.drain(..self.input.len() - text.len()).collect();
                self.surface.show(&space, pieces);
                self.at = At::Object(ObjectCall::default());
                return true;
            }
        }
        let next = self.surface.next(&mut self.input, &self.form.marks, pieces);
        if next == Next::Call {
            self.mark = self.form.marks.begin;
            self.at = At::Call;
        }
        next != Next::Unknown
    }

    fn call(&mut self, pieces: &mut Vec<Piece>) -> bool {
        let Some(next) = self.input.chars().next() else {
            return false;
        };
        let between = self.form.call.between();
        if next.is_whitespace() || between.is_some_and(|between| between.contains(next)) {
            self.raw.extend(self.input.drain(..next.len_utf8()));
        } else if between.is_some() && next == '{' {
            self.at = At::Object(ObjectCall::default());
        } else if self.form.call.header().is_some() {
            self.at = At::Header;
        } else {
            self.no_call(pieces);
        }
        true
    }

    fn more(&mut self, pieces: &mut Vec<Piece>) -> bool {
        let Some(next) = self.input.chars().next() else {
            return false;
        };
        let between = self.form.call.between().unwrap_or_default();
        if next == '{' {
            self.at = At::Object(ObjectCall::default());
        } else if between.contains(next) {
            self.input.drain(..next.len_utf8());
            self.surface.is_mark();
        } else if next.is_whitespace() {
            // It is the text's own, unless another call follows.
            let len = self.input.len() - self.input.trim_start().len();
            let space: String = self.input.drain(..len).collect();
            self.surface.show(&space, pieces);
        } else {
            self.at = At::Text;
        }
        true
    }

    fn object(&mut self, pieces: &mut Vec<Piece>) -> bool {
        let At::Object(call) = &mut self.at else {
            unreachable!("the caller has seen it")
        };
        let taken = call.take(&self.input, pieces);
        let named = call.is_named();
        if named {
            self.is_call();
        }
        match taken {
            Taken::All if named => self.input.clear(),
            Taken::All => self.raw.push_str(&std::mem::take(&mut self.input)),
            Taken::Ended(len) => {
                self.input.drain(..len);
                self.at = At::More;
                return true;
            }
            Taken::Broken(len) => {
                self.input.drain(..len);
                self.at = At::Text;
                return true;
            }
            Taken::NoCall => {
                self.no_call(pieces);
                return true;
            }
        }
        false
    }

    fn header(&mut self, pieces: &mut Vec<Piece>) -> bool {
        let (end, name) = self.form.call.header().expect("the form has headers");
        match find(&self.input, &[end, "{"]) {
            Found::Mark { at, mark } if at <= HEADER_BYTES_MAX => {
                let header = self.input[..at].trim().to_owned();
                let (name, id) = name(&header);
                let name = name.trim();
                let may_lack_end = matches!(self.form.call, CallForm::Either { .. });
                if name.is_empty()
                    || name.contains(char::is_whitespace)
                    || mark == 1 && !may_lack_end
                {
                    self.no_call(pieces);
                    return true;
                }
                pieces.push(Piece::Call {
                    name: name.to_owned(),
                    id: id.map(str::to_owned),
                });
                self.is_call();
                self.input
                    .drain(..at + if mark == 0 { end.len() } else { 0 });
                self.at = At::Before;
                true
            }
            Found::Nothing { free } if free <= HEADER_BYTES_MAX => false,
            Found::Mark { .. } | Found::Nothing { .. } => {
                self.no_call(pieces);
                true
            }
        }
    }

    fn is_call(&mut self) {
        self.surface.is_call();
        self.mark = "";
        self.raw.clear();
    }

    /// The mark is text, and what came since is read once more as text.
    fn no_call(&mut self, pieces: &mut Vec<Piece>) {
        let mark = std::mem::take(&mut self.mark);
        self.surface.is_no_call(mark, pieces);
        let raw = std::mem::take(&mut self.raw);
        self.input.insert_str(0, &raw);
        self.at = At::Text;
    }
}

impl ToolReader for Marked {
    fn push(&mut self, text: &str, pieces: &mut Vec<Piece>) {
        self.input.push_str(text);
        while self.step(pieces) {}
    }

    fn end(&mut self, pieces: &mut Vec<Piece>) {
        let is_call = match &self.at {
            At::Object(call) => call.is_named(),
            At::Before | At::Arguments(_) => true,
            At::Text | At::Call | At::More | At::Header => false,
        };
        if !is_call {
            let rest = format!("{}{}{}", self.mark, self.raw, self.input);
            self.surface.end(&rest, pieces);
        }
    }
}
