//! Headers that end at the router: those of one connection, those that the router replaces, and, where keys are asked
//! for, the bearer token; and the one that holds a request's id.

use http::HeaderMap;
use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST,
    HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use pd_protocol::labels::HEADER_REQUEST_ID;
use pd_protocol::secret;

/// Headers that a request may have: HTTP servers of workers take a hundred, and a few are added here.
const HEADERS_MAX: usize = 90;
/// Longest id of a request: it is in logs, answers and timelines. A longer one is none.
const ID_BYTES_MAX: usize = 256;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// Removes what concerns one connection only, and what `Connection` names.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in [
        CONNECTION,
        KEEP_ALIVE,
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
        TE,
        TRAILER,
        TRANSFER_ENCODING,
        UPGRADE,
    ] {
        headers.remove(name);
    }
}

/// Which headers may bring a request's id: those of `--request-id-headers`, then `x-request-id`.
/// Workers and answers have it as `x-request-id`.
#[derive(Clone, Debug)]
pub(crate) struct RequestIds {
    names: Vec<HeaderName>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request has {0} headers; send at most {HEADERS_MAX}")]
pub(crate) struct TooManyHeaders(usize);

/// The id of one request.
#[derive(Clone, Debug)]
pub(crate) struct RequestId {
    /// The header that brought it.
    header: HeaderName,
    value: HeaderValue,
}

/// The client's headers for the workers, without those that the client towards them writes. Answers
/// stay unpacked (no `accept-encoding`), since they may have to be read.
pub(crate) fn for_workers(mut headers: HeaderMap) -> HeaderMap {
    remove_hop_by_hop(&mut headers);
    for name in [HOST, CONTENT_LENGTH, EXPECT, ACCEPT_ENCODING] {
        headers.remove(name);
    }
    let json = HeaderValue::from_static("application/json");
    headers.insert(CONTENT_TYPE, json);
    headers
}

/// # Errors
/// More headers than a worker would take.
pub(crate) fn check_number(headers: &HeaderMap) -> Result<(), TooManyHeaders> {
    match headers.len() {
        ..=HEADERS_MAX => Ok(()),
        number => Err(TooManyHeaders(number)),
    }
}

/// The bearer token that the request presents.
pub(crate) fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?;
    secret::bearer_token(value.as_bytes())
}

// === impl RequestIds ===

impl RequestIds {
    pub(crate) fn new(mut names: Vec<HeaderName>) -> Self {
        names.push(HeaderName::from_static(HEADER_REQUEST_ID));
        Self { names }
    }

    /// Makes the id that the request brings its `x-request-id`; one that brings none, or one too long, gets one.
    pub(crate) fn assign(&self, headers: &mut HeaderMap, draw: impl FnOnce() -> u64) -> RequestId {
        let given = self.names.iter().find_map(|name| {
            let is_id = |value: &&HeaderValue| (1..=ID_BYTES_MAX).contains(&value.len());
            let value = headers.get(name).filter(is_id)?;
            Some((name.clone(), value.clone()))
        });
        let own = HeaderName::from_static(HEADER_REQUEST_ID);
        let (header, value) = given.unwrap_or_else(|| {
            let id = format!("{:016x}", draw());
            let value = HeaderValue::try_from(id);
            let value = value.expect("hexadecimal digits make a header value");
            (own.clone(), value)
        });
        headers.insert(own, value.clone());
        RequestId { header, value }
    }
}

// === impl RequestId ===

impl RequestId {
    /// Writes the id to the answer, as `x-request-id` and as the header that brought it.
    pub(crate) fn write_to(self, answer: &mut HeaderMap) {
        let own = HeaderName::from_static(HEADER_REQUEST_ID);
        answer.insert(own, self.value.clone());
        answer.insert(self.header, self.value);
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
