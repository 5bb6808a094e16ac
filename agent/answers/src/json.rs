//! JSON that arrives in pieces: where a value ends, and objects that are calls.

use crate::{Piece, put};

/// Follows one value, from its first character on. It finds the end of what is valid, and checks nothing else.
#[derive(Debug, Default)]
pub(crate) struct Value {
    kind: Kind,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Unknown,
    /// An object or an array.
    Nested,
    String,
    /// A number or a word, which ends before what cannot be part of it.
    Bare,
}

// === impl Value ===

impl Value {
    /// How many bytes at the beginning of `text` belong to the value, and whether it ends with them.
    pub(crate) fn take(&mut self, text: &str) -> (usize, bool) {
        for (i, byte) in text.bytes().enumerate() {
            if self.kind == Kind::Unknown {
                self.kind = match byte {
                    b'{' | b'[' => Kind::Nested,
                    b'"' => Kind::String,
                    _ => Kind::Bare,
                };
                self.depth = usize::from(self.kind == Kind::Nested);
                self.in_string = self.kind == Kind::String;
            } else if self.kind == Kind::Bare {
                if byte.is_ascii_whitespace() || b",]}".contains(&byte) {
                    return (i, true);
                }
            } else if self.ends_with(byte) {
                return (i + 1, true);
            }
        }
        (text.len(), false)
    }

    pub(crate) fn is_in_string(&self) -> bool {
        self.in_string
    }

    /// Whether a byte behind the first one is the last one.
    fn ends_with(&mut self, byte: u8) -> bool {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return !self.in_string && self.kind == Kind::String;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth -= 1,
            _ => {}
        }
        self.depth == 0
    }
}

/// What became of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// All of it; more belongs to it.
    All,
    /// So many bytes, with which it ended.
    Ended(usize),
    /// It is no call.
    NoCall,
    /// It is a call that ends before what no call has, so many bytes on.
    Broken(usize),
}

/// An object that names a tool and has its arguments: `{"name": "f", "arguments": {…}}`, or `parameters`, in any order and
/// among other keys.
#[derive(Debug, Default)]
pub(crate) struct ObjectCall {
    at: At,
    value: Value,
    /// Of a key, or of a value that is not handed on as it comes.
    text: String,
    key: Key,
    id: Option<String>,
    named: bool,
    /// Arguments that came before the name.
    held: Option<String>,
    has_arguments: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    Open,
    /// Before the first key, or before another one.
    Key,
    InKey,
    Colon,
    Value,
    InValue,
    Next,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Key {
    #[default]
    Other,
    Name,
    Arguments,
    Id,
}

// === impl ObjectCall ===

impl ObjectCall {
    /// Whether the tool's name is known: from then on it is a call.
    pub(crate) fn is_named(&self) -> bool {
        self.named
    }

    pub(crate) fn take(&mut self, text: &str, pieces: &mut Vec<Piece>) -> Taken {
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            if matches!(self.at, At::InKey | At::InValue) {
                let (len, ended) = self.value.take(rest);
                self.inside(&rest[..len], pieces);
                at += len;
                if ended && !self.end_of_value(pieces) {
                    return self.breaks_at(at);
                }
                continue;
            }
            let Some(next) = rest.chars().next().filter(|c| !c.is_whitespace()) else {
                at += rest.len() - rest.trim_start().len();
                continue;
            };
            let (then, len) = match (self.at, next) {
                (At::Open, '{') | (At::Next, ',') => (At::Key, 1),
                (At::Key, '"') => (At::InKey, 0),
                (At::Colon, ':') => (At::Value, 1),
                (At::Value, _) => (At::InValue, 0),
                (At::Key | At::Next, '}') if self.named => {
                    if !self.has_arguments {
                        put(pieces, Piece::Arguments("{}".to_owned()));
                    }
                    return Taken::Ended(at + 1);
                }
                _ => return self.breaks_at(at),
            };
            self.at = then;
            if matches!(then, At::InKey | At::InValue) {
                self.value = Value::default();
                self.text.clear();
            }
            at += len;
        }
        Taken::All
    }

    fn breaks_at(&self, at: usize) -> Taken {
        if self.named {
            Taken::Broken(at)
        } else {
            Taken::NoCall
        }
    }

    /// More of a key or of a value.
    fn inside(&mut self, more: &str, pieces: &mut Vec<Piece>) {
        let streams = self.at == At::InValue
            && self.key == Key::Arguments
            && self.named
            && self.value.kind == Kind::Nested;
        if streams {
            put(pieces, Piece::Arguments(more.to_owned()));
            self.has_arguments = true;
        } else {
            self.text.push_str(more);
        }
    }

    /// A key or a value is whole; `false` if no call has such a one.
    fn end_of_value(&mut self, pieces: &mut Vec<Piece>) -> bool {
        let text = std::mem::take(&mut self.text);
        let string = || serde_json::from_str::<String>(&text).ok();
        if self.at == At::InKey {
            self.at = At::Colon;
            let Some(key) = string() else { return false };
            self.key = match key.as_str() {
                "name" | "function" => Key::Name,
                "arguments" | "parameters" => Key::Arguments,
                "id" => Key::Id,
                "type" => Key::Other,
                // What else a call has comes behind what makes it one.
                _ if self.named || self.held.is_some() => Key::Other,
                _ => return false,
            };
            return true;
        }
        self.at = At::Next;
        match self.key {
            Key::Name if !self.named => {
                let Some(name) = string().filter(|name| !name.is_empty()) else {
                    return false;
                };
                self.named = true;
                let id = self.id.take();
                pieces.push(Piece::Call { name, id });
                if let Some(held) = self.held.take() {
                    put(pieces, Piece::Arguments(held));
                    self.has_arguments = true;
                }
            }
            Key::Id => self.id = string(),
            Key::Arguments if !text.is_empty() => {
                let arguments = self.arguments(text);
                if self.named {
                    put(pieces, Piece::Arguments(arguments));
                    self.has_arguments = true;
                } else {
                    self.held = Some(arguments);
                }
            }
            Key::Name | Key::Arguments | Key::Other => {}
        }
        true
    }

    /// Arguments that were not handed on as they came. Some models write them as a string of JSON.
    fn arguments(&self, text: String) -> String {
        match self.value.kind {
            Kind::String => serde_json::from_str(&text).unwrap_or(text),
            Kind::Bare if text == "null" => "{}".to_owned(),
            Kind::Unknown | Kind::Nested | Kind::Bare => text,
        }
    }
}
