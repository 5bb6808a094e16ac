//! Headers that end at the router: those of one connection, and those that the router sets anew.

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

/// The client's headers for the workers, without those that the client towards them writes. Answers
/// stay unpacked (no `accept-encoding`), since they may have to be read; a request that has no id
/// gets one.
pub(crate) fn for_workers(mut headers: HeaderMap, draw: impl FnOnce() -> u64) -> HeaderMap {
    remove_hop_by_hop(&mut headers);
    for name in [HOST, CONTENT_LENGTH, EXPECT, ACCEPT_ENCODING] {
        headers.remove(name);
    }
    let json = HeaderValue::from_static("application/json");
    headers.insert(CONTENT_TYPE, json);
    let id = HeaderName::from_static(HEADER_REQUEST_ID);
    headers.entry(id).or_insert_with(|| {
        let id = format!("{:016x}", draw());
        HeaderValue::try_from(id).expect("hexadecimal digits make a header value")
    });
    headers
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
        let headers = for_workers(headers, || 255);
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        let sent = ["authorization", "content-type", "x-custom", "x-request-id"];
        assert_eq!(names, sent);
        assert_eq!(headers["x-request-id"], "00000000000000ff");
    }
}
