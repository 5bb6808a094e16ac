//! Values as Python's `str` writes them: strings inside of others are quoted, `True` and `None` are words.

use minijinja::Value;
use minijinja::value::ValueKind;
use std::fmt::Write as _;

pub(super) fn is_container(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Map)
}

/// What `str(value)` is.
pub(super) fn text(value: &Value) -> String {
    if !is_container(value) {
        return value.to_string();
    }
    let mut out = String::new();
    write_inner(value, &mut out);
    out
}

/// Writes what `repr(value)` is.
fn write_inner(value: &Value, out: &mut String) {
    if let Some(text) = value.as_str() {
        write_quoted(text, out);
    } else if value.is_none() {
        out.push_str("None");
    } else if !is_container(value) {
        let _infallible = write!(out, "{value}");
    } else {
        let is_map = value.kind() == ValueKind::Map;
        out.push(if is_map { '{' } else { '[' });
        for (i, element) in value.try_iter().into_iter().flatten().enumerate() {
            out.push_str(if i > 0 { ", " } else { "" });
            write_inner(&element, out);
            if is_map {
                out.push_str(": ");
                write_inner(&value.get_item(&element).unwrap_or_default(), out);
            }
        }
        out.push(if is_map { '}' } else { ']' });
    }
}

/// In single quotes, unless only those are in it.
fn write_quoted(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => out.extend(['\\', c]),
            c if c.is_ascii_control() => {
                let _infallible = write!(out, "\\x{:02x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}

#[cfg(test)]
mod tests;
