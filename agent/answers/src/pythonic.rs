//! Calls as a list in Python: `[f(city="Paris", days=3), g()]`.

mod literals;

use crate::marks::{Found, find};
use crate::surface::Surface;
use crate::tools::ToolReader;
use crate::{Piece, put};

const START: &str = "<|python_start|>";
const END: &str = "<|python_end|>";
pub(crate) const MARKS: [&str; 2] = [START, END];

#[derive(Debug, Default)]
pub(crate) struct Pythonic {
    /// Text that is not sure yet; from its beginning a list, while there is one.
    input: String,
    surface: Surface,
    list: Option<List>,
}

/// How far a list was followed.
#[derive(Debug, Default)]
struct List {
    len: usize,
    depth: usize,
    quote: Option<char>,
    escaped: bool,
}

// === impl Pythonic ===

impl Pythonic {
    /// Goes on to the next place; `false` when more text is needed.
    fn step(&mut self, pieces: &mut Vec<Piece>) -> bool {
        if let Some(list) = &mut self.list {
            if !list.ends_in(&self.input) {
                return false;
            }
            let text: String = self.input.drain(..list.len).collect();
            self.list = None;
            match literals::calls(&text) {
                None => self.surface.show(&text, pieces),
                Some(calls) => {
                    self.surface.is_call();
                    for (name, arguments) in calls {
                        pieces.push(Piece::Call { name, id: None });
                        put(pieces, Piece::Arguments(arguments));
                    }
                }
            }
            return true;
        }
        match find(&self.input, &["[", START, END]) {
            Found::Mark { at, mark: 0 } => {
                let before: String = self.input.drain(..at).collect();
                self.surface.show(&before, pieces);
                match begins_call(&self.input[1..]) {
                    None => return false,
                    Some(true) => self.list = Some(List::default()),
                    Some(false) => {
                        self.input.drain(..1);
                        self.surface.show("[", pieces);
                    }
                }
                true
            }
            Found::Mark { at, mark } => {
                let before: String = self.input.drain(..at).collect();
                self.surface.show(&before, pieces);
                let mark = if mark == 1 { START } else { END };
                self.input.drain(..mark.len());
                true
            }
            Found::Nothing { free } => {
                let before: String = self.input.drain(..free).collect();
                self.surface.show(&before, pieces);
                false
            }
        }
    }
}

impl ToolReader for Pythonic {
    fn push(&mut self, text: &str, pieces: &mut Vec<Piece>) {
        self.input.push_str(text);
        while self.step(pieces) {}
    }

    fn end(&mut self, pieces: &mut Vec<Piece>) {
        self.surface.end(&self.input, pieces);
    }
}

/// Whether a tool of this name can be called.
pub(crate) fn is_name(tool: &str) -> bool {
    tool.chars().all(literals::is_in_name)
        && !tool.starts_with(|first: char| first.is_ascii_digit() || first == '.')
}

/// Whether a name and a parenthesis follow the bracket; `None` when more text is needed.
fn begins_call(text: &str) -> Option<bool> {
    let text = text.trim_start();
    let name = text.trim_start_matches(literals::is_in_name);
    let first = text.chars().next()?;
    if !literals::is_in_name(first) || first.is_ascii_digit() || first == '.' {
        return Some(false);
    }
    let next = name.trim_start().chars().next()?;
    Some(next == '(')
}

// === impl List ===

impl List {
    /// Follows the list on; whether it ends, after `len` bytes.
    fn ends_in(&mut self, text: &str) -> bool {
        for c in text[self.len..].chars() {
            self.len += c.len_utf8();
            match self.quote {
                Some(_) if self.escaped => self.escaped = false,
                Some(_) if c == '\\' => self.escaped = true,
                Some(quote) if c == quote => self.quote = None,
                Some(_) => {}
                None => match c {
                    '"' | '\'' => self.quote = Some(c),
                    '[' | '(' | '{' => self.depth += 1,
                    ']' | ')' | '}' => self.depth -= 1,
                    _ => {}
                },
            }
            if self.depth == 0 {
                return true;
            }
        }
        false
    }
}
