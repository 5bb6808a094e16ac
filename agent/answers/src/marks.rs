//! Marks in text that arrives in pieces.

/// What is known of the marks in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The first one begins at byte `at`, and is number `mark` of those that were sought.
    Mark { at: usize, mark: usize },
    /// There is none, but one may begin at byte `free` once more text is known; `free` is the length if none can.
    Nothing { free: usize },
}

/// The first of `marks`; of two that begin at one place, the first of the list.
pub(crate) fn find(text: &str, marks: &[&str]) -> Found {
    let places = marks.iter().enumerate();
    let places = places.filter_map(|(mark, words)| Some((text.find(words)?, mark)));
    match places.min() {
        Some((at, mark)) => Found::Mark { at, mark },
        None => {
            let begun = marks.iter().map(|mark| overlap(text, mark)).max();
            Found::Nothing {
                free: text.len() - begun.unwrap_or(0),
            }
        }
    }
}

/// The length of the longest end of `text` that is a beginning of `mark`.
pub(crate) fn overlap(text: &str, mark: &str) -> usize {
    let begins = mark.char_indices().rev().map(|(len, _)| len);
    let mut begins = begins.filter(|&len| text.ends_with(&mark[..len]));
    begins.next().unwrap_or(0)
}

/// Text without the white space around it. White space at its end is held until something follows.
#[derive(Debug, Default)]
pub(crate) struct Trimmed {
    begun: bool,
    space: String,
}

// === impl Trimmed ===

impl Trimmed {
    /// What of the text so far may be shown.
    pub(crate) fn push(&mut self, text: &str) -> String {
        let text = if self.begun { text } else { text.trim_start() };
        let shown = text.trim_end();
        if shown.is_empty() {
            self.space.push_str(text);
            return String::new();
        }
        self.begun = true;
        let space = text[shown.len()..].to_owned();
        let before = std::mem::replace(&mut self.space, space);
        before + shown
    }
}
