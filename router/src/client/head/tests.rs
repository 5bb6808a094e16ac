//! Facts about heads.

use super::*;
use proptest::prelude::*;

fn taken(text: &str) -> Result<Option<Head>, HeadError> {
    take(&mut BytesMut::from(text))
}

fn head(text: &str) -> Head {
    taken(text).unwrap().expect("the head is whole")
}

#[test]
fn a_request_is_its_head_and_its_body() {
    let endpoint = Endpoint::parse("http://10.0.0.7:30000", false).unwrap();
    let headers = HeaderMap::from_iter([(CONNECTION, HeaderValue::from_static("x"))]);
    let path = PathAndQuery::from_static("/generate");
    let body = Bytes::from_static(b"{}");
    let mut post = encode(&endpoint, &Method::POST, &path, &headers, body);
    assert_eq!(
        post.copy_to_bytes(post.remaining()),
        "POST /generate HTTP/1.1\r\nhost: 10.0.0.7:30000\r\nconnection: x\r\ncontent-length: 2\r\n\r\n{}"
    );
    let mut get = encode(
        &endpoint,
        &Method::GET,
        &path,
        &HeaderMap::new(),
        Bytes::new(),
    );
    assert_eq!(
        get.copy_to_bytes(get.remaining()),
        "GET /generate HTTP/1.1\r\nhost: 10.0.0.7:30000\r\n\r\n"
    );
}

#[test]
fn a_head_is_taken_when_it_is_whole() {
    let text = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-a: 1\r\nX-A: 2\r\n\r\n";
    for cut in 0..text.len() {
        assert!(taken(&text[..cut]).unwrap().is_none(), "{cut}");
    }
    let mut buffer = BytesMut::from(format!("{text}{{}}").as_bytes());
    let head = take(&mut buffer).unwrap().unwrap();
    assert_eq!(buffer, "{}");
    assert_eq!(head.parts.status, StatusCode::OK);
    assert_eq!(head.framing, Framing::Length(2));
    assert!(head.keeps_alive);
    let values: Vec<_> = head.parts.headers.get_all("x-a").iter().collect();
    assert_eq!(values, ["1", "2"]);
}

#[test]
fn interim_answers_are_skipped() {
    let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n";
    assert!(taken(text).unwrap().is_none());
    let head = head(&format!("{text}HTTP/1.1 204 No Content\r\n\r\n"));
    assert_eq!(head.parts.status, StatusCode::NO_CONTENT);
}

#[test]
fn where_the_body_ends_is_said_by_the_head() {
    let chunked = Framing::Chunked(Chunked::Size);
    for (fields, framing, keeps_alive) in [
        (
            "1.1 200 OK\r\ncontent-length: 7\r\n",
            Framing::Length(7),
            true,
        ),
        (
            "1.1 200 OK\r\ncontent-length: 7\r\ncontent-length: 7\r\n",
            Framing::Length(7),
            true,
        ),
        (
            "1.1 200 OK\r\ncontent-length: 7\r\nconnection: a, Close\r\n",
            Framing::Length(7),
            false,
        ),
        (
            "1.0 200 OK\r\ncontent-length: 7\r\n",
            Framing::Length(7),
            false,
        ),
        (
            "1.0 200 OK\r\ncontent-length: 7\r\nconnection: keep-alive\r\n",
            Framing::Length(7),
            true,
        ),
        (
            "1.1 200 OK\r\ntransfer-encoding: Chunked\r\n",
            chunked,
            true,
        ),
        (
            "1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n",
            chunked,
            true,
        ),
        (
            "1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 7\r\n",
            chunked,
            false,
        ),
        ("1.1 200 OK\r\n", Framing::Close, false),
        (
            "1.1 304 Not Modified\r\ncontent-length: 7\r\n",
            Framing::Length(0),
            true,
        ),
    ] {
        let head = head(&format!("HTTP/{fields}\r\n"));
        assert_eq!(
            (head.framing, head.keeps_alive),
            (framing, keeps_alive),
            "{fields}"
        );
    }
}

#[test]
fn a_head_that_cannot_be_understood_is_refused() {
    for fields in [
        "content-length: 7\r\ncontent-length: 8\r\n",
        "content-length: +7\r\n",
        "content-length: 99999999999999999999\r\n",
        "transfer-encoding: gzip\r\n",
    ] {
        let refused = taken(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n"));
        assert!(matches!(refused, Err(HeadError::Framing)), "{fields}");
    }
    assert!(matches!(
        taken("SSH-2.0-x\r\n\r\n"),
        Err(HeadError::Malformed(_))
    ));
    let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "x".repeat(HEAD_BYTES_MAX));
    assert!(matches!(taken(&endless), Err(HeadError::TooLarge)));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let fields = [b"HTTP/1.1 200 OK\r\n".as_slice(), &bytes, b"\r\n\r\n"].concat();
        // Any bytes are an answer or an error.
        let _ = take(&mut BytesMut::from(&bytes[..]));
        let _ = take(&mut BytesMut::from(&fields[..]));
    }
}
