//! Paths of fields and what is wrong with them.

use std::fmt;

/// Where in an object, as `kubectl` writes it: `spec.pools.prefill.args[0].name`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldPath(String);

/// One thing wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{path}: {message}")]
pub struct FieldError {
    pub path: FieldPath,
    pub message: String,
}

/// All that is wrong with an object; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldErrors(pub Vec<FieldError>);

// === impl FieldPath ===

impl FieldPath {
    pub fn new(path: &str) -> Self {
        Self(path.to_owned())
    }

    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        if name.is_empty() || name.contains(['.', '/', '[']) {
            return Self(format!("{}[{name}]", self.0));
        }
        if self.0.is_empty() {
            Self::new(name)
        } else {
            Self(format!("{}.{name}", self.0))
        }
    }

    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    pub fn error(&self, message: impl Into<String>) -> FieldError {
        FieldError {
            path: self.clone(),
            message: message.into(),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "object" } else { &self.0 })
    }
}

// === impl FieldErrors ===

impl FieldErrors {
    /// `Err` with all errors, or `Ok` if there are none.
    ///
    /// # Errors
    /// The errors given, if any.
    pub fn check(errors: Vec<FieldError>) -> Result<(), Self> {
        if errors.is_empty() {
            Ok(())
        } else {
            Err(Self(errors))
        }
    }
}

impl fmt::Display for FieldErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for FieldErrors {}

impl From<FieldError> for FieldErrors {
    fn from(error: FieldError) -> Self {
        Self(vec![error])
    }
}
