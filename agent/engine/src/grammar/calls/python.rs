//! Arguments as Python's keyword arguments. Numbers and strings in double quotes are what JSON has; `True`, `False`, `None`,
//! lists and dictionaries are rules of their own.

mod types;

use super::parameters::{Parameter, applying, of_object, refuse};
use crate::grammar::notation::{quoted, with_options};
use crate::grammar::schema::{SchemaError, error, resolve};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use types::{TYPES, are_apart, is_of, literal, untyped};

/// Rules of values, as they are needed.
#[derive(Debug, Default)]
pub(super) struct Values {
    lark: String,
    rules: usize,
    /// Whether a value that may be anything is among them.
    has_any: bool,
    has_text: bool,
}

/// One tool's schema.
struct Schemas<'a, 'v> {
    root: &'a Value,
    values: &'v mut Values,
    /// References that are being followed.
    within: Vec<&'a str>,
}

/// Deepest schema: readers of answers follow values so far.
const DEPTH_MAX: usize = 32;
/// How deep a value is that may be anything.
const ANY_DEPTH: usize = 4;
/// With a bound of items, for each of which the grammar has a way.
const ITEMS_MAX: u64 = 1 << 12;
/// Behind an argument or a value, and behind a key.
const COMMA: &str = "/, ?/";
const COLON: &str = "/: ?/";
/// Most rules of one request's tools: references are copied.
const RULES_MAX: usize = 1 << 14;

// === impl Values ===

impl Values {
    /// The arguments of a tool, as a rule.
    pub(super) fn arguments(&mut self, schema: &Value) -> Result<String, SchemaError> {
        let mut schemas = Schemas {
            root: schema,
            values: self,
            within: Vec::new(),
        };
        schemas.members(schema, "#", 0, |parameter| {
            let Parameter { name, path, .. } = parameter;
            let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if name.is_empty() || !is_name || name.starts_with(|c: char| c.is_ascii_digit()) {
                let problem =
                    "an argument's name in Python has letters, digits and `_`; give such a one";
                return Err(error(path, problem));
            }
            Ok(quoted(&format!("{name}=")))
        })
    }

    pub(super) fn into_lark(mut self) -> String {
        if self.has_any {
            for depth in 0..=ANY_DEPTH {
                let inner = format!("any{}", depth + 1);
                let list = format!("\"[\" ({inner} ({COMMA} {inner})*)? \"]\"");
                let pair = format!("string {COLON} {inner}");
                let dictionary = format!("\"{{\" ({pair} ({COMMA} {pair})*)? \"}}\"");
                let nested = format!(" | {list} | {dictionary}");
                let nested = if depth < ANY_DEPTH { &nested } else { "" };
                let plain = "string | number | \"True\" | \"False\" | \"None\"";
                let _infallible = writeln!(self.lark, "any{depth}: {plain}{nested}");
            }
            self.lark.push_str("number: %json {\"type\": \"number\"}\n");
        }
        if self.has_any || self.has_text {
            self.lark.push_str("string: %json {\"type\": \"string\"}\n");
        }
        self.lark
    }

    fn rule(&mut self, body: &str) -> String {
        let rule = format!("value{}", self.rules);
        self.rules += 1;
        let _infallible = writeln!(self.lark, "{rule}: {body}");
        rule
    }

    fn any(&mut self) -> String {
        self.has_any = true;
        "any0".to_owned()
    }

    fn text(&mut self) -> &'static str {
        self.has_text = true;
        "string"
    }
}

// === impl Schemas ===

impl<'a> Schemas<'a, '_> {
    /// An object's named properties, with commas between them, in the schema's order; `key` is what is in front of a value.
    fn members(
        &mut self,
        schema: &'a Value,
        path: &str,
        depth: usize,
        key: impl Fn(&Parameter<'a>) -> Result<String, SchemaError>,
    ) -> Result<String, SchemaError> {
        // With and without one in front, from the last one on.
        let mut rest = self.values.rule("\"\"");
        let mut first = rest.clone();
        for parameter in of_object(schema, path)?.iter().rev() {
            let key = key(parameter)?;
            let value = self.value(parameter.schema, &parameter.path, depth + 1)?;
            let member = self.values.rule(&format!("{key} {value}"));
            let (with_first, with_rest) = if parameter.is_required {
                (
                    format!("{member} {rest}"),
                    format!("{COMMA} {member} {rest}"),
                )
            } else {
                (
                    format!("{member} {rest} | {first}"),
                    format!("({COMMA} {member})? {rest}"),
                )
            };
            (first, rest) = (self.values.rule(&with_first), self.values.rule(&with_rest));
        }
        Ok(first)
    }

    fn value(
        &mut self,
        schema: &'a Value,
        path: &str,
        depth: usize,
    ) -> Result<String, SchemaError> {
        let Value::Object(keywords) = schema else {
            return Ok(self.values.any());
        };
        if depth > DEPTH_MAX {
            let problem =
                format!("it is more than {DEPTH_MAX} schemas deep; this form is held to that");
            return Err(error(path, problem));
        }
        if self.values.rules > RULES_MAX {
            return Err(error(
                path,
                "it is too large for this form; make it smaller",
            ));
        }
        if let Some(name) = applying(keywords, path)? {
            return self.applied(&keywords[name], name, path, depth);
        }
        let listed = keywords.get("enum").and_then(Value::as_array);
        let listed = listed.map(Vec::as_slice);
        if let Some(values) = listed.or_else(|| keywords.get("const").map(std::slice::from_ref)) {
            return self.listed(values, keywords, path);
        }
        let kinds = match keywords.get("type") {
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
            Some(kind) => kind.as_str().into_iter().collect(),
            None => untyped(keywords, path)?,
        };
        if kinds.is_empty() {
            return Ok(self.values.any());
        }
        let ways = kinds
            .into_iter()
            .map(|kind| self.of_type(kind, schema, keywords, path, depth));
        let ways = ways.collect::<Result<Vec<_>, _>>()?.join(" | ");
        Ok(self.values.rule(&ways))
    }

    /// A value of which other schemas say all.
    fn applied(
        &mut self,
        schemas: &'a Value,
        name: &str,
        path: &str,
        depth: usize,
    ) -> Result<String, SchemaError> {
        match schemas {
            Value::String(reference) => {
                if self.within.contains(&reference.as_str()) {
                    let problem = format!(
                        "$ref {reference:.100} leads back to itself; this form is held to schemas that end"
                    );
                    return Err(error(path, problem));
                }
                let target = resolve(self.root, reference).unwrap_or(&Value::Null);
                self.within.push(reference);
                let value = self.value(target, reference, depth + 1);
                self.within.pop();
                value
            }
            Value::Array(schemas) => {
                if schemas.len() > 1 && (name == "allOf" || name == "oneOf" && !are_apart(schemas))
                {
                    let problem =
                        format!("{name} of these schemas cannot be enforced in this form");
                    return Err(error(path, problem));
                }
                let mut ways = Vec::with_capacity(schemas.len());
                for (place, schema) in schemas.iter().enumerate() {
                    let path = format!("{path}/{name}/{place}");
                    ways.push(self.value(schema, &path, depth + 1)?);
                }
                Ok(self.values.rule(&ways.join(" | ")))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
                Err(error(path, format!("{name} is no list of schemas")))
            }
        }
    }

    /// One of some values, of which the schema says no more than their types.
    fn listed(
        &mut self,
        values: &[Value],
        keywords: &Map<String, Value>,
        path: &str,
    ) -> Result<String, SchemaError> {
        let others = TYPES
            .iter()
            .flat_map(|(_, keywords)| keywords.iter().copied());
        refuse(keywords, path, " beside a list of values", others)?;
        if keywords.contains_key("enum") {
            refuse(keywords, path, " beside enum", ["const"].into_iter())?;
        }
        let kinds = keywords.get("type");
        let kinds = kinds.map(|kind| {
            kind.as_array()
                .map_or(std::slice::from_ref(kind), Vec::as_slice)
        });
        let is_of = |value: &Value| {
            kinds.is_none_or(|kinds| kinds.iter().any(|kind| is_of(value, kind.as_str())))
        };
        let ways = values.iter().filter(|value| is_of(value));
        let ways: Vec<_> = ways.map(|value| quoted(&literal(value))).collect();
        if ways.is_empty() {
            return Err(error(path, "it allows no value"));
        }
        Ok(self.values.rule(&ways.join(" | ")))
    }

    fn of_type(
        &mut self,
        kind: &str,
        schema: &'a Value,
        keywords: &'a Map<String, Value>,
        path: &str,
        depth: usize,
    ) -> Result<String, SchemaError> {
        match kind {
            "null" => Ok("\"None\"".to_owned()),
            "boolean" => Ok("\"True\" | \"False\"".to_owned()),
            "array" => self.list(keywords, path, depth),
            "object" => self.dictionary(schema, keywords, path, depth),
            "string" | "integer" | "number" => {
                let own = TYPES.iter().find(|(known, _)| *known == kind);
                let own = own.map_or(&[][..], |(_, own)| own);
                let mut plain = json!({"type": kind});
                for name in own.iter().filter(|name| keywords.contains_key(**name)) {
                    plain[*name] = keywords[*name].clone();
                }
                Ok(format!("%json {}", with_options(plain)))
            }
            other => Err(error(path, format!("{other:.100} is no type"))),
        }
    }

    fn list(
        &mut self,
        keywords: &'a Map<String, Value>,
        path: &str,
        depth: usize,
    ) -> Result<String, SchemaError> {
        refuse(
            keywords,
            path,
            "",
            ["prefixItems", "additionalItems"].into_iter(),
        )?;
        let item = match keywords.get("items") {
            Some(Value::Array(_)) => {
                return Err(error(
                    path,
                    "a list of items cannot be enforced in this form",
                ));
            }
            Some(Value::Bool(false)) => return Ok("\"[]\"".to_owned()),
            Some(items) => self.value(items, &format!("{path}/items"), depth + 1)?,
            None => self.values.any(),
        };
        let count = |name: &str| keywords.get(name).and_then(Value::as_u64);
        let (min, max) = (count("minItems").unwrap_or(0), count("maxItems"));
        if max.is_some_and(|max| max < min) {
            return Err(error(path, "minItems is greater than maxItems"));
        }
        if min.max(max.unwrap_or(0)) > ITEMS_MAX {
            let problem = format!("this form is held to bounds of up to {ITEMS_MAX} items");
            return Err(error(path, problem));
        }
        if max == Some(0) {
            return Ok("\"[]\"".to_owned());
        }
        let most = max.map_or_else(String::new, |max| (max - 1).to_string());
        let items = format!(
            "{item} ({COMMA} {item}){{{},{most}}}",
            min.saturating_sub(1)
        );
        let may_lack = if min == 0 { "?" } else { "" };
        Ok(format!("\"[\" ({items}){may_lack} \"]\""))
    }

    fn dictionary(
        &mut self,
        schema: &'a Value,
        keywords: &'a Map<String, Value>,
        path: &str,
        depth: usize,
    ) -> Result<String, SchemaError> {
        let has_named = ["properties", "required"].iter().any(|name| {
            let named = keywords.get(*name);
            let is_empty = |named: &Value| {
                named.as_object().is_some_and(Map::is_empty)
                    || named.as_array().is_some_and(Vec::is_empty)
            };
            named.is_some_and(|named| !is_empty(named))
        });
        let others = keywords.get("additionalProperties");
        if has_named || others == Some(&Value::Bool(false)) {
            let key = |parameter: &Parameter<'_>| {
                let name = Value::from(parameter.name).to_string();
                Ok(format!("{} {COLON}", quoted(&name)))
            };
            let members = self.members(schema, path, depth, key)?;
            return Ok(format!("\"{{\" {members} \"}}\""));
        }
        refuse(
            keywords,
            path,
            "",
            ["patternProperties", "minProperties", "maxProperties"].into_iter(),
        )?;
        let value = match others {
            Some(others) => {
                self.value(others, &format!("{path}/additionalProperties"), depth + 1)?
            }
            None => self.values.any(),
        };
        let text = self.values.text();
        let pair = self.values.rule(&format!("{text} {COLON} {value}"));
        Ok(format!("\"{{\" ({pair} ({COMMA} {pair})*)? \"}}\""))
    }
}

#[cfg(test)]
mod tests;
