//! Any headers of a client: what reaches workers is few, names no connection, and has one id.

use super::*;
use pd_fuzz::{Memory, fuzz};

/// A table of 32 k entries has no more.
const MEMORY: Memory = Memory {
    base: 256 << 10,
    per_byte: 512,
};

/// Headers, one in each line.
#[test]
fn client_headers() {
    fuzz!("client_headers", MEMORY, |bytes| {
        let mut headers = HeaderMap::new();
        for line in bytes.split(|byte| *byte == b'\n') {
            let mut parts = line.splitn(2, |byte| *byte == b':');
            let name = parts.next().map(HeaderName::from_bytes);
            let value = parts.next().map(HeaderValue::from_bytes);
            if let (Some(Ok(name)), Some(Ok(value))) = (name, value) {
                headers.append(name, value);
            }
        }
        if check_number(&headers).is_err() {
            return;
        }
        let token = bearer_token(&headers).unwrap_or_default();
        assert!(token.len() <= bytes.len());
        let ids = RequestIds::new(vec![HeaderName::from_static("x-trace")]);
        let id = ids.assign(&mut headers, || 7);
        let passed = for_workers(headers);
        for name in [
            CONNECTION,
            HOST,
            CONTENT_LENGTH,
            TRANSFER_ENCODING,
            TE,
            UPGRADE,
        ] {
            assert!(!passed.contains_key(name));
        }
        assert!(passed.len() <= HEADERS_MAX + 2);
        let mut answer = HeaderMap::new();
        id.write_to(&mut answer);
        let own = answer.get_all(HEADER_REQUEST_ID).iter();
        assert!(own.map(HeaderValue::len).all(|len| len <= ID_BYTES_MAX));
    });
}
