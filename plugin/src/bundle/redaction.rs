//! Takes out of objects and logs what looks like a secret.

use regex::{Captures, Regex};
use serde_json::Value;
use std::sync::LazyLock;

const REDACTED: &str = "REDACTED";
/// Parts of the names of flags and variables that hold secrets.
const SECRET_NAMES: [&str; 5] = ["key", "token", "secret", "password", "credential"];
/// What kubectl and the apiserver keep of objects for themselves; a copy of the spec among it.
const BOOKKEEPING: [&str; 2] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "pdserve.io/accepted-spec",
];

/// `name=value`, `name: 'value'`, `Authorization: Bearer value` and tokens that say what they are.
static IN_TEXT: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r#"(?i)((?:[a-z0-9_-]*(?:api[_-]?key|token|secret|password|credential)["']?\s*[=:]\s*["']?)|(?:bearer\s+))([^\s"',;)\]}]+)|\b(?:hf|sk)[_-][a-z0-9_-]{16,}"#;
    Regex::new(pattern).expect("a pattern")
});

/// Values that say nothing of a secret, which engines print for flags that were not given.
const HARMLESS: [&str; 5] = ["none", "null", "true", "false", "0"];

/// Of an object: values of variables and flags whose names say so, and copies of it.
pub(super) fn redact(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("managedFields");
            for name in BOOKKEEPING {
                fields.remove(name);
            }
            let is_secret = fields
                .get("name")
                .and_then(Value::as_str)
                .is_some_and(is_secret);
            if let Some(Value::String(text)) = fields.get_mut("value").filter(|_| is_secret) {
                REDACTED.clone_into(text);
            }
            fields.values_mut().for_each(redact);
        }
        Value::Array(items) => {
            let mut hides_next = false;
            for item in items {
                if let Value::String(text) = item {
                    hides_next = redact_word(text, hides_next);
                } else {
                    redact(item);
                }
            }
        }
        Value::String(text) if IN_TEXT.is_match(text) => *text = redacted_text(text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A word of a command line; says whether the next one is the value of a secret flag.
fn redact_word(word: &mut String, is_value: bool) -> bool {
    if is_value && !word.starts_with("--") {
        REDACTED.clone_into(word);
        return false;
    }
    let Some(flag) = word.strip_prefix("--") else {
        *word = redacted_text(word);
        return false;
    };
    match flag.split_once('=') {
        Some((name, _)) if is_secret(name) => {
            *word = format!("--{name}={REDACTED}");
            false
        }
        Some(_) => false,
        None => is_secret(flag),
    }
}

/// Of a text, such as a log, in which engines print their own arguments.
pub(super) fn redacted_text(text: &str) -> String {
    let replaced = IN_TEXT.replace_all(text, |found: &Captures<'_>| {
        match (found.get(1), found.get(2)) {
            (Some(name), Some(value)) => {
                let is_harmless = HARMLESS.contains(&value.as_str().to_lowercase().as_str());
                let value = if is_harmless {
                    value.as_str()
                } else {
                    REDACTED
                };
                format!("{}{value}", name.as_str())
            }
            _ => REDACTED.to_owned(),
        }
    });
    replaced.into_owned()
}

/// Whether a name is that of a secret: the name of a file with one, or of a number of tokens, is not.
fn is_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    let says_so = SECRET_NAMES.iter().any(|part| name.contains(part));
    let is_other = ["tokens", "tokenizer", "file", "path", "monkey"];
    says_so && !is_other.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    //! Facts about what is taken out.

    use super::*;
    use serde_json::json;

    #[test]
    fn variables_flags_and_copies_are_taken_out_of_objects() {
        let mut pod = json!({
            "metadata": {
                "name": "a", "managedFields": [1],
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "kept": "1"},
            },
            "spec": {"containers": [{
                "env": [
                    {"name": "HF_TOKEN", "value": "abc"}, {"name": "MAX_TOKENS", "value": "12"},
                    {"name": "PDSERVE_API_KEY", "valueFrom": {"secretKeyRef": {"name": "keys"}}},
                ],
                "args": [
                    "--api-key", "abc", "--max-total-tokens", "4096", "--admin-api-key=abc",
                    "--api-key-file", "/keys/api",
                ],
            }]},
        });
        redact(&mut pod);
        assert_eq!(
            pod,
            json!({
                "metadata": {"name": "a", "annotations": {"kept": "1"}},
                "spec": {"containers": [{
                    "env": [
                        {"name": "HF_TOKEN", "value": "REDACTED"}, {"name": "MAX_TOKENS", "value": "12"},
                        {"name": "PDSERVE_API_KEY", "valueFrom": {"secretKeyRef": {"name": "keys"}}},
                    ],
                    "args": [
                        "--api-key", "REDACTED", "--max-total-tokens", "4096", "--admin-api-key=REDACTED",
                        "--api-key-file", "/keys/api",
                    ],
                }]},
            })
        );
    }

    #[test]
    fn keys_are_taken_out_of_logs() {
        for (line, expected) in [
            (
                "server_args=(api_key='abc', port=1)",
                "server_args=(api_key='REDACTED', port=1)",
            ),
            ("api_key=None, tp_size=8", "api_key=None, tp_size=8"),
            (
                "authorization: Bearer abc.def",
                "authorization: Bearer REDACTED",
            ),
            ("using hf_abcdefghijklmnopqrst", "using REDACTED"),
            ("output_tokens=12 total", "output_tokens=12 total"),
        ] {
            assert_eq!(redacted_text(line), expected);
        }
    }
}
