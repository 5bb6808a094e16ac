//! What a JSON schema may contain. The crate enforces or refuses the keywords that it knows, by the draft of the schema;
//! here is refused what it would pass over, and what takes more memory or time than an answer is worth: it copies
//! schemas where several apply to one value (`allOf`, or `anyOf` beside other keywords), so a small text can describe a
//! grammar that fits no memory.

mod ends;
mod keywords;
mod reading;
mod size;

pub(super) use reading::adapt;
use serde_json::{Map, Value};
use size::{Size, values_in};
use std::collections::{HashMap, HashSet};

/// What is wrong with a schema, and where.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("at {path}: {problem}")]
pub(super) struct SchemaError {
    /// A JSON pointer into the schema.
    path: String,
    problem: String,
}

/// Schemas in a schema.
pub(super) const NODES_MAX: usize = 1 << 14;
/// Schemas after those that apply to one value are copied for each alternative.
const EXPANDED_MAX: u64 = 100_000;
/// References that must be copied one in another.
const COPIED_DEPTH_MAX: usize = 64;
const PROPERTIES_MAX: usize = 2048;
/// Each two are compared.
const PATTERN_PROPERTIES_MAX: usize = 32;

/// Keywords that constrain a value by themselves, without its other schemas.
pub(super) const OWN: [&str; 21] = [
    "type",
    "items",
    "additionalItems",
    "prefixItems",
    "minItems",
    "maxItems",
    "properties",
    "additionalProperties",
    "patternProperties",
    "required",
    "minProperties",
    "maxProperties",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
];

/// A walk over all schemas that matter.
struct Walk<'a> {
    root: &'a Value,
    nodes: usize,
    /// Targets of references, on their own.
    seen: HashSet<&'a str>,
    to_do: Vec<(&'a str, &'a Value)>,
    /// Targets that are copied where they are referred to.
    copied: HashMap<&'a str, Option<Size>>,
    depth: usize,
}

/// # Errors
/// Names the first place with something that is refused.
pub(super) fn check(schema: &Value) -> Result<(), SchemaError> {
    if *schema == Value::Bool(false) {
        return Err(error("#", "false allows nothing"));
    }
    let mut walk = Walk {
        root: schema,
        nodes: 0,
        seen: HashSet::new(),
        to_do: vec![("#", schema)],
        copied: HashMap::new(),
        depth: 0,
    };
    let mut expanded = 0;
    while let Some((path, schema)) = walk.to_do.pop() {
        expanded += walk.schema(schema, path, false)?.nodes;
        within(path, "schemas, with copies", expanded, EXPANDED_MAX)?;
    }
    if !ends::has_end(schema) {
        let problem =
            "none of its values ends, as each needs another one in it; let one be left out";
        return Err(error("#", problem));
    }
    Ok(())
}

pub(super) fn error(path: &str, problem: impl Into<String>) -> SchemaError {
    SchemaError {
        path: path.to_owned(),
        problem: problem.into(),
    }
}

fn within(path: &str, what: &str, len: u64, max: u64) -> Result<(), SchemaError> {
    if len > max {
        return Err(error(
            path,
            format!("it has more than {max} {what}; make it smaller"),
        ));
    }
    Ok(())
}

// === impl Walk ===

impl<'a> Walk<'a> {
    /// `is_copied`: others apply to the same value, so that references in it are replaced by what they refer to.
    fn schema(
        &mut self,
        schema: &'a Value,
        path: &str,
        is_copied: bool,
    ) -> Result<Size, SchemaError> {
        self.nodes += 1;
        within(path, "schemas", self.nodes as u64, NODES_MAX as u64)?;
        let keywords = match schema {
            Value::Object(keywords) => keywords,
            Value::Bool(_) => return Ok(Size::ONE),
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err(error(path, "a schema is an object, or true or false"));
            }
        };
        keywords::check(keywords, path)?;
        let list = |name: &str| keywords.get(name).and_then(Value::as_array);
        let has_own = OWN.iter().any(|name| keywords.contains_key(*name));
        let lists = ["anyOf", "oneOf", "enum", "const", "$ref"];
        let applying = usize::from(has_own)
            + lists
                .iter()
                .filter(|name| keywords.contains_key(**name))
                .count()
            + list("allOf").map_or(0, Vec::len);
        let is_copied = is_copied || applying > 1;
        let mut parts = Vec::new();
        if has_own {
            parts.push(self.own(keywords, path, is_copied)?);
        }
        for name in ["anyOf", "oneOf"] {
            let Some(options) = list(name) else { continue };
            let mut size = Size { nodes: 1, ways: 0 };
            for (place, option) in options.iter().enumerate() {
                let path = format!("{path}/{name}/{place}");
                size = size.or(self.schema(option, &path, is_copied)?);
            }
            parts.push(size);
        }
        for (place, member) in list("allOf").into_iter().flatten().enumerate() {
            let path = format!("{path}/allOf/{place}");
            parts.push(self.schema(member, &path, is_copied)?);
        }
        if let Some(values) = list("enum") {
            parts.push(Size::of_alternatives(values.iter().map(values_in).sum()));
        }
        if let Some(value) = keywords.get("const") {
            parts.push(Size {
                nodes: values_in(value) as u64,
                ways: 1,
            });
        }
        if let Some(reference) = keywords.get("$ref") {
            parts.push(self.reference(reference, path, is_copied)?);
        }
        let size = parts.into_iter().reduce(Size::and).unwrap_or(Size::ONE);
        within(path, "schemas, with copies", size.nodes, EXPANDED_MAX)?;
        Ok(size)
    }

    /// What a schema says of its value's own items and properties.
    fn own(
        &mut self,
        keywords: &'a Map<String, Value>,
        path: &str,
        is_copied: bool,
    ) -> Result<Size, SchemaError> {
        let types = match keywords.get("type") {
            Some(Value::Array(types)) => types.len(),
            Some(_) => 1,
            // Any of them.
            None => 6,
        };
        let mut size = Size::of_alternatives(types);
        for name in ["items", "additionalItems", "additionalProperties"] {
            match keywords.get(name) {
                Some(Value::Array(items)) => {
                    size = self.each(items, path, name, is_copied, size)?
                }
                Some(schema) => {
                    let path = format!("{path}/{name}");
                    size = size.beside(self.schema(schema, &path, is_copied)?);
                }
                None => {}
            }
        }
        if let Some(Value::Array(items)) = keywords.get("prefixItems") {
            size = self.each(items, path, "prefixItems", is_copied, size)?;
        }
        Ok(size.beside(self.properties(keywords, path, is_copied)?))
    }

    fn each(
        &mut self,
        items: &'a [Value],
        path: &str,
        name: &str,
        is_copied: bool,
        mut size: Size,
    ) -> Result<Size, SchemaError> {
        for (place, item) in items.iter().enumerate() {
            let path = format!("{path}/{name}/{place}");
            size = size.beside(self.schema(item, &path, is_copied)?);
        }
        Ok(size)
    }

    /// Of each property, and of those whose name matches a pattern, which may be the same.
    fn properties(
        &mut self,
        keywords: &'a Map<String, Value>,
        path: &str,
        is_copied: bool,
    ) -> Result<Size, SchemaError> {
        let map = |name: &str| keywords.get(name).and_then(Value::as_object);
        let (named, matched) = (map("properties"), map("patternProperties"));
        let lens = (named.map_or(0, Map::len), matched.map_or(0, Map::len));
        within(path, "properties", lens.0 as u64, PROPERTIES_MAX as u64)?;
        within(
            path,
            "patternProperties",
            lens.1 as u64,
            PATTERN_PROPERTIES_MAX as u64,
        )?;
        let is_copied = is_copied || (lens.0 > 0 && lens.1 > 0);
        let mut of_all = |properties: Option<&'a Map<String, Value>>, name: &str| {
            let mut size = Size::ONE;
            for (key, schema) in properties.into_iter().flatten() {
                let path = format!("{path}/{name}/{key}");
                size = size.beside(self.schema(schema, &path, is_copied)?);
            }
            Ok(size)
        };
        let named = of_all(named, "properties")?;
        let matched = of_all(matched, "patternProperties")?;
        Ok(if lens.0 > 0 && lens.1 > 0 {
            named.and(matched)
        } else {
            named.beside(matched)
        })
    }

    fn reference(
        &mut self,
        reference: &'a Value,
        path: &str,
        is_copied: bool,
    ) -> Result<Size, SchemaError> {
        let Some(reference) = reference.as_str() else {
            return Err(error(path, "$ref is not a string"));
        };
        let target = resolve(self.root, reference).ok_or_else(|| {
            let problem = format!(
                "$ref {reference:.100} is not in this schema; refer to a part of it, such as #/$defs/name"
            );
            error(path, problem)
        })?;
        if !is_copied {
            if self.seen.insert(reference) {
                self.to_do.push((reference, target));
            }
            return Ok(Size::ONE);
        }
        match self.copied.get(reference) {
            Some(Some(size)) => return Ok(*size),
            Some(None) => {
                let problem =
                    format!("$ref {reference:.100} refers to itself beside other keywords");
                return Err(error(path, problem));
            }
            None => {}
        }
        self.depth += 1;
        within(
            path,
            "references in a row",
            self.depth as u64,
            COPIED_DEPTH_MAX as u64,
        )?;
        self.copied.insert(reference, None);
        let size = self.schema(target, reference, true)?;
        self.copied.insert(reference, Some(size));
        self.depth -= 1;
        Ok(size)
    }
}

/// What a reference within the schema refers to, by the crate's own rules: names are as they are written.
pub(super) fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let path = reference.strip_prefix('#')?;
    if path.is_empty() || path == "/" {
        return Some(root);
    }
    let mut segments = path.strip_prefix('/')?.split('/');
    segments.try_fold(root, |value, segment| match value.as_array() {
        Some(values) => values.get(segment.parse::<usize>().ok()?),
        None => value.get(segment),
    })
}

#[cfg(test)]
mod tests;
