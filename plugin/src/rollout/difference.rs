//! What differs between two records, by path.

use serde_json::{Map, Value};

/// Longest value that is shown.
const VALUE_CHARS_MAX: usize = 40;

/// Each field that differs, as `path: before → after`. Items of lists that have names go by them.
pub(crate) fn differences(before: &Value, after: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", before, after, &mut found);
    found
}

fn compare(path: &str, before: &Value, after: &Value, found: &mut Vec<String>) {
    if before == after {
        return;
    }
    let (Some(old), Some(new)) = (fields(before), fields(after)) else {
        found.push(format!(
            "{path}: {} → {}",
            shortened(before),
            shortened(after)
        ));
        return;
    };
    let mut names: Vec<&String> = old.keys().chain(new.keys()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let path = match path {
            "" => name.clone(),
            _ => format!("{path}.{name}"),
        };
        let [old, new] = [&old, &new].map(|fields| fields.get(name).unwrap_or(&Value::Null));
        compare(&path, old, new, found);
    }
}

/// The fields of an object, or the items of a list by their names; an absent one has none.
fn fields(value: &Value) -> Option<Map<String, Value>> {
    match value {
        Value::Null => Some(Map::new()),
        Value::Object(fields) => Some(fields.clone()),
        Value::Array(items) => items.iter().map(named).collect(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn named(item: &Value) -> Option<(String, Value)> {
    let mut fields = item.as_object()?.clone();
    let name = fields.remove("name")?.as_str()?.to_owned();
    let value = match fields.remove("value") {
        Some(value) if fields.is_empty() => value,
        Some(value) => {
            fields.insert("value".to_owned(), value);
            Value::Object(fields)
        }
        // A switch of the engine: there or not.
        None if fields.is_empty() => Value::Bool(true),
        None => Value::Object(fields),
    };
    Some((name, value))
}

fn shortened(value: &Value) -> String {
    let text = match value {
        Value::Null => return "unset".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    };
    match text.char_indices().nth(VALUE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    //! Facts about differences.

    use super::*;
    use serde_json::json;

    #[test]
    fn equal_values_do_not_differ() {
        let value = json!({"a": [1, {"b": null}]});
        assert_eq!(differences(&value, &value), [""; 0]);
    }

    #[test]
    fn flags_go_by_their_names() {
        let before = json!({"args": [{"name": "x", "value": "1"}, {"name": "off"}]});
        let after = json!({"args": [{"name": "on"}, {"name": "x", "value": "2"}]});
        let printed = [
            "args.off: true → unset",
            "args.on: unset → true",
            "args.x: 1 → 2",
        ];
        assert_eq!(differences(&before, &after), printed);
    }

    #[test]
    fn a_change_is_listed_by_field() {
        let before = json!({"source": {"hostPath": {"path": "/m"}}});
        let after = json!({"source": {"pvc": {"claimName": "c"}}, "tags": ["a"]});
        let printed = [
            "source.hostPath.path: /m → unset",
            "source.pvc.claimName: unset → c",
            "tags: unset → [\"a\"]",
        ];
        assert_eq!(differences(&before, &after), printed);
    }
}
