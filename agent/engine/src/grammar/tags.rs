//! Structural tags, SGLang's `structural_tag`: free text in which a trigger begins one of some tags, whose content a JSON
//! schema describes.

use super::notation::{quoted, with_options};
use super::schema;
use super::vocabulary::Vocabulary;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::Write;

/// SGLang's `StructuralTagResponseFormat`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StructuralTag {
    pub structures: Vec<Tag>,
    /// What begins a tag, wherever it is in the text: a text, or a special token with what comes after it.
    pub triggers: Vec<String>,
}

/// SGLang's `StructuresResponseFormat`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tag {
    /// Begins with a trigger.
    pub begin: String,
    /// A JSON schema, of what is between `begin` and `end`.
    pub schema: Value,
    pub end: String,
}

// === impl StructuralTag ===

impl StructuralTag {
    /// As a client writes it.
    pub(super) fn text(&self) -> String {
        serde_json::to_string(self).expect("it is of texts and JSON")
    }
}

// === impl Tag ===

impl Tag {
    /// # Errors
    /// Says which text is too long, and where the schema cannot be enforced.
    pub(super) fn check(&self) -> Result<(), String> {
        let Self { begin, schema, end } = self;
        let long = [begin, end]
            .into_iter()
            .find(|text| text.len() > TEXT_BYTES_MAX);
        if let Some(text) = long {
            return Err(format!("{text:.100} is longer than {TEXT_BYTES_MAX} bytes"));
        }
        schema::check(schema).map_err(|error| format!("{begin:.100}: {error}"))
    }
}

/// A part of a begin or an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    Text(&'a str),
    Special(u32),
}

/// Most tags; each is a grammar.
pub(super) const TAGS_MAX: usize = 128;
/// Longest begin, end or trigger, in bytes.
pub(super) const TEXT_BYTES_MAX: usize = 1024;

/// # Errors
/// Says which tag or trigger is wrong, and where in its schema.
pub(super) fn to_lark(tag: &StructuralTag, vocabulary: &Vocabulary) -> Result<String, String> {
    let StructuralTag {
        structures,
        triggers,
    } = tag;
    if structures.is_empty() || structures.len() > TAGS_MAX || triggers.len() > TAGS_MAX {
        return Err(format!(
            "give from 1 to {TAGS_MAX} tags, and not more triggers"
        ));
    }
    let mut begun = vec![Vec::new(); triggers.len()];
    let mut lark = String::new();
    for (place, tag) in structures.iter().enumerate() {
        let Tag { begin, schema, end } = tag;
        let of = |trigger: &String| !trigger.is_empty() && begin.starts_with(trigger.as_str());
        let trigger = triggers.iter().position(of);
        tag.check()?;
        let trigger = trigger.ok_or_else(|| format!("{begin:.100} begins with no trigger"))?;
        let rest = lark_of(&begin[triggers[trigger].len()..], vocabulary);
        let (schema, end) = (with_options(schema.clone()), lark_of(end, vocabulary));
        let _ = writeln!(lark, "tag{place}: {rest} %json {schema} {end}");
        begun[trigger].push(format!("tag{place}"));
    }
    let mut ways = Vec::new();
    for (place, (trigger, tags)) in triggers.iter().zip(&begun).enumerate() {
        if tags.is_empty() {
            return Err(format!("the trigger {trigger:.100} begins no tag"));
        }
        let until = until(&format!("trigger{place}"), trigger, vocabulary);
        let until = until.map_err(|problem| format!("the trigger {trigger:.100}: {problem}"))?;
        let _ = writeln!(lark, "{until}");
        ways.push(format!("trigger{place} ({})", tags.join(" | ")));
    }
    let ways = ways.join(" | ");
    let _ = write!(lark, "start: ({ways})* rest\nrest: ANY\nANY: /(?s:.*)/\n");
    Ok(lark)
}

/// Lark of a rule: text that ends as soon as `mark` is there. `ANY` is any text.
///
/// # Errors
/// When special tokens are elsewhere in the mark than where it begins.
pub(super) fn until(rule: &str, mark: &str, vocabulary: &Vocabulary) -> Result<String, String> {
    match parts(mark, vocabulary).as_slice() {
        [Part::Text(_)] => Ok(format!("{rule}[lazy]: ANY {}", quoted(mark))),
        [Part::Special(_), ..] => Ok(format!("{rule}: ANY {}", lark_of(mark, vocabulary))),
        [] | [Part::Text(_), ..] => Err("a special token in it is not where it begins".to_owned()),
    }
}

/// A text as Lark, its special tokens as such.
pub(super) fn lark_of(text: &str, vocabulary: &Vocabulary) -> String {
    let parts = parts(text, vocabulary);
    let parts = parts.iter().map(|part| match part {
        Part::Text(text) => quoted(text),
        Part::Special(id) => format!("<[{id}]>"),
    });
    let parts: Vec<_> = parts.collect();
    if parts.is_empty() {
        quoted("")
    } else {
        parts.join(" ")
    }
}

/// A text with the special tokens in it.
pub(super) fn parts<'a>(text: &'a str, vocabulary: &Vocabulary) -> Vec<Part<'a>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (at, found) = vocabulary.find_special(rest);
        if at > 0 {
            parts.push(Part::Text(&rest[..at]));
        }
        let len = found.map_or(0, |(id, len)| {
            parts.push(Part::Special(id));
            len
        });
        rest = &rest[at + len..];
    }
    parts
}

#[cfg(test)]
mod tests;
