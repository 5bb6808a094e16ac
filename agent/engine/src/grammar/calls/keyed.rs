//! Arguments that are written one by one: a string as it is, up to the mark that ends it; other values as JSON.

use super::parameters::{self, Parameter};
use super::{Breaks, raw};
use crate::grammar::notation::{quoted, with_options};
use crate::grammar::schema::{self, SchemaError, error};
use crate::grammar::tags::{Part, parts};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::Write;

/// What is around each argument.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyedArguments {
    pub before_key: String,
    /// Between the key and its value.
    pub before_value: String,
    /// Behind the value.
    pub end: String,
    /// Whether line breaks between marks, and around calls, may be left out.
    pub has_free_breaks: bool,
    /// Of the arguments, as an object.
    pub schema: Value,
    /// Those that are read as strings; all others are read as JSON.
    pub texts: Vec<TextParameter>,
}

/// A parameter whose value is read as a string.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextParameter {
    pub name: String,
    /// `null` is read as null.
    pub or_null: bool,
}

/// Longest name of a parameter, in bytes: readers of answers take no longer ones.
const NAME_BYTES_MAX: usize = 256;

// === impl KeyedArguments ===

impl KeyedArguments {
    /// Rule `rule`, and those that it needs: the parameters in the schema's order, of which optional ones may be left out.
    pub(super) fn to_lark(&self, rule: &str, breaks: Breaks<'_>) -> Result<String, SchemaError> {
        let mut body = String::new();
        let mut rules = String::new();
        for (place, parameter) in parameters::of_object(&self.schema, "#")?.iter().enumerate() {
            self.check_name(parameter)?;
            let rule = format!("{rule}{place}");
            let may_lack = if parameter.is_required { "" } else { "?" };
            let _infallible = write!(body, " {rule}{may_lack}");
            let [before_key, before_value] =
                [&self.before_key, &self.before_value].map(|text| breaks.lark_of(text));
            let key = quoted(parameter.name);
            let value = self.value(parameter, &rule, breaks)?;
            let _infallible = writeln!(rules, "{rule}: {before_key} {key} {before_value} {value}");
        }
        if body.is_empty() {
            body.push_str(" \"\"");
        }
        Ok(format!("{rule}:{body}\n{rules}"))
    }

    fn check_name(&self, parameter: &Parameter<'_>) -> Result<(), SchemaError> {
        let Parameter { name, path, .. } = parameter;
        let mark = self.before_value.split('\n').next().unwrap_or_default();
        if name.len() > NAME_BYTES_MAX || name.trim() != *name || name.contains(mark) {
            let problem = format!(
                "this form cannot write its name; give one of up to {NAME_BYTES_MAX} bytes, without {mark} and spaces around it"
            );
            return Err(error(path, problem));
        }
        Ok(())
    }

    /// A value with what is behind it, and the rules that both need.
    fn value(
        &self,
        parameter: &Parameter<'_>,
        rule: &str,
        breaks: Breaks<'_>,
    ) -> Result<String, SchemaError> {
        let Parameter {
            name, schema, path, ..
        } = parameter;
        let mark = self.end.trim();
        let Some(text) = self.texts.iter().find(|text| text.name == *name) else {
            let end = breaks.lark_of(&self.end);
            if let Some(values) = raw::listed(schema, mark) {
                return Ok(format!("({values}) {end}"));
            }
            let schema = with_options(self.with_definitions(schema, path)?);
            return Ok(format!("%json {schema} {end}"));
        };
        let strings = raw::strings(schema, &self.schema, path)?;
        let strings = strings.terms(mark, text.or_null, path)?;
        let terminal = rule.to_uppercase();
        // One lexeme with the mark, which no text has: it cannot go on behind it.
        let (close, rest) = match self.end.find('\n').filter(|at| breaks.are_free && *at > 0) {
            Some(at) => self.end.split_at(at),
            None => (self.end.as_str(), ""),
        };
        let (close, special) = match parts(close, breaks.vocabulary).first() {
            Some(Part::Text(text)) => (quoted(text), &close[text.len()..]),
            Some(Part::Special(_)) | None => (String::new(), close),
        };
        let rest = breaks.lark_of(&format!("{special}{rest}"));
        Ok(format!(
            "{terminal} {rest}\n{terminal}: ({strings}) {close}"
        ))
    }

    /// What a parameter's schema refers to comes with it.
    fn with_definitions(&self, schema: &Value, path: &str) -> Result<Value, SchemaError> {
        let mut schema = schema.clone();
        if let Value::Object(keywords) = &mut schema {
            for name in ["$defs", "definitions"] {
                if let Some(definitions) = self.schema.get(name) {
                    keywords.insert(name.to_owned(), definitions.clone());
                }
            }
        }
        schema::check(&schema).map_err(|problem| error(path, problem.to_string()))?;
        Ok(schema)
    }
}

#[cfg(test)]
mod tests;
