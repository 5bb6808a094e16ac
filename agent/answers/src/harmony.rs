//! Channels: the form of gpt-oss, in which each message says what it is.
//!
//! Source: OpenAI's "harmony response format". A message is `<|start|>ROLE to=RECIPIENT<|channel|>CHANNEL
//! <|constrain|>TYPE<|message|>CONTENT<|end|>`; the template has written the first role. What is on the channel `analysis`
//! is reasoning, what goes to `functions.NAME`, or to the bare name of a tool of the request, is a call. What goes elsewhere is
//! for tools that OpenAI runs for the model (`python`, `browser.search`): no client has those, so it is reasoning. All else
//! is text.

use crate::marks::{Found, find};
use crate::types::ToolTypes;
use crate::{Piece, Prompt, put};

/// Longest header of a message; beyond it, an answer has none.
const HEADER_BYTES_MAX: usize = 512;

const START: &str = "<|start|>";
const CHANNEL: &str = "<|channel|>";
const MESSAGE: &str = "<|message|>";
const END: &str = "<|end|>";
const CALL: &str = "<|call|>";
const RETURN: &str = "<|return|>";
pub(crate) const MARKS: [&str; 7] = [START, CHANNEL, "<|constrain|>", MESSAGE, END, CALL, RETURN];

#[derive(Debug, Default)]
pub(crate) struct Harmony {
    at: At,
    types: ToolTypes,
    /// Whether a mark has begun the header: until its channel, it has a role, which is no text.
    has_role: bool,
    /// Text that is not sure yet.
    input: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    Header,
    Reasoning,
    Text,
    /// A call's arguments, and whether there are some.
    Arguments {
        begun: bool,
    },
}

// === impl Harmony ===

impl Harmony {
    /// Behind what a prompt ends with: a message that it has begun goes on.
    pub(crate) fn behind(prompt: Prompt<'_>, types: ToolTypes) -> Self {
        let mut harmony = Self {
            types,
            ..Self::default()
        };
        let prompt = match prompt {
            Prompt::Opened(prompt) => prompt,
            // Templates write what a client calls a message's text on the last channel.
            Prompt::Continued(_) => {
                harmony.at = At::Text;
                return harmony;
            }
        };
        let last = prompt.rfind(START).map(|at| &prompt[at + START.len()..]);
        // A role alone is no more than the template's.
        if let Some(begun) = last.filter(|last| last.contains(CHANNEL)) {
            // Its pieces are the prompt's own.
            harmony.push(begun, &mut Vec::new());
            if matches!(harmony.at, At::Arguments { .. }) {
                harmony.at = At::Text;
            }
        }
        harmony
    }

    pub(crate) fn is_reasoning(&self) -> bool {
        self.at == At::Reasoning
    }

    pub(crate) fn push(&mut self, text: &str, pieces: &mut Vec<Piece>) {
        self.input.push_str(text);
        while self.step(pieces) {}
    }

    pub(crate) fn end(&mut self, pieces: &mut Vec<Piece>) {
        let rest = std::mem::take(&mut self.input);
        match self.at {
            At::Header if self.has_role || rest.contains(CHANNEL) => {}
            At::Header => put(pieces, Piece::Text(rest)),
            At::Arguments { begun: false } if rest.is_empty() => {
                put(pieces, Piece::Arguments("{}".to_owned()));
            }
            At::Reasoning | At::Text | At::Arguments { .. } => self.show(&rest, pieces),
        }
    }

    /// Goes on to the next mark; `false` when more text is needed.
    fn step(&mut self, pieces: &mut Vec<Piece>) -> bool {
        match self.at {
            At::Header => self.header(pieces),
            At::Reasoning | At::Text | At::Arguments { .. } => self.content(pieces),
        }
    }

    fn header(&mut self, pieces: &mut Vec<Piece>) -> bool {
        let marks = [MESSAGE, START, END, CALL, RETURN];
        match find(&self.input, &marks) {
            Found::Mark { at, mark } => {
                let header: String = self.input.drain(..at).collect();
                self.input.drain(..marks[mark].len());
                if mark == 0 {
                    self.message(&header, pieces);
                } else if !self.has_role && !header.contains(CHANNEL) {
                    put(pieces, Piece::Text(header));
                }
                self.has_role = marks[mark] == START;
                true
            }
            Found::Nothing { free } if free > HEADER_BYTES_MAX => {
                self.at = At::Text;
                true
            }
            Found::Nothing { .. } => false,
        }
    }

    /// A message begins.
    fn message(&mut self, header: &str, pieces: &mut Vec<Piece>) {
        let word_behind = |mark: &str| {
            let (_, rest) = header.split_once(mark)?;
            let end = rest.find(|c: char| c.is_whitespace() || c == '<');
            Some(&rest[..end.unwrap_or(rest.len())])
        };
        let recipient = word_behind("to=").filter(|to| !["", "user", "assistant"].contains(to));
        let called = |to: &'_ str| match to.strip_prefix("functions.") {
            Some(tool) => Some(tool.to_owned()),
            None => self.types.has(to).then(|| to.to_owned()),
        };
        self.at = match (recipient.map(called), word_behind(CHANNEL)) {
            (Some(Some(name)), _) => {
                pieces.push(Piece::Call { name, id: None });
                At::Arguments { begun: false }
            }
            (Some(None), _) | (None, Some("analysis")) => At::Reasoning,
            (None, _) => At::Text,
        };
    }

    fn content(&mut self, pieces: &mut Vec<Piece>) -> bool {
        let marks = [END, CALL, RETURN, START, CHANNEL];
        let (len, mark) = match find(&self.input, &marks) {
            Found::Mark { at, mark } => (at, Some(marks[mark])),
            Found::Nothing { free } => (free, None),
        };
        let more: String = self.input.drain(..len).collect();
        self.show(&more, pieces);
        let Some(mark) = mark else { return false };
        if self.at == (At::Arguments { begun: false }) {
            put(pieces, Piece::Arguments("{}".to_owned()));
        }
        // A channel's mark is part of the header that it begins.
        if mark != CHANNEL {
            self.input.drain(..mark.len());
        }
        self.at = At::Header;
        self.has_role = mark == START;
        true
    }

    fn show(&mut self, more: &str, pieces: &mut Vec<Piece>) {
        if more.is_empty() {
            return;
        }
        let more = more.to_owned();
        put(
            pieces,
            match &mut self.at {
                At::Reasoning => Piece::Reasoning(more),
                At::Header | At::Text => Piece::Text(more),
                At::Arguments { begun } => {
                    *begun = true;
                    Piece::Arguments(more)
                }
            },
        );
    }
}

#[cfg(test)]
mod tests;
