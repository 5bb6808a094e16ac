//! Python's literals as JSON.

use serde_json::Number;
use serde_json::value::RawValue;
use std::collections::HashMap;

/// Deepest nesting of lists and dictionaries.
const DEPTH_MAX: usize = 64;

struct Reader<'a> {
    rest: &'a str,
}

/// An object's, the last one of each name.
#[derive(Default)]
struct Fields {
    /// Name and value, as JSON.
    fields: Vec<(String, String)>,
    places: HashMap<String, usize>,
}

pub(super) fn is_in_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '.'
}

/// The calls of a list, each with its arguments as JSON; `None` if it is no list of calls.
pub(super) fn calls(list: &str) -> Option<Vec<(String, String)>> {
    let mut reader = Reader { rest: list };
    let mut calls = Vec::new();
    reader.takes('[')?;
    while !reader.has(']') {
        calls.push(reader.call()?);
        reader.comma_or(']')?;
    }
    reader.rest.trim().is_empty().then_some(calls)
}

// === impl Reader ===

impl Reader<'_> {
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    /// Takes the character if it is next.
    fn has(&mut self, c: char) -> bool {
        let is_next = self.peek() == Some(c);
        if is_next {
            self.rest = &self.rest[c.len_utf8()..];
        }
        is_next
    }

    fn takes(&mut self, c: char) -> Option<()> {
        self.has(c).then_some(())
    }

    /// Takes a comma, or stands before `end`.
    fn comma_or(&mut self, end: char) -> Option<()> {
        (self.has(',') || self.peek() == Some(end)).then_some(())
    }

    fn word(&mut self, of: impl Fn(char) -> bool) -> Option<&str> {
        self.peek()?;
        let end = self.rest.find(|c| !of(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }

    fn call(&mut self) -> Option<(String, String)> {
        let name = self.word(is_in_name)?.to_owned();
        self.takes('(')?;
        let mut arguments = Fields::default();
        while !self.has(')') {
            let key = quoted(self.word(is_in_name)?);
            self.takes('=')?;
            arguments.insert(key, self.value(0)?);
            self.comma_or(')')?;
        }
        Some((name, arguments.json()))
    }

    fn value(&mut self, depth: usize) -> Option<String> {
        if depth > DEPTH_MAX {
            return None;
        }
        match self.peek()? {
            '"' | '\'' => Some(quoted(&self.string()?)),
            '[' => self.list(']', depth),
            '(' => self.list(')', depth),
            '{' => self.dictionary(depth),
            _ => self.number_or_name(),
        }
    }

    fn list(&mut self, end: char, depth: usize) -> Option<String> {
        self.rest = &self.rest[1..];
        let mut values = Vec::new();
        while !self.has(end) {
            values.push(self.value(depth + 1)?);
            self.comma_or(end)?;
        }
        Some(format!("[{}]", values.join(",")))
    }

    fn dictionary(&mut self, depth: usize) -> Option<String> {
        self.rest = &self.rest[1..];
        let mut values = Fields::default();
        while !self.has('}') {
            let key = self.value(depth + 1)?;
            // Other keys have their text.
            let key = if key.starts_with('"') {
                key
            } else {
                quoted(&key)
            };
            self.takes(':')?;
            values.insert(key, self.value(depth + 1)?);
            self.comma_or('}')?;
        }
        Some(values.json())
    }

    fn number_or_name(&mut self) -> Option<String> {
        let word = self.word(|c| is_in_name(c) || c == '+' || c == '-')?;
        let name = match word {
            "True" | "true" => Some("true"),
            "False" | "false" => Some("false"),
            "None" | "null" => Some("null"),
            _ => None,
        };
        if let Some(name) = name {
            return Some(name.to_owned());
        }
        let number = word.replace('_', "");
        // As it is, though it may fit no type here.
        if serde_json::from_str::<&RawValue>(&number).is_ok() {
            return Some(number);
        }
        let number: f64 = number.parse().ok()?;
        Number::from_f64(number).map(|number| number.to_string())
    }

    fn string(&mut self) -> Option<String> {
        let mut chars = self.rest.chars();
        let quote = chars.next()?;
        let mut text = String::new();
        loop {
            match chars.next()? {
                c if c == quote => break,
                '\\' => match chars.next()? {
                    'n' => text.push('\n'),
                    't' => text.push('\t'),
                    'r' => text.push('\r'),
                    'a' => text.push('\u{7}'),
                    'b' => text.push('\u{8}'),
                    'v' => text.push('\u{b}'),
                    'f' => text.push('\u{c}'),
                    '\n' => {}
                    c @ ('x' | 'u' | 'U') => {
                        let digits = match c {
                            'x' => 2,
                            'u' => 4,
                            _ => 8,
                        };
                        let code: String = chars.by_ref().take(digits).collect();
                        let code = u32::from_str_radix(&code, 16).ok()?;
                        text.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                    }
                    c @ ('\\' | '\'' | '"') => text.push(c),
                    other => text.extend(['\\', other]),
                },
                c => text.push(c),
            }
        }
        self.rest = chars.as_str();
        Some(text)
    }
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a string is JSON")
}

// === impl Fields ===

impl Fields {
    fn insert(&mut self, name: String, value: String) {
        match self.places.get(&name) {
            Some(&place) => self.fields[place].1 = value,
            None => {
                self.places.insert(name.clone(), self.fields.len());
                self.fields.push((name, value));
            }
        }
    }

    fn json(self) -> String {
        let fields = self.fields.into_iter();
        let fields: Vec<_> = fields
            .map(|(name, value)| format!("{name}:{value}"))
            .collect();
        format!("{{{}}}", fields.join(","))
    }
}
