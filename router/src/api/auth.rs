//! Bearer tokens.

use super::error::ApiError;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use std::hint::black_box;

/// # Errors
/// 401 if `key` is set and the request does not present it.
pub(crate) fn check(key: Option<&str>, headers: &HeaderMap) -> Result<(), ApiError> {
    match key {
        Some(key) if !presents(key, headers) => Err(ApiError::unauthorized()),
        Some(_) | None => Ok(()),
    }
}

fn presents(key: &str, headers: &HeaderMap) -> bool {
    headers
        .get(AUTHORIZATION)
        .map(http::HeaderValue::as_bytes)
        .and_then(|value| {
            let (scheme, token) = value.split_at_checked(7)?;
            scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
        })
        .is_some_and(|token| is_equal(token.trim_ascii(), key.as_bytes()))
}

/// Compares in a time that depends on the lengths only.
fn is_equal(given: &[u8], expected: &[u8]) -> bool {
    let differing = given
        .iter()
        .zip(expected)
        .fold(0u8, |differing, (a, b)| black_box(differing | (a ^ b)));
    given.len() == expected.len() && differing == 0
}

#[cfg(test)]
mod tests {
    //! Facts about bearer tokens.

    use super::*;
    use http::HeaderValue;

    #[test]
    fn only_the_key_itself_opens() {
        let check = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_static(value));
            super::check(Some("secret"), &headers).is_ok()
        };
        assert!(check("Bearer secret") && check("bearer secret"));
        assert!(!check("Bearer secre") && !check("Bearer secret2") && !check("Basic secret"));
        assert!(super::check(None, &HeaderMap::new()).is_ok());
        assert!(super::check(Some("secret"), &HeaderMap::new()).is_err());
    }
}
