//! Prometheus text, version 0.0.4, as our processes write it and read each other's: one sample a line.

use std::borrow::Cow;

/// One sample; its time, if it has one, is passed over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample<'a> {
    pub name: &'a str,
    /// What stands between the braces; `None` without braces.
    labels: Option<&'a str>,
    pub value: f64,
}

/// A line that is not in the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is not in Prometheus' text format")]
pub struct MalformedLine {
    /// From 1.
    pub line: usize,
}

/// The samples of a text. A caller that trusts its writer only whole stops at the first error; one that wants
/// what can be had passes errors over.
pub fn samples(text: &str) -> impl Iterator<Item = Result<Sample<'_>, MalformedLine>> {
    let lines = (1..).zip(text.lines().map(str::trim));
    let samples = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    samples.map(|(number, line)| parse(line).ok_or(MalformedLine { line: number }))
}

fn parse(line: &str) -> Option<Sample<'_>> {
    let name_len = line
        .find(|c: char| !is_name_char(c))
        .filter(|&len| len > 0 && !line.starts_with(|c: char| c.is_ascii_digit()))?;
    let (name, rest) = line.split_at(name_len);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => {
            let end = closing_brace(rest)?;
            (Some(&rest[..end]), &rest[end + 1..])
        }
        None => (None, rest),
    };
    let rest = rest.strip_prefix([' ', '\t'])?;
    let mut fields = rest.split_whitespace();
    let value = fields.next()?.parse().ok()?;
    let time = fields.next();
    let is_whole = time.is_none_or(|at| at.parse::<i64>().is_ok()) && fields.next().is_none();
    is_whole.then_some(Sample {
        name,
        labels,
        value,
    })
}

/// Where the braces end. Braces may stand in quoted values.
fn closing_brace(labels: &str) -> Option<usize> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, c) in labels.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            '}' if !is_quoted => return Some(at),
            _ => {}
        }
    }
    None
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

// === impl Sample ===

impl<'a> Sample<'a> {
    pub fn has_labels(&self) -> bool {
        self.labels.is_some()
    }

    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<Cow<'a, str>> {
        let mut rest = self.labels?;
        loop {
            rest = rest.trim_start_matches([',', ' ']);
            let (known, quoted) = rest.split_once("=\"")?;
            let end = closing_quote(quoted)?;
            if known == name {
                return Some(unescape(&quoted[..end]));
            }
            rest = &quoted[end + 1..];
        }
    }
}

fn closing_quote(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return Some(at),
            _ => {}
        }
    }
    None
}

fn unescape(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        plain.push(match c {
            '\\' => match chars.next() {
                Some('n') => '\n',
                Some(escaped) => escaped,
                None => '\\',
            },
            c => c,
        });
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
