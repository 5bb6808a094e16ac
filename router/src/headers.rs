//! Headers that end at the router: those of one connection, and those that the router replaces; and
//! the one that names a request.

use http::HeaderMap;
use http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, HeaderName,
    HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use pd_protocol::labels::HEADER_REQUEST_ID;

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

/// Which headers may name a request: those of `--request-id-headers`, then `x-request-id`. Workers and
/// answers have the name as `x-request-id`.
#[derive(Clone, Debug)]
pub struct RequestIds {
    names: Vec<HeaderName>,
}

/// The name of one request.
#[derive(Clone, Debug)]
pub(crate) struct RequestId {
    /// Where the client gave it.
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

// === impl RequestIds ===

impl RequestIds {
    pub fn new(mut names: Vec<HeaderName>) -> Self {
        names.push(HeaderName::from_static(HEADER_REQUEST_ID));
        Self { names }
    }

    /// Makes the request's name its `x-request-id`; one that has none gets one.
    pub(crate) fn settle(&self, headers: &mut HeaderMap, draw: impl FnOnce() -> u64) -> RequestId {
        let given = self.names.iter().find_map(|name| {
            let value = headers.get(name).filter(|value| !value.is_empty())?;
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
    /// Names the answer as the request was.
    pub(crate) fn name(self, answer: &mut HeaderMap) {
        let own = HeaderName::from_static(HEADER_REQUEST_ID);
        answer.insert(own, self.value.clone());
        answer.insert(self.header, self.value);
    }
}

#[cfg(test)]
mod tests {
    //! Facts about headers.

    use super::*;

    #[test]
    fn what_concerns_one_connection_stays_there() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, x-mine"),
            ("x-mine", "1"),
            ("transfer-encoding", "chunked"),
            ("x-custom", "2"),
            ("authorization", "Bearer k"),
            ("host", "router"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let headers = for_workers(headers);
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["authorization", "content-type", "x-custom"]);
    }

    #[test]
    fn the_first_header_that_names_a_request_counts() {
        let ids = RequestIds::new(vec![HeaderName::from_static("x-trace-id")]);
        let mut headers = HeaderMap::new();
        let mut answer = HeaderMap::new();
        ids.settle(&mut headers, || 255).name(&mut answer);
        assert_eq!(headers["x-request-id"], "00000000000000ff");
        assert_eq!(answer, headers);
        headers.insert("x-request-id", HeaderValue::from_static("mine"));
        ids.settle(&mut headers, || 255);
        assert_eq!(headers["x-request-id"], "mine");
        headers.insert("x-trace-id", HeaderValue::from_static("trace"));
        ids.settle(&mut headers, || 255).name(&mut answer);
        assert_eq!(headers["x-request-id"], "trace");
        assert_eq!(answer, headers);
    }
}
