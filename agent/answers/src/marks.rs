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

/// White space at the end of a text, which is held until more follows.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    space: String,
}

// === impl Tail ===

impl Tail {
    /// What of the text so far is not held.
    pub(crate) fn push(&mut self, text: &str) -> String {
        let shown = text.trim_end();
        let space = &text[shown.len()..];
        if shown.is_empty() {
            self.space.push_str(space);
            return String::new();
        }
        std::mem::replace(&mut self.space, space.to_owned()) + shown
    }

    pub(crate) fn take(&mut self) -> String {
        std::mem::take(&mut self.space)
    }
}
