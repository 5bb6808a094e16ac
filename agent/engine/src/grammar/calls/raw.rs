//! Strings that are written as they are, as regular expressions.

mod formats;

use super::parameters::{APPLYING, applying, refuse};
use crate::grammar::notation::quoted;
use crate::grammar::schema::{OWN, SchemaError, error, resolve};
use llguidance::derivre::{RegexAst, RegexBuilder};
use llguidance::regex_to_lark;
use regex_syntax::hir::{Hir, HirKind, Look};
use serde_json::{Map, Value};

/// The strings that a schema allows, and whether it allows null.
#[derive(Debug, Default)]
pub(super) struct Strings {
    /// Any of these.
    ways: Vec<Way>,
    /// Those among them that the schema lists.
    listed: Vec<String>,
    allows_null: bool,
    /// Schemas that were looked into.
    schemas: usize,
}

/// What all of some expressions match.
#[derive(Debug)]
struct Way {
    matching: Vec<String>,
    /// One of them is of listed texts.
    is_listed: bool,
}

/// Most schemas of one value.
const SCHEMAS_MAX: usize = 256;
/// Longest expression that a pattern becomes, in bytes: its classes are written out.
const REGEX_BYTES_MAX: usize = 256 << 10;
/// What it may take to see whether an expression matches anything.
const EMPTY_FUEL: u64 = 10_000;
const ANY: &str = "(?s:.*)";

/// # Errors
/// Names what would not be kept.
pub(super) fn strings(schema: &Value, root: &Value, path: &str) -> Result<Strings, SchemaError> {
    let mut strings = Strings::default();
    strings.add(schema, root, path)?;
    Ok(strings)
}

/// The values that a schema of several types lists, as Lark, where it says no more of them; each is read as JSON, and as
/// a string where it is none: so strings stand without quotes where nothing else reads so.
pub(super) fn listed(schema: &Value, mark: &str) -> Option<String> {
    let keywords = schema.as_object()?;
    let values = keywords.get("enum")?.as_array()?;
    let says_more = APPLYING.iter().chain(&OWN);
    let mut says_more = says_more.filter(|name| **name != "enum");
    if says_more.any(|name| keywords.contains_key(*name)) {
        return None;
    }
    let written = |value: &Value| {
        let text = value.as_str().filter(|text| is_no_json(text));
        text.map_or_else(|| value.to_string(), str::to_owned)
    };
    let written: Vec<_> = values.iter().map(written).collect();
    let is_readable = |text: &String| !text.contains(mark);
    let written = written.iter().all(is_readable).then_some(written)?;
    let written: Vec<_> = written.iter().map(|text| quoted(text)).collect();
    (!written.is_empty()).then(|| written.join(" | "))
}

/// Neither JSON nor the beginning of some, nor one of Python's words for it.
fn is_no_json(text: &str) -> bool {
    let trimmed = text.trim();
    !["True", "False", "None"].contains(&trimmed)
        && !trimmed.starts_with(['"', '[', '{'])
        && serde_json::from_str::<Value>(trimmed).is_err_and(|error| !error.is_eof())
}

// === impl Strings ===

impl Strings {
    fn add(&mut self, schema: &Value, root: &Value, path: &str) -> Result<(), SchemaError> {
        let Value::Object(keywords) = schema else {
            self.ways.push(Way {
                matching: Vec::new(),
                is_listed: false,
            });
            self.allows_null = true;
            return Ok(());
        };
        self.schemas += 1;
        if self.schemas > SCHEMAS_MAX {
            let problem = format!("more than {SCHEMAS_MAX} schemas say what it is; write fewer");
            return Err(error(path, problem));
        }
        let Some(name) = applying(keywords, path)? else {
            return self.add_own(keywords, path);
        };
        match &keywords[name] {
            Value::String(reference) => {
                let target = resolve(root, reference).unwrap_or(&Value::Null);
                self.add(target, root, reference)
            }
            Value::Array(schemas) => {
                if name == "allOf" && schemas.len() > 1 {
                    let problem =
                        "allOf of several schemas cannot be enforced in this form; write one";
                    return Err(error(path, problem));
                }
                let strings = self.ways.len();
                for (place, schema) in schemas.iter().enumerate() {
                    let path = format!("{path}/{name}/{place}");
                    self.add(schema, root, &path)?;
                }
                if name == "oneOf" && self.ways.len() > strings + 1 {
                    let problem =
                        "oneOf of several strings cannot be enforced in this form; give anyOf";
                    return Err(error(path, problem));
                }
                Ok(())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
                Err(error(path, format!("{name} is no list of schemas")))
            }
        }
    }

    /// What a schema says of strings by its own keywords.
    fn add_own(&mut self, keywords: &Map<String, Value>, path: &str) -> Result<(), SchemaError> {
        let allows = |name: &str| match keywords.get("type") {
            None => true,
            Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == name),
            Some(kind) => kind == name,
        };
        let constant = keywords.get("const").map(std::slice::from_ref);
        let listed = keywords.get("enum").and_then(Value::as_array);
        let listed = listed.map(Vec::as_slice).or(constant);
        self.allows_null |= allows("null") && listed.is_none_or(|all| all.contains(&Value::Null));
        if !allows("string") {
            return Ok(());
        }
        if constant.is_some() {
            refuse(keywords, path, " beside const", ["enum"].into_iter())?;
        }
        let mut matching = Vec::new();
        if let Some(listed) = listed {
            let texts: Vec<&str> = listed.iter().filter_map(Value::as_str).collect();
            if texts.is_empty() {
                return Ok(());
            }
            let escaped: Vec<_> = texts
                .iter()
                .map(|text| regex_syntax::escape(text))
                .collect();
            matching.push(format!("(?:{})", escaped.join("|")));
            self.listed.extend(texts.into_iter().map(str::to_owned));
        }
        if let Some(pattern) = keywords.get("pattern").and_then(Value::as_str) {
            let found = search(pattern);
            matching.push(found.map_err(|problem| error(path, problem))?);
        }
        if let Some(format) = keywords.get("format").and_then(Value::as_str) {
            let known = formats::regex(format).ok_or_else(|| {
                let problem = format!(
                    "format {format:.100} cannot be enforced in this form; leave it out, or give a pattern"
                );
                error(path, problem)
            });
            matching.push(known?);
        }
        let count = |name: &str| keywords.get(name).and_then(Value::as_u64);
        let (min, max) = (count("minLength"), count("maxLength"));
        if max.is_some_and(|max| max < min.unwrap_or(0)) {
            return Err(error(path, "minLength is greater than maxLength"));
        }
        if min.is_some() || max.is_some() {
            let max = max.map_or_else(String::new, |max| max.to_string());
            matching.push(format!("(?s:.{{{},{max}}})", min.unwrap_or(0)));
        }
        self.ways.push(Way {
            matching,
            is_listed: listed.is_some(),
        });
        Ok(())
    }

    /// The strings as Lark, without those that have `mark` in them; where `null` is read as null, with that if it is allowed.
    pub(super) fn terms(
        &self,
        mark: &str,
        or_null: bool,
        path: &str,
    ) -> Result<String, SchemaError> {
        let reads_null = |text: &str| or_null && !self.allows_null && text.trim() == "null";
        for text in &self.listed {
            if text.contains(mark) || reads_null(text) {
                let problem =
                    format!("this form cannot write {text:?}: it would be read as something else");
                return Err(error(path, problem));
            }
        }
        let free = without(mark).ok_or_else(|| {
            error(
                path,
                format!("this form cannot hold a string that ends with {mark}"),
            )
        })?;
        let no_null = (or_null && !self.allows_null).then_some(r"\s*null\s*");
        let in_slashes = |regex: &str| format!("/{}/", regex_to_lark(regex, ""));
        let mut terms = Vec::new();
        for Way {
            matching,
            is_listed,
        } in &self.ways
        {
            let free = (!is_listed).then_some(&free);
            let all: Vec<&str> = matching.iter().chain(free).map(String::as_str).collect();
            check_not_empty(&all, no_null, path)?;
            let all = all.into_iter().map(in_slashes);
            let no_null = no_null.map(|null| format!("~{}", in_slashes(null)));
            let all: Vec<_> = all.chain(no_null).collect();
            terms.push(format!("({})", all.join(" & ")));
        }
        if or_null && self.allows_null {
            terms.push("\"null\"".to_owned());
        }
        if terms.is_empty() {
            return Err(error(
                path,
                "this form writes strings here, and the schema has none",
            ));
        }
        Ok(terms.join(" | "))
    }
}

/// What is too much to look into is left to the answer, which would end with its reason.
fn check_not_empty(all: &[&str], never: Option<&str>, path: &str) -> Result<(), SchemaError> {
    let regex = |regex: &str| RegexAst::Regex(regex.to_owned());
    let never = never.map(|never| RegexAst::Not(Box::new(regex(never))));
    let all = all.iter().copied().map(regex);
    let mut builder = RegexBuilder::new();
    let strings = builder.mk(&RegexAst::And(all.chain(never).collect()));
    let is_empty = strings.and_then(|strings| {
        let is_plain = builder.exprset().is_positive(strings);
        let empty = || builder.to_regex_limited(strings, EMPTY_FUEL);
        Ok(!is_plain && empty()?.always_empty())
    });
    match is_empty {
        Ok(true) => Err(error(path, "it allows no string")),
        Ok(false) | Err(_) => Ok(()),
    }
}

/// What matches every text that has no `mark` in it, written out: of a complement, lexers search every state for an end.
/// `None` for a mark that may begin again inside itself.
fn without(mark: &str) -> Option<String> {
    let first = mark.chars().next()?;
    if mark[first.len_utf8()..].contains(first) {
        return None;
    }
    let escaped = |text: &str| regex_syntax::escape(text);
    let not = |chars: &[char]| {
        let chars: Vec<_> = chars
            .iter()
            .map(|c| escaped(c.encode_utf8(&mut [0; 4])))
            .collect();
        format!("[^{}]", chars.concat())
    };
    // Behind the first character and some more of the mark: it begins again, it goes elsewhere, or the text ends.
    let (mut again, mut elsewhere, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    for (at, next) in mark.char_indices().skip(1) {
        let more = escaped(&mark[first.len_utf8()..at]);
        again.push(format!("{more}{}", escaped(&mark[..first.len_utf8()])));
        elsewhere.push(format!("{more}{}", not(&[first, next])));
        ends.push(more);
    }
    let others = not(&[first]);
    if again.is_empty() {
        return Some(format!("{others}*"));
    }
    let [again, elsewhere, ends] = [again, elsewhere, ends].map(|ways| ways.join("|"));
    let begun = format!("{}(?:{again})*", escaped(&mark[..first.len_utf8()]));
    Some(format!(
        "(?:{others}|{begun}(?:{elsewhere}))*(?:{begun}(?:{ends}))?"
    ))
}

/// What matches every text in which the pattern of a JSON schema is found.
fn search(pattern: &str) -> Result<String, String> {
    let ascii = regex_to_lark(pattern, "dw");
    let parsed = regex_syntax::parse(&ascii);
    let parsed = parsed.map_err(|why| format!("pattern {pattern:.100} cannot be read: {why}"))?;
    let problem = match in_text(&parsed) {
        Some(regex) if regex.len() <= REGEX_BYTES_MAX => return Ok(regex),
        Some(_) => "it is too large",
        None => "it looks around elsewhere than at its ends",
    };
    Err(format!(
        "pattern {pattern:.100} cannot be enforced in this form: {problem}"
    ))
}

fn in_text(pattern: &Hir) -> Option<String> {
    let parts = match pattern.kind() {
        HirKind::Capture(group) => return in_text(&group.sub),
        HirKind::Alternation(ways) => {
            let ways = ways.iter().map(in_text);
            return Some(format!(
                "(?:{})",
                ways.collect::<Option<Vec<_>>>()?.join("|")
            ));
        }
        HirKind::Concat(parts) => parts.as_slice(),
        HirKind::Empty
        | HirKind::Literal(_)
        | HirKind::Class(_)
        | HirKind::Look(_)
        | HirKind::Repetition(_) => std::slice::from_ref(pattern),
    };
    let is = |part: &Hir, look| matches!(part.kind(), HirKind::Look(is) if *is == look);
    let start = parts
        .iter()
        .take_while(|part| is(part, Look::Start))
        .count();
    let (anchors, parts) = parts.split_at(start);
    let end = parts
        .iter()
        .rev()
        .take_while(|part| is(part, Look::End))
        .count();
    let (parts, ends) = parts.split_at(parts.len() - end);
    if parts
        .iter()
        .any(|part| !part.properties().look_set().is_empty())
    {
        return None;
    }
    let inner: String = parts.iter().map(|part| format!("(?:{part})")).collect();
    let [before, behind] = [anchors, ends].map(|looks| if looks.is_empty() { ANY } else { "" });
    Some(format!("(?:{before}{inner}{behind})"))
}

#[cfg(test)]
mod tests;
