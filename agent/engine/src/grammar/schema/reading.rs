//! A schema in the crate's own reading, where that is looser than the standard's: formats of times become expressions, and
//! expressions are ECMAScript's where the crate's differ in what they match.

use serde_json::{Map, Value, json};

const DAY: &str = concat!(
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])",
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)",
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))",
    // Leap years.
    "|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)",
);
/// A leap second is written in UTC.
const TIME: &str = concat!(
    r"(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])",
    r"|23:59:60(?:\.[0-9]+)?(?:[zZ]|[+-]00:00))",
);
/// ECMAScript's white space, in a class.
const SPACES: &str = r"\t\n\x0b\x0c\r \u{a0}\u{1680}\u{2000}-\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}\u{feff}";
/// Values, not schemas.
const VALUES: [&str; 5] = ["const", "enum", "default", "example", "examples"];
const MAPS: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];

/// Changes all schemas of a checked one, wherever a reference may find them.
pub(in crate::grammar) fn adapt(schema: &mut Value) {
    let Some(keywords) = schema.as_object_mut() else {
        return;
    };
    for (name, value) in keywords.iter_mut() {
        let name = name.as_str();
        match value {
            Value::Object(named) if MAPS.contains(&name) => named.values_mut().for_each(adapt),
            Value::Array(items) if !VALUES.contains(&name) => items.iter_mut().for_each(adapt),
            Value::Object(_) if !VALUES.contains(&name) => adapt(value),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => {}
        }
    }
    // It constrains nothing, and the crate refuses it.
    if keywords.get("uniqueItems") == Some(&Value::Bool(false)) {
        keywords.remove("uniqueItems");
    }
    if let Some(Value::String(pattern)) = keywords.get_mut("pattern") {
        *pattern = as_ecma(pattern);
    }
    if let Some(Value::Object(named)) = keywords.get_mut("patternProperties") {
        let all = std::mem::take(named).into_iter();
        *named = all.map(|(name, schema)| (as_ecma(&name), schema)).collect();
    }
    let format = keywords.get("format").and_then(Value::as_str);
    let text = match format {
        Some("date") => format!("^{DAY}$"),
        Some("time") => format!("^{TIME}$"),
        Some("date-time") => format!("^{DAY}[tT]{TIME}$"),
        Some(_) | None => return,
    };
    keywords.remove("format");
    add_pattern(keywords, text);
}

fn add_pattern(keywords: &mut Map<String, Value>, text: String) {
    if !keywords.contains_key("pattern") {
        keywords.insert("pattern".to_owned(), text.into());
        return;
    }
    let all = keywords.entry("allOf").or_insert_with(|| json!([]));
    if let Value::Array(all) = all {
        all.push(json!({ "pattern": text }));
    }
}

/// Classes, `.` and `\s` are what they are in ECMAScript.
fn as_ecma(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let (mut rest, mut in_class) = (pattern, false);
    loop {
        // Of any character, and of none.
        let empty = [("[^]", "(?s:.)"), ("[]", "[a&&b]")];
        let mut empty = empty.into_iter().filter(|_| !in_class);
        if let Some((class, same)) = empty.find(|(class, _)| rest.starts_with(class)) {
            out += same;
            rest = &rest[class.len()..];
            continue;
        }
        let mut chars = rest.chars();
        let Some(c) = chars.next() else {
            return out;
        };
        match c {
            '\\' => match chars.next() {
                Some('s') if in_class => out += SPACES,
                Some('s') => out += &format!("[{SPACES}]"),
                Some('S') => out += &format!("[^{SPACES}]"),
                Some(other) => out.extend([c, other]),
                None => out.push(c),
            },
            '.' if !in_class => out += r"[^\n\r\u{2028}\u{2029}]",
            '[' | '&' | '~' if in_class => out.extend(['\\', c]),
            '[' | ']' => {
                in_class = c == '[';
                out.push(c);
            }
            _ => out.push(c),
        }
        rest = chars.as_str();
    }
}

#[cfg(test)]
mod tests;
