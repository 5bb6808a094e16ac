//! Calls whose arguments are written one by one, each value as text.

use crate::json;
use crate::marks::{Found, find};
use crate::surface::{CallMarks, Next, Surface};
use crate::tools::ToolReader;
use crate::types::{ToolTypes, Written};
use crate::{Piece, put};
use serde_json::value::RawValue;

/// Longest name of a tool or a parameter; beyond it, it is no call.
const NAME_BYTES_MAX: usize = 512;

/// How a family writes calls.
#[derive(Debug)]
pub(crate) struct KeyedForm {
    /// Behind the first one comes the tool's name.
    pub(crate) marks: CallMarks,
    /// The name ends before these; the first one is not read again.
    pub(crate) name_ends: &'static [&'static str],
    /// Around a parameter's name.
    pub(crate) key: (&'static str, &'static str),
    /// Around its value.
    pub(crate) value: (&'static str, &'static str),
    /// Whether a value stands on lines of its own, whose breaks are not its.
    pub(crate) value_is_lines: bool,
    /// The call ends.
    pub(crate) ends: &'static [&'static str],
}

#[derive(Debug)]
pub(crate) struct Keyed {
    form: &'static KeyedForm,
    types: ToolTypes,
    at: At,
    /// Text that is not sure yet.
    input: String,
    surface: Surface,
    tool: String,
    /// The arguments so far are empty.
    no_arguments: bool,
}

#[derive(Debug)]
enum At {
    Text,
    Name,
    /// Before a parameter, or the call's end.
    Parameters,
    Key,
    BeforeValue(Written),
    Value {
        written: Written,
        /// What is held until the value is whole; strings are handed on as they come.
        text: Held,
        begun: bool,
    },
}

/// The text of a value so far.
#[derive(Debug, Default)]
struct Held {
    text: String,
    json: Followed,
}

/// How far a value was followed as JSON.
#[derive(Debug, Default)]
enum Followed {
    #[default]
    Blank,
    Inside {
        value: json::Value,
        /// It was JSON up to a mark.
        is_json: bool,
    },
    Ended,
}

// === impl KeyedForm ===

impl KeyedForm {
    pub(crate) fn all_marks(&self) -> Vec<&'static str> {
        let (key, value) = (self.key, self.value);
        let parameters = [key.0, key.1, value.0, value.1];
        let parameters = parameters.into_iter().filter(|mark| !mark.is_empty());
        let ends = self.ends.iter().copied();
        self.marks.all().chain(parameters).chain(ends).collect()
    }
}

// === impl Keyed ===

impl Keyed {
    pub(crate) fn new(form: &'static KeyedForm, types: ToolTypes) -> Self {
        Self {
            form,
            types,
            at: At::Text,
            input: String::new(),
            surface: Surface::default(),
            tool: String::new(),
            no_arguments: true,
        }
    }

    /// Goes on to the next place; `false` when more text is needed.
    fn step(&mut self, pieces: &mut Vec<Piece>) -> bool {
        match self.at {
            At::Text => self.text(pieces),
            At::Name => self.name(pieces),
            At::Parameters => self.parameters(pieces),
            At::Key => self.key(pieces),
            At::BeforeValue(written) => self.before_value(written),
            At::Value { .. } => self.value(pieces),
        }
    }

    fn text(&mut self, pieces: &mut Vec<Piece>) -> bool {
        let next = self.surface.next(&mut self.input, &self.form.marks, pieces);
        if next == Next::Call {
            self.at = At::Name;
        }
        next != Next::Unknown
    }

    fn name(&mut self, pieces: &mut Vec<Piece>) -> bool {
        // A line break may stand before the name, too.
        let skipped = self.input.len() - self.input.trim_start().len();
        match find(&self.input[skipped..], self.form.name_ends) {
            Found::Mark { at, mark } if at <= NAME_BYTES_MAX => {
                let name = self.input[skipped..skipped + at].trim().to_owned();
                if name.is_empty()
                    || name.contains(['<', '{'])
                    || name.contains(char::is_whitespace)
                {
                    self.no_call(pieces);
                    return true;
                }
                let passed = if mark == 0 {
                    self.form.name_ends[0].len()
                } else {
                    0
                };
                self.input.drain(..skipped + at + passed);
                pieces.push(Piece::Call {
                    name: name.clone(),
                    id: None,
                });
                self.tool = name;
                self.no_arguments = true;
                self.surface.is_call();
                self.at = At::Parameters;
                true
            }
            Found::Nothing { free } if free <= NAME_BYTES_MAX => false,
            Found::Mark { .. } | Found::Nothing { .. } => {
                self.no_call(pieces);
                true
            }
        }
    }

    /// The mark is text.
    fn no_call(&mut self, pieces: &mut Vec<Piece>) {
        self.surface.is_no_call(self.form.marks.begin, pieces);
        self.at = At::Text;
    }

    /// What is neither a parameter nor the end is passed over.
    fn parameters(&mut self, pieces: &mut Vec<Piece>) -> bool {
        let marks: Vec<_> = std::iter::once(self.form.key.0)
            .chain(self.form.ends.iter().copied())
            .collect();
        match find(&self.input, &marks) {
            Found::Mark { at, mark } => {
                self.input.drain(..at + marks[mark].len());
                if mark == 0 {
                    self.at = At::Key;
                } else {
                    let end = if self.no_arguments { "{}" } else { "}" };
                    put(pieces, Piece::Arguments(end.to_owned()));
                    self.at = At::Text;
                }
                true
            }
            Found::Nothing { free } => {
                self.input.drain(..free);
                false
            }
        }
    }

    fn key(&mut self, pieces: &mut Vec<Piece>) -> bool {
        let at = match find(&self.input, &[self.form.key.1]) {
            Found::Mark { at, .. } if at <= NAME_BYTES_MAX => at,
            Found::Nothing { free } if free <= NAME_BYTES_MAX => return false,
            // It is no name.
            Found::Mark { .. } | Found::Nothing { .. } => {
                self.at = At::Parameters;
                return true;
            }
        };
        let key = self.input[..at].trim().to_owned();
        self.input.drain(..at + self.form.key.1.len());
        let before = if self.no_arguments { "{" } else { ", " };
        put(
            pieces,
            Piece::Arguments(format!("{before}{}: ", quoted(&key))),
        );
        self.no_arguments = false;
        self.at = At::BeforeValue(self.types.written(&self.tool, &key));
        true
    }

    fn before_value(&mut self, written: Written) -> bool {
        let open = self.form.value.0;
        match find(&self.input, &[open]) {
            Found::Mark { at, .. } => {
                self.input.drain(..at + open.len());
                if self.form.value_is_lines {
                    match self.input.chars().next() {
                        None => return false,
                        Some('\n') => drop(self.input.remove(0)),
                        Some(_) => {}
                    }
                }
                self.at = At::Value {
                    written,
                    text: Held::default(),
                    begun: false,
                };
                true
            }
            Found::Nothing { free } => {
                self.input.drain(..free);
                false
            }
        }
    }

    fn value(&mut self, pieces: &mut Vec<Piece>) -> bool {
        let At::Value {
            written,
            text,
            begun,
        } = &mut self.at
        else {
            unreachable!("the caller has seen it")
        };
        let close = self.form.value.1;
        let on_its_line = format!("\n{close}");
        let marks = if self.form.value_is_lines {
            &[on_its_line.as_str(), close][..]
        } else {
            &[close]
        };
        let (len, mark, found) = match find(&self.input, marks) {
            Found::Mark { at, mark } => (at, marks[mark].len(), true),
            Found::Nothing { free } => (free, 0, false),
        };
        let more: String = self.input.drain(..len).collect();
        let mark: String = self.input.drain(..mark).collect();
        let mut ended = found;
        if *written == (Written::Text { or_null: false }) {
            let mut json = escaped(&more);
            if !*begun && (ended || !json.is_empty()) {
                json.insert(0, '"');
                *begun = true;
            }
            if ended {
                json.push('"');
            }
            put(pieces, Piece::Arguments(json));
        } else {
            text.push(&more);
            ended = found && (*written != Written::Json || !text.is_in_string());
            if ended {
                put(pieces, Piece::Arguments(value_of(&text.text, *written)));
            } else {
                text.push(&mark);
            }
        }
        if ended {
            self.at = At::Parameters;
        }
        found
    }
}

// === impl Held ===

impl Held {
    fn push(&mut self, more: &str) {
        self.text.push_str(more);
        let begun = more.trim_start();
        let ended = match &mut self.json {
            Followed::Blank if begun.is_empty() => return,
            Followed::Blank => {
                let mut value = json::Value::default();
                let (_, ended) = value.take(begun);
                self.json = Followed::Inside {
                    value,
                    is_json: false,
                };
                ended
            }
            Followed::Inside { value, .. } => value.take(more).1,
            Followed::Ended => return,
        };
        if ended {
            self.json = Followed::Ended;
        }
    }

    /// Whether a mark behind the text is inside a string of JSON, and so is part of it.
    fn is_in_string(&mut self) -> bool {
        match &mut self.json {
            Followed::Inside { value, is_json } if value.is_in_string() => {
                *is_json = *is_json || is_begun(&self.text);
                *is_json
            }
            Followed::Blank | Followed::Inside { .. } | Followed::Ended => false,
        }
    }
}

/// Whether JSON may go on behind `text`.
fn is_begun(text: &str) -> bool {
    let read = serde_json::from_str::<&RawValue>(text);
    read.is_err_and(|error| error.is_eof())
}

impl ToolReader for Keyed {
    fn push(&mut self, text: &str, pieces: &mut Vec<Piece>) {
        self.input.push_str(text);
        while self.step(pieces) {}
    }

    fn end(&mut self, pieces: &mut Vec<Piece>) {
        let mark = match self.at {
            At::Text => "",
            At::Name => self.form.marks.begin,
            At::Parameters | At::Key | At::BeforeValue(_) | At::Value { .. } => return,
        };
        let rest = format!("{mark}{}", self.input);
        self.surface.end(&rest, pieces);
    }
}

/// A value that was written as text, as JSON.
fn value_of(text: &str, written: Written) -> String {
    let trimmed = text.trim();
    match written {
        Written::Text { or_null: true } if trimmed == "null" => trimmed.to_owned(),
        Written::Text { .. } => quoted(text),
        Written::Json => {
            // Python's words, which templates write into a model's examples.
            let json = match trimmed {
                "True" => "true",
                "False" => "false",
                "None" => "null",
                other => other,
            };
            // Numbers that fit no type here, too.
            let is_json = serde_json::from_str::<&RawValue>(json).is_ok();
            if is_json {
                json.to_owned()
            } else {
                quoted(text)
            }
        }
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", escaped(text))
}

/// As it stands inside a JSON string.
fn escaped(text: &str) -> String {
    let quoted = serde_json::to_string(text).expect("a string is JSON");
    quoted[1..quoted.len() - 1].to_owned()
}

#[cfg(test)]
mod tests;
