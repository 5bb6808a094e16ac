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
fn the_first_header_that_brings_an_id_counts() {
    let ids = RequestIds::new(vec![HeaderName::from_static("x-trace-id")]);
    let mut headers = HeaderMap::new();
    let mut answer = HeaderMap::new();
    ids.assign(&mut headers, || 255).write_to(&mut answer);
    assert_eq!(headers["x-request-id"], "00000000000000ff");
    assert_eq!(answer, headers);
    headers.insert("x-request-id", HeaderValue::from_static("mine"));
    ids.assign(&mut headers, || 255);
    assert_eq!(headers["x-request-id"], "mine");
    headers.insert("x-trace-id", HeaderValue::from_static("trace"));
    ids.assign(&mut headers, || 255).write_to(&mut answer);
    assert_eq!(headers["x-request-id"], "trace");
    assert_eq!(answer, headers);
}

#[test]
fn an_id_that_would_fill_the_logs_is_none() {
    let ids = RequestIds::new(Vec::new());
    for (len, is_taken) in [(ID_BYTES_MAX, true), (ID_BYTES_MAX + 1, false)] {
        let mut headers = HeaderMap::new();
        let long = HeaderValue::try_from("i".repeat(len)).unwrap();
        headers.insert("x-request-id", long.clone());
        ids.assign(&mut headers, || 255);
        assert_eq!(headers["x-request-id"] == long, is_taken);
    }
}
