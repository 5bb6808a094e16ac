//! The keys of a JSON configuration, read by type; every refusal names file, key and value.

use super::{ConfigError, invalid};
use serde_json::{Map, Value};
use std::path::Path;

/// The keys of one JSON object, with their path for messages.
pub(super) struct Fields {
    file: String,
    /// `""` at the root, `"rope_scaling."` inside that object.
    prefix: String,
    map: Map<String, Value>,
}

// === impl Fields ===

impl Fields {
    pub(super) fn read(path: &Path) -> Result<Self, ConfigError> {
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

    pub(super) fn new(file: String, map: Map<String, Value>) -> Self {
        Self {
            file,
            prefix: String::new(),
            map,
        }
    }

    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// The key's value; JSON null counts as absent.
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn expect(&self, key: &str, value: &Value, expected: &str) -> ConfigError {
        let key = format!("{}{key}", self.prefix);
        invalid(&self.file, &key, value, expected.to_owned())
    }

    pub(super) fn missing(&self, key: &str) -> ConfigError {
        ConfigError::Missing {
            file: self.file.clone(),
            key: format!("{}{key}", self.prefix),
        }
    }

    pub(super) fn unsupported(&self, key: &str, value: &str, supported: &str) -> ConfigError {
        ConfigError::Unsupported {
            file: self.file.clone(),
            key: format!("{}{key}", self.prefix),
            value: value.to_owned(),
            supported: supported.to_owned(),
        }
    }

    pub(super) fn size_opt(&self, key: &str) -> Result<Option<usize>, ConfigError> {
        self.get(key)
            .map(|value| {
                let size = value.as_u64().and_then(|size| usize::try_from(size).ok());
                size.ok_or_else(|| self.expect(key, value, "a whole number"))
            })
            .transpose()
    }

    pub(super) fn size(&self, key: &str) -> Result<usize, ConfigError> {
        self.size_opt(key)?.ok_or_else(|| self.missing(key))
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<f64>, ConfigError> {
        self.get(key)
            .map(|value| {
                let number = value.as_f64().filter(|number| number.is_finite());
                number.ok_or_else(|| self.expect(key, value, "a number"))
            })
            .transpose()
    }

    pub(super) fn positive(&self, key: &str) -> Result<f64, ConfigError> {
        let number = self.number(key)?.ok_or_else(|| self.missing(key))?;
        if number > 0.0 {
            Ok(number)
        } else {
            Err(self.expect(key, &Value::from(number), "a positive number"))
        }
    }

    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, ConfigError> {
        self.get(key)
            .map(|value| {
                value
                    .as_bool()
                    .ok_or_else(|| self.expect(key, value, "true or false"))
            })
            .transpose()
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&str>, ConfigError> {
        self.get(key)
            .map(|value| {
                value
                    .as_str()
                    .ok_or_else(|| self.expect(key, value, "a string"))
            })
            .transpose()
    }

    pub(super) fn object(&self, key: &str) -> Result<Option<Self>, ConfigError> {
        self.get(key)
            .map(|value| match value.as_object() {
                Some(map) => Ok(Self {
                    file: self.file.clone(),
                    prefix: format!("{}{key}.", self.prefix),
                    map: map.clone(),
                }),
                None => Err(self.expect(key, value, "an object")),
            })
            .transpose()
    }

    /// A token id or a list of them; none when absent.
    pub(super) fn ids(&self, key: &str) -> Result<Vec<u32>, ConfigError> {
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
}
