//! Bearer tokens.

use super::error::ApiError;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use pd_protocol::Secret;
use pd_protocol::secret::bearer_token;

/// # Errors
/// 401 if the request does not present the secret.
pub(crate) fn check(secret: &Secret, headers: &HeaderMap) -> Result<(), ApiError> {
    match presented(headers).is_some_and(|token| secret.matches(token)) {
        true => Ok(()),
        false => Err(ApiError::unauthorized()),
    }
}

/// The bearer token that the request presents.
pub(crate) fn presented(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?;
    bearer_token(value.as_bytes())
}
