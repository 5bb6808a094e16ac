//! Finds the blocks of a document and what their marks say. Pure.

use std::str::FromStr;

/// A fenced block, or the commands in an example's comments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Line of its first line of text, from 1.
    pub line: usize,
    pub language: Language,
    pub mark: Option<Mark>,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    Shell,
    Yaml,
    /// What a program prints, a picture, another language: nothing to run.
    Other,
}

/// Where a block runs if not on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    Kube,
    Ci,
    /// Nowhere here, for this reason.
    Check(String),
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MarkError {
    #[error("line {line}: the mark {mark:?} is none of `kube`, `ci` and `check: REASON`")]
    Unknown { line: usize, mark: String },
    #[error("line {line}: a check without a reason; write `check: REASON`")]
    NoReason { line: usize },
    #[error("line {line}: the mark stands before no block")]
    BeforeNothing { line: usize },
    #[error("line {line}: the block does not end")]
    NoEnd { line: usize },
}

const MARK: (&str, &str) = ("<!-- test:", "-->");
/// Comments of examples are commands where they are indented this far.
const COMMAND: &str = "#   ";

/// The blocks of a Markdown file.
pub(super) fn of_markdown(text: &str) -> Result<Vec<Block>, MarkError> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut whole: Option<Mark> = None;
    let mut next: Option<(usize, Mark)> = None;
    let mut open: Option<Block> = None;
    for (line, content) in (1..).zip(text.lines()) {
        if let Some(mut block) = open.take() {
            if content.trim_start().starts_with("```") {
                blocks.push(block);
            } else {
                block.text.push_str(content);
                block.text.push('\n');
                open = Some(block);
            }
        } else if let Some(language) = content.trim_start().strip_prefix("```") {
            let mark = next.take().map(|(_, mark)| mark).or_else(|| whole.clone());
            open = Some(Block {
                line: line + 1,
                language: Language::named(language.trim()),
                mark,
                text: String::new(),
            });
        } else if let Some((at, _)) = next {
            return Err(MarkError::BeforeNothing { line: at });
        } else if let Some(mark) = mark_of(content, line)? {
            match line {
                1 => whole = Some(mark),
                _ => next = Some((line, mark)),
            }
        }
    }
    match (open, next) {
        (Some(block), _) => Err(MarkError::NoEnd { line: block.line }),
        (None, Some((line, _))) => Err(MarkError::BeforeNothing { line }),
        (None, None) => Ok(blocks),
    }
}

/// The commands in the comments of a YAML file, and the file itself.
pub(super) fn of_comments(text: &str) -> Result<Vec<Block>, MarkError> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut mark = None;
    let mut last = 0;
    for (line, content) in (1..).zip(text.lines()) {
        if let Some(found) = mark_of(content.trim_start_matches("# "), line)? {
            mark = Some(found);
        } else if let Some(command) = content.strip_prefix(COMMAND) {
            if last + 1 != line || blocks.is_empty() {
                blocks.push(Block {
                    line,
                    language: Language::Shell,
                    mark: mark.clone(),
                    text: String::new(),
                });
            }
            last = line;
            if let Some(block) = blocks.last_mut() {
                block.text.push_str(command);
                block.text.push('\n');
            }
        }
    }
    blocks.push(Block {
        line: 1,
        language: Language::Yaml,
        mark: None,
        text: text.to_owned(),
    });
    Ok(blocks)
}

fn mark_of(content: &str, line: usize) -> Result<Option<Mark>, MarkError> {
    let mark = content
        .trim()
        .strip_prefix(MARK.0)
        .and_then(|rest| rest.strip_suffix(MARK.1));
    let Some(mark) = mark.map(str::trim) else {
        return Ok(None);
    };
    match mark.split_once(':') {
        Some(("check", reason)) if !reason.trim().is_empty() => {
            Ok(Some(Mark::Check(reason.trim().to_owned())))
        }
        Some(("check", _)) => Err(MarkError::NoReason { line }),
        _ if mark == "check" => Err(MarkError::NoReason { line }),
        _ => Mark::from_str(mark)
            .map(Some)
            .map_err(|()| MarkError::Unknown {
                line,
                mark: mark.to_owned(),
            }),
    }
}

// === impl Mark ===

impl FromStr for Mark {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "kube" => Ok(Self::Kube),
            "ci" => Ok(Self::Ci),
            _ => Err(()),
        }
    }
}

// === impl Language ===

impl Language {
    fn named(name: &str) -> Self {
        match name {
            "sh" | "bash" | "shell" => Self::Shell,
            "yaml" => Self::Yaml,
            _ => Self::Other,
        }
    }
}

// === impl Block ===

impl Block {
    /// Its commands as a shell reads them: continued lines joined, comments and empty lines left out. A here-document
    /// belongs to the command that reads it.
    pub fn commands(&self) -> Vec<String> {
        let mut commands: Vec<String> = Vec::new();
        let mut continued = false;
        let mut here: Option<String> = None;
        for line in self.text.lines() {
            if let Some(end) = &here {
                if line.trim() == end {
                    here = None;
                }
                continue;
            }
            let text = line.strip_suffix('\\').unwrap_or(line);
            if continued {
                if let Some(last) = commands.last_mut() {
                    last.push(' ');
                    last.push_str(text.trim());
                }
            } else if !text.trim().is_empty() && !text.trim_start().starts_with('#') {
                commands.push(text.trim().to_owned());
            }
            let is_whole = commands.last().is_none_or(|c| shlex::split(c).is_some());
            continued = line.ends_with('\\') || !is_whole;
            here = line
                .split_once("<<")
                .map(|(_, word)| word.trim_matches(['-', '\'', '"', ' ']).to_owned());
        }
        commands
    }

    /// The first command, to name the block in a table.
    pub fn title(&self) -> String {
        let first = match self.language {
            Language::Shell => self.commands().into_iter().next(),
            Language::Yaml | Language::Other => None,
        };
        first
            .or_else(|| self.text.lines().map(str::to_owned).next())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
