//! Prometheus text, version 0.0.4, read strictly: one line that is not in the format refuses all
//! of it, because its writer cannot be trusted with the rest.

use std::collections::HashMap;

/// Longest text that is read; an agent writes some 30 KiB.
const TEXT_BYTES_MAX: usize = 4 << 20;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExpositionError {
    #[error("the text has {bytes} bytes, and {TEXT_BYTES_MAX} are read at most")]
    TooLong { bytes: usize },
    #[error("line {line} is not in Prometheus' text format")]
    Malformed { line: usize },
    #[error("{name} is given twice")]
    Twice { name: String },
}

/// What a text says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Exposition<'a> {
    /// The series without labels, by name.
    pub(crate) plain: HashMap<&'a str, f64>,
    /// Name and value of those with labels.
    pub(crate) labelled: Vec<(&'a str, f64)>,
}

pub(crate) fn parse(text: &str) -> Result<Exposition<'_>, ExpositionError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(ExpositionError::TooLong { bytes: text.len() });
    }
    let mut said = Exposition::default();
    for (place, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let malformed = ExpositionError::Malformed { line: place + 1 };
        let (name, labelled, value) = parse_line(line).ok_or(malformed)?;
        if labelled {
            said.labelled.push((name, value));
        } else if said.plain.insert(name, value).is_some() {
            return Err(ExpositionError::Twice {
                name: name.to_owned(),
            });
        }
    }
    Ok(said)
}

/// Name, whether it has labels, and value.
fn parse_line(line: &str) -> Option<(&str, bool, f64)> {
    let name_len = line
        .find(|c: char| !is_name_char(c))
        .filter(|&len| len > 0 && !line.starts_with(|c: char| c.is_ascii_digit()))?;
    let (name, rest) = line.split_at(name_len);
    let (labelled, rest) = match rest.strip_prefix('{') {
        Some(labels) => (true, skip_labels(labels)?),
        None => (false, rest),
    };
    let rest = rest.strip_prefix([' ', '\t'])?;
    let mut fields = rest.split_whitespace();
    let value = fields.next()?.parse().ok()?;
    let timestamp = fields.next();
    let timed = timestamp.is_none_or(|at| at.parse::<i64>().is_ok());
    (timed && fields.next().is_none()).then_some((name, labelled, value))
}

/// What follows the closing brace. Braces may stand in quoted values.
fn skip_labels(labels: &str) -> Option<&str> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in labels.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '}' if !quoted => return Some(&labels[at + 1..]),
            _ => {}
        }
    }
    None
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}
