//! The Jinja environment that chat templates expect: Hugging Face's, which is Python's.

mod python;

use jiff::Timestamp;
use jiff::fmt::strtime;
use minijinja::value::Kwargs;
use minijinja::{Environment, Error, ErrorKind, Value, escape_formatter};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};
use std::error::Error as _;
use std::fmt::Write as _;
use std::io;
use std::time::SystemTime;

/// A template that runs longer than this is broken or hostile.
const MAX_STEPS: u64 = 50_000_000;

/// Widest indent of JSON: it may be a client's variable, and each line of each level takes as much.
const INDENT_MAX: usize = 32;

/// JSON on one line with spaces after `,` and `:`, as Python's `json.dumps` writes it.
struct PythonFormatter;

pub(super) fn for_chat() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_fuel(Some(MAX_STEPS));
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", raise_exception);
    environment.add_filter("tojson", tojson);
    environment.add_filter("string", python::text);
    environment.add_filter("upper", |value: &Value| python::text(value).to_uppercase());
    environment.add_test("iterable", is_iterable);
    environment.set_formatter(|out, state, value| {
        if python::is_container(value) {
            return Ok(out.write_str(&python::text(value))?);
        }
        escape_formatter(out, state, value)
    });
    environment
}

/// The message of an error and of its causes, without the template's text.
pub(super) fn explain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _infallible = write!(text, ": {error}");
        cause = error.source();
    }
    text
}

/// Python has nothing to iterate in none; templates ask this ahead of a list's length.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

fn tojson(value: &Value, kwargs: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = kwargs.get("indent")?;
    if let Some(indent) = indent.filter(|&indent| indent > INDENT_MAX) {
        let reason = format!("tojson: indent is {indent}; at most {INDENT_MAX} are written");
        return Err(Error::new(ErrorKind::InvalidOperation, reason));
    }
    let is_ascii = kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    kwargs.assert_all_used()?;
    let mut out = Vec::new();
    let written = match indent {
        Some(indent) => {
            let indent = " ".repeat(indent);
            let formatter = PrettyFormatter::with_indent(indent.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut out, formatter))
        }
        None => value.serialize(&mut Serializer::with_formatter(&mut out, PythonFormatter)),
    };
    let wrong = |reason: String| Error::new(ErrorKind::BadSerialization, reason);
    written.map_err(|error| wrong(error.to_string()))?;
    let json = String::from_utf8(out).map_err(|error| wrong(error.to_string()))?;
    Ok(if is_ascii {
        escaped_to_ascii(&json)
    } else {
        json
    })
}

/// JSON has characters outside ASCII in strings only.
fn escaped_to_ascii(json: &str) -> String {
    let mut ascii = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii() {
            ascii.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _infallible = write!(ascii, "\\u{unit:04x}");
            }
        }
    }
    ascii
}

/// The function `strftime_now(format)`: `now` in UTC.
pub(super) fn strftime_at(now: SystemTime) -> Value {
    Value::from_function(move |format: String| -> Result<String, Error> {
        let wrong = |error: jiff::Error| {
            Error::new(
                ErrorKind::InvalidOperation,
                format!("strftime_now: {error}"),
            )
        };
        let now = Timestamp::try_from(now).map_err(wrong)?;
        strtime::format(&format, now).map_err(wrong)
    })
}

// === impl PythonFormatter ===

impl Formatter for PythonFormatter {
    fn begin_array_value<W>(&mut self, writer: &mut W, first: bool) -> io::Result<()>
    where
        W: ?Sized + io::Write,
    {
        separate(writer, first)
    }

    fn begin_object_key<W>(&mut self, writer: &mut W, first: bool) -> io::Result<()>
    where
        W: ?Sized + io::Write,
    {
        separate(writer, first)
    }

    fn begin_object_value<W>(&mut self, writer: &mut W) -> io::Result<()>
    where
        W: ?Sized + io::Write,
    {
        writer.write_all(b": ")
    }
}

fn separate<W: ?Sized + io::Write>(writer: &mut W, first: bool) -> io::Result<()> {
    if first {
        Ok(())
    } else {
        writer.write_all(b", ")
    }
}
