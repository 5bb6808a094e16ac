//! The keys of a JSON configuration, read by type; every refusal names file, key and value. What was
//! read is remembered, so that a key which no reader knows can be refused. What several families say in
//! the same words is read by the modules below.

mod decoder;
mod layer_types;
mod rope;

use super::{ConfigError, Family, invalid};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;

/// The most of an unknown value that a refusal shows, in characters.
const SHOWN_CHARS: usize = 80;

/// The keys of one JSON object, with their path for messages.
pub(crate) struct Fields {
    file: String,
    /// `""` at the root, `"rope_scaling."` inside that object.
    prefix: String,
    map: Map<String, Value>,
    /// Keys that were read.
    known: Rc<RefCell<BTreeSet<&'static str>>>,
}

// === impl Fields ===

impl Fields {
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        let map = serde_json::from_slice(&text).map_err(|source| ConfigError::Json {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self::new(path.display().to_string(), map))
    }

    pub(crate) fn new(file: String, map: Map<String, Value>) -> Self {
        Self {
            file,
            prefix: String::new(),
            map,
            known: Rc::default(),
        }
    }

    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    /// The key's value; JSON null counts as absent.
    pub(crate) fn get(&self, key: &'static str) -> Option<&Value> {
        self.known.borrow_mut().insert(key);
        self.map.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn expect(&self, key: &str, value: &Value, expected: &str) -> ConfigError {
        let key = format!("{}{key}", self.prefix);
        invalid(&self.file, &key, value, expected.to_owned())
    }

    pub(crate) fn missing(&self, key: &str) -> ConfigError {
        ConfigError::Missing {
            file: self.file.clone(),
            key: format!("{}{key}", self.prefix),
        }
    }

    pub(crate) fn unsupported(&self, key: &str, value: &str, supported: &str) -> ConfigError {
        ConfigError::Unsupported {
            file: self.file.clone(),
            key: format!("{}{key}", self.prefix),
            value: value.to_owned(),
            supported: supported.to_owned(),
        }
    }

    pub(crate) fn size_opt(&self, key: &'static str) -> Result<Option<usize>, ConfigError> {
        self.get(key)
            .map(|value| {
                let size = value.as_u64().and_then(|size| usize::try_from(size).ok());
                size.ok_or_else(|| self.expect(key, value, "a whole number"))
            })
            .transpose()
    }

    pub(crate) fn size(&self, key: &'static str) -> Result<usize, ConfigError> {
        self.size_opt(key)?.ok_or_else(|| self.missing(key))
    }

    pub(crate) fn number(&self, key: &'static str) -> Result<Option<f64>, ConfigError> {
        self.get(key)
            .map(|value| {
                let number = value.as_f64().filter(|number| number.is_finite());
                number.ok_or_else(|| self.expect(key, value, "a number"))
            })
            .transpose()
    }

    pub(crate) fn positive(&self, key: &'static str) -> Result<f64, ConfigError> {
        let number = self.number(key)?.ok_or_else(|| self.missing(key))?;
        if number > 0.0 {
            Ok(number)
        } else {
            Err(self.expect(key, &Value::from(number), "a positive number"))
        }
    }

    pub(crate) fn flag(&self, key: &'static str) -> Result<Option<bool>, ConfigError> {
        self.get(key)
            .map(|value| {
                value
                    .as_bool()
                    .ok_or_else(|| self.expect(key, value, "true or false"))
            })
            .transpose()
    }

    pub(crate) fn text(&self, key: &'static str) -> Result<Option<&str>, ConfigError> {
        self.get(key)
            .map(|value| {
                value
                    .as_str()
                    .ok_or_else(|| self.expect(key, value, "a string"))
            })
            .transpose()
    }

    pub(crate) fn object(&self, key: &'static str) -> Result<Option<Self>, ConfigError> {
        self.get(key)
            .map(|value| match value.as_object() {
                Some(map) => Ok(Self {
                    file: self.file.clone(),
                    prefix: format!("{}{key}.", self.prefix),
                    map: map.clone(),
                    known: Rc::default(),
                }),
                None => Err(self.expect(key, value, "an object")),
            })
            .transpose()
    }

    /// The same keys, and values for those that are not written. What is read of them counts as read of these.
    pub(crate) fn filled(&self, absent: Vec<(&'static str, Value)>) -> Self {
        let mut map = self.map.clone();
        for (key, value) in absent {
            map.entry(key).or_insert(value);
        }
        Self {
            file: self.file.clone(),
            prefix: self.prefix.clone(),
            map,
            known: Rc::clone(&self.known),
        }
    }

    /// The decoder's keys, where they lie beside those of other parts of a model; keys that it has not
    /// and that are in `beside` are taken from there.
    pub(crate) fn nested(
        &self,
        key: &'static str,
        beside: &[&'static str],
    ) -> Result<Option<Self>, ConfigError> {
        let mut nested = self.object(key)?;
        if let Some(nested) = &mut nested {
            for key in beside {
                if let Some(value) = self.get(key)
                    && nested.map.get(*key).is_none_or(Value::is_null)
                {
                    nested.map.insert((*key).to_owned(), value.clone());
                }
            }
        }
        Ok(nested)
    }

    /// A token id or a list of them; none when absent.
    pub(crate) fn ids(&self, key: &'static str) -> Result<Vec<u32>, ConfigError> {
        let Some(value) = self.get(key) else {
            return Ok(Vec::new());
        };
        let list = match value.as_array() {
            Some(list) => list.as_slice(),
            None => std::slice::from_ref(value),
        };
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        let ids: Option<Vec<u32>> = list.iter().map(id).collect();
        ids.ok_or_else(|| self.expect(key, value, "a token id or a list of them"))
    }

    /// A list of whole numbers; none when absent.
    pub(crate) fn sizes(&self, key: &'static str) -> Result<Vec<usize>, ConfigError> {
        let Some(value) = self.get(key) else {
            return Ok(Vec::new());
        };
        let size = |value: &Value| value.as_u64().and_then(|size| usize::try_from(size).ok());
        let list = value.as_array().map(|list| list.iter().map(size).collect());
        list.flatten()
            .ok_or_else(|| self.expect(key, value, "a list of whole numbers"))
    }

    /// A list of `len` strings.
    pub(crate) fn texts(
        &self,
        key: &'static str,
        len: usize,
    ) -> Result<Option<Vec<&str>>, ConfigError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let list = value.as_array().filter(|list| list.len() == len);
        let texts: Option<Vec<&str>> =
            list.and_then(|list| list.iter().map(Value::as_str).collect());
        let expected = || self.expect(key, value, &format!("a list of {len} strings"));
        texts.ok_or_else(expected).map(Some)
    }

    /// Refuses a setting other than the one that the family computes, if it is written.
    pub(crate) fn expect_text(
        &self,
        key: &'static str,
        supported: &str,
    ) -> Result<(), ConfigError> {
        match self.text(key)? {
            Some(text) if text != supported => Err(self.unsupported(key, text, supported)),
            _ => Ok(()),
        }
    }

    /// Refuses a setting that the family does not compute.
    pub(crate) fn expect_off(&self, key: &'static str) -> Result<(), ConfigError> {
        match self.flag(key)? {
            Some(true) => Err(self.unsupported(key, "true", "false")),
            Some(false) | None => Ok(()),
        }
    }

    /// Refuses keys that were not read and are not `neutral`, but for what is off or empty.
    pub(crate) fn refuse_unknown(
        &self,
        family: Family,
        neutral: &[&str],
    ) -> Result<(), ConfigError> {
        let known = self.known.borrow();
        let is_known = |key: &str| known.contains(key) || neutral.contains(&key);
        let unknown = self.map.iter();
        match unknown
            .filter(|(_, value)| says_something(value))
            .find(|(key, _)| !is_known(key))
        {
            None => Ok(()),
            Some((key, value)) => Err(ConfigError::Unknown {
                file: self.file.clone(),
                key: format!("{}{key}", self.prefix),
                value: value.to_string().chars().take(SHOWN_CHARS).collect(),
                family,
            }),
        }
    }
}

/// Whether a value differs from what "there is no such thing" looks like.
fn says_something(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Bool(true) | Value::Number(_) => true,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}
