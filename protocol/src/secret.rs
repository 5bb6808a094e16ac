//! API keys and admin tokens: strings that are compared and never shown, and what of them a caller
//! presents in `Authorization`.

use std::fmt;
use subtle::ConstantTimeEq;

/// Longest secret. SGLang's and OpenAI's keys have some 50 characters, a JWT some 1000.
pub const SECRET_BYTES_MAX: usize = 4096;

/// An API key or admin token. `Debug` hides it, and there is no `Display`.
#[derive(Clone)]
pub struct Secret(String);

/// Why a text is no secret that a caller could present. Says nothing of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    #[error("it is empty, which protects nothing")]
    Empty,
    #[error("it is longer than {SECRET_BYTES_MAX} bytes")]
    TooLong,
    #[error("it holds a space, a line break or another character that no bearer token has")]
    Character,
}

// === impl Secret ===

impl Secret {
    /// Whether a caller could present it.
    ///
    /// # Errors
    /// What of it no `Authorization` header carries.
    pub fn check(&self) -> Result<(), SecretError> {
        if self.0.is_empty() {
            return Err(SecretError::Empty);
        }
        if self.0.len() > SECRET_BYTES_MAX {
            return Err(SecretError::TooLong);
        }
        if self.0.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(())
        } else {
            Err(SecretError::Character)
        }
    }

    /// Whether `candidate` is this secret, in a time that depends on the lengths only.
    pub fn matches(&self, candidate: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(candidate).into()
    }

    /// The value of `Authorization` with which it is presented.
    pub fn to_bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl From<String> for Secret {
    fn from(secret: String) -> Self {
        Self(secret)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// The token in a value of `Authorization`, if its scheme is `Bearer`.
pub fn bearer_token(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = authorization.split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests;
