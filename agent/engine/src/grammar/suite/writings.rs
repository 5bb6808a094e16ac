//! The ways to write a value as JSON.

use serde_json::{Map, Value};

/// Orders of keys that are tried.
const ORDERS_MAX: usize = 48;

/// A value's JSON as it stands first, then with spaces, over lines, with keys in other orders, with numbers and characters in
/// other forms.
pub(super) fn writings(value: &Value) -> Vec<String> {
    let mut values = orders(value);
    let whole: Vec<_> = values.iter().map(|value| numbers(value, true)).collect();
    let fraction: Vec<_> = values.iter().map(|value| numbers(value, false)).collect();
    values.extend(whole);
    values.extend(fraction);
    let mut all: Vec<_> = values.iter().map(Value::to_string).collect();
    all.push(serde_json::to_string_pretty(value).expect("a value is JSON"));
    all.push(spaced(value));
    all.push(escaped(value, &|c| !c.is_ascii()));
    all.push(escaped(value, &|_| true));
    let mut seen = std::collections::HashSet::new();
    all.retain(|text| seen.insert(text.clone()));
    all
}

/// With keys in all orders, the own one first, as far as there are few.
fn orders(value: &Value) -> Vec<Value> {
    match value {
        Value::Array(items) => {
            let mut all = vec![Vec::new()];
            for item in items {
                all = product(&all, &orders(item), |list, item| {
                    list.push(item.clone());
                });
            }
            all.into_iter().map(Value::Array).collect()
        }
        Value::Object(map) => {
            let keys: Vec<_> = map.keys().collect();
            let mut all = Vec::new();
            for order in permutations(&keys) {
                let mut maps = vec![Map::new()];
                for key in order {
                    maps = product(&maps, &orders(&map[key]), |map, item| {
                        map.insert(key.clone(), item.clone());
                    });
                }
                all.extend(maps.into_iter().map(Value::Object));
            }
            all.truncate(ORDERS_MAX);
            all
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => vec![value.clone()],
    }
}

fn product<T: Clone>(all: &[T], parts: &[Value], add: impl Fn(&mut T, &Value)) -> Vec<T> {
    let each = all
        .iter()
        .flat_map(|one| parts.iter().map(move |part| (one, part)));
    let each = each.take(ORDERS_MAX).map(|(one, part)| {
        let mut one = one.clone();
        add(&mut one, part);
        one
    });
    each.collect()
}

fn permutations<T: Copy>(items: &[T]) -> Vec<Vec<T>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (place, first) in items.iter().enumerate() {
        let mut rest = items.to_vec();
        rest.remove(place);
        for mut order in permutations(&rest) {
            order.insert(0, *first);
            all.push(order);
            if all.len() == ORDERS_MAX {
                return all;
            }
        }
    }
    all
}

/// With whole numbers as `1`, or as `1.0`.
#[allow(clippy::cast_possible_truncation, reason = "it is whole and small")]
fn numbers(value: &Value, as_whole: bool) -> Value {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(found) if found.fract() == 0.0 && found.abs() < 1e15 => {
                if as_whole {
                    Value::from(found as i64)
                } else {
                    Value::from(found)
                }
            }
            Some(_) | None => value.clone(),
        },
        Value::Array(items) => items.iter().map(|item| numbers(item, as_whole)).collect(),
        Value::Object(map) => {
            let map = map.iter();
            map.map(|(key, item)| (key.clone(), numbers(item, as_whole)))
                .collect()
        }
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

/// On one line, with a space behind each comma and colon.
fn spaced(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(spaced).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(map) => {
            let pair = |(key, item)| format!("{}: {}", Value::from(key as &str), spaced(item));
            let pairs: Vec<_> = map
                .iter()
                .map(|(key, item)| pair((key.as_str(), item)))
                .collect();
            format!("{{{}}}", pairs.join(", "))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

/// With some characters of strings and keys as `\u1234`.
fn escaped(value: &Value, which: &dyn Fn(char) -> bool) -> String {
    let quoted = |text: &str| {
        let mut out = String::from("\"");
        for c in text.chars() {
            if which(c) {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    out += &format!("\\u{unit:04x}");
                }
            } else {
                out += Value::from(c.to_string()).to_string().trim_matches('"');
            }
        }
        out + "\""
    };
    match value {
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| escaped(item, which)).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(map) => {
            let pairs = map.iter();
            let pairs: Vec<_> = pairs
                .map(|(key, item)| format!("{}:{}", quoted(key), escaped(item, which)))
                .collect();
            format!("{{{}}}", pairs.join(","))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}
