//! Whether a schema has a value that ends: where each needs another one of the same schema in it, a model writes to the end
//! of its answer.

use super::resolve;
use serde_json::{Map, Value};
use std::collections::HashSet;

/// What is known of references.
struct Search<'a> {
    root: &'a Value,
    /// They have a value that ends.
    ending: HashSet<&'a str>,
    /// Looked into in this pass. One that comes up again while it is looked into does not end by that way.
    seen: HashSet<&'a str>,
}

/// Whether `root` has a value that ends, by the keywords of each schema on its own: what several that apply to one value
/// need together is not seen.
pub(super) fn has_end(root: &Value) -> bool {
    let mut search = Search {
        root,
        ending: HashSet::new(),
        seen: HashSet::new(),
    };
    loop {
        let known = search.ending.len();
        search.seen.clear();
        if search.ends(root) {
            return true;
        }
        if search.ending.len() == known {
            return false;
        }
    }
}

// === impl Search ===

impl<'a> Search<'a> {
    fn ends(&mut self, schema: &'a Value) -> bool {
        let Some(keywords) = schema.as_object() else {
            return true;
        };
        if keywords.contains_key("enum") || keywords.contains_key("const") {
            return true;
        }
        let list = |name: &str| keywords.get(name).and_then(Value::as_array);
        let reference = keywords.get("$ref").and_then(Value::as_str);
        reference.is_none_or(|reference| self.reference_ends(reference))
            && list("allOf").is_none_or(|all| all.iter().all(|one| self.ends(one)))
            && list("anyOf").is_none_or(|any| any.iter().any(|one| self.ends(one)))
            && list("oneOf").is_none_or(|any| any.iter().any(|one| self.ends(one)))
            && self.own_ends(keywords)
    }

    fn reference_ends(&mut self, reference: &'a str) -> bool {
        if self.ending.contains(reference) {
            return true;
        }
        if !self.seen.insert(reference) {
            return false;
        }
        // One that is not there is refused elsewhere.
        let target = resolve(self.root, reference);
        let ends = target.is_none_or(|target| self.ends(target));
        if ends {
            self.ending.insert(reference);
        }
        ends
    }

    /// By its own items and properties: other types have no parts.
    fn own_ends(&mut self, keywords: &'a Map<String, Value>) -> bool {
        let types = match keywords.get("type") {
            Some(Value::Array(types)) => types.as_slice(),
            Some(one) => std::slice::from_ref(one),
            None => return true,
        };
        types.iter().any(|kind| match kind.as_str() {
            Some("object") => self.object_ends(keywords),
            Some("array") => self.array_ends(keywords),
            Some(_) | None => true,
        })
    }

    fn object_ends(&mut self, keywords: &'a Map<String, Value>) -> bool {
        let properties = keywords.get("properties").and_then(Value::as_object);
        let others = keywords.get("additionalProperties");
        let patterns = keywords.get("patternProperties").and_then(Value::as_object);
        let required = keywords.get("required").and_then(Value::as_array);
        let names = required.into_iter().flatten().filter_map(Value::as_str);
        let names: Vec<&str> = names.collect();
        if names.is_empty() && count(keywords, "minProperties") > 0 {
            let named = properties.into_iter().flat_map(Map::values);
            let mut any = named.chain(patterns.into_iter().flat_map(Map::values));
            return any.any(|one| self.ends(one)) || others.is_none_or(|one| self.ends(one));
        }
        names.into_iter().all(|name| {
            let own = properties.and_then(|properties| properties.get(name));
            // Which of the patterns it has is not asked.
            let other = others.filter(|_| patterns.is_none());
            own.or(other).is_none_or(|schema| self.ends(schema))
        })
    }

    fn array_ends(&mut self, keywords: &'a Map<String, Value>) -> bool {
        let len = count(keywords, "minItems");
        let list = |name: &str| keywords.get(name).and_then(Value::as_array);
        let first = list("prefixItems").or_else(|| list("items"));
        let first = first.map_or(&[][..], Vec::as_slice);
        let rest = match keywords.get("items") {
            Some(Value::Array(_)) => keywords.get("additionalItems"),
            items => items,
        };
        let rest = rest.filter(|_| len > first.len());
        first.iter().take(len).all(|item| self.ends(item))
            && rest.is_none_or(|item| self.ends(item))
    }
}

fn count(keywords: &Map<String, Value>, name: &str) -> usize {
    let count = keywords.get(name).and_then(Value::as_u64);
    usize::try_from(count.unwrap_or(0)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
