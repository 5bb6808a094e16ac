//! Facts about the client, with a worker that writes exactly the given bytes.

use super::*;
use pd_identity::{Identity, Keyring};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

async fn listen() -> (TcpListener, Client) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let client = Client::new(Endpoint::parse(&url, false).unwrap(), &Peers::Plain);
    (listener, client)
}

/// Accepts a connection for which no other is waiting.
async fn accept(listener: &TcpListener) -> TcpStream {
    listener.accept().await.unwrap().0
}

/// Reads one request without body and answers it.
async fn answer(stream: &mut TcpStream, text: &str) {
    read_head(stream).await;
    stream.write_all(text.as_bytes()).await.unwrap();
}

async fn read_head(stream: &mut TcpStream) {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        assert_ne!(
            stream.read_buf(&mut read).await.unwrap(),
            0,
            "the client left"
        );
    }
}

async fn get(client: &Client) -> Result<Bytes, ClientError> {
    let path = PathAndQuery::from_static("/");
    let request = client.request(&Method::GET, &path, &HeaderMap::new(), Bytes::new());
    let (_, body) = client.exchange(request, 1 << 20).await?;
    Ok(body)
}

#[tokio::test]
async fn a_connection_serves_one_request_after_another() {
    let (listener, client) = listen().await;
    let worker = async {
        let mut stream = accept(&listener).await;
        answer(&mut stream, OK).await;
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        answer(&mut stream, chunked).await;
        answer(&mut stream, OK).await;
    };
    let requests = async {
        assert_eq!(get(&client).await.unwrap(), "ok");
        assert_eq!(get(&client).await.unwrap(), "abc");
        assert_eq!(get(&client).await.unwrap(), "ok");
    };
    tokio::join!(worker, requests);
}

#[tokio::test]
async fn an_answer_that_ends_with_its_connection_is_read_to_the_end() {
    let (listener, client) = listen().await;
    let worker = async {
        answer(
            &mut accept(&listener).await,
            "HTTP/1.0 200 OK\r\n\r\nall of it",
        )
        .await;
        answer(&mut accept(&listener).await, OK).await;
    };
    let requests = async {
        assert_eq!(get(&client).await.unwrap(), "all of it");
        assert_eq!(get(&client).await.unwrap(), "ok");
    };
    tokio::join!(worker, requests);
}

#[tokio::test]
async fn a_connection_with_unasked_bytes_is_not_used_again() {
    let (listener, client) = listen().await;
    let worker = async {
        answer(
            &mut accept(&listener).await,
            &format!("{OK}HTTP/1.1 408 Late\r\n\r\n"),
        )
        .await;
        answer(&mut accept(&listener).await, OK).await;
    };
    let requests = async {
        assert_eq!(get(&client).await.unwrap(), "ok");
        assert_eq!(get(&client).await.unwrap(), "ok");
    };
    tokio::join!(worker, requests);
}

#[tokio::test]
async fn a_connection_that_the_worker_closed_is_not_used_again() {
    let (listener, client) = listen().await;
    let (_, first) = tokio::join!(
        async {
            let mut stream = accept(&listener).await;
            answer(&mut stream, OK).await;
        },
        get(&client)
    );
    assert_eq!(first.unwrap(), "ok");
    let worker = async { answer(&mut accept(&listener).await, OK).await };
    let (_, second) = tokio::join!(worker, get(&client));
    assert_eq!(second.unwrap(), "ok");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_idled_too_long_is_not_used_again() {
    let (listener, client) = listen().await;
    let mut first = None;
    let worker = async {
        let stream = first.insert(accept(&listener).await);
        answer(stream, OK).await;
    };
    tokio::join!(worker, async { get(&client).await.unwrap() });
    tokio::time::advance(Duration::from_secs(3)).await;
    let worker = async { answer(&mut accept(&listener).await, OK).await };
    tokio::join!(worker, async { get(&client).await.unwrap() });
}

#[tokio::test]
async fn dropping_a_body_closes_its_connection() {
    let (listener, client) = listen().await;
    let path = PathAndQuery::from_static("/");
    let request = client.request(&Method::GET, &path, &HeaderMap::new(), Bytes::new());
    let worker = async {
        let mut stream = accept(&listener).await;
        answer(
            &mut stream,
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nfirst",
        )
        .await;
        stream
    };
    let (mut stream, sent) = tokio::join!(worker, client.send(request));
    let mut body = sent.unwrap().1;
    assert_eq!(body.data().await.unwrap().unwrap(), "first");
    drop(body);
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_an_error() {
    for text in [
        "",
        "HTTP/1.1 200",
        "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\nhalf",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nno length",
        "not HTTP\r\n\r\n",
    ] {
        let (listener, client) = listen().await;
        let worker = async { answer(&mut accept(&listener).await, text).await };
        let (_, got) = tokio::join!(worker, get(&client));
        assert!(
            matches!(got, Err(ClientError::Broken(_))),
            "{text:?}: {got:?}"
        );
    }
}

#[tokio::test]
async fn an_answer_larger_than_wanted_is_refused() {
    let (listener, client) = listen().await;
    let long = "x".repeat(2 << 20);
    let long = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{long}",
        long.len()
    );
    let worker = async {
        let mut stream = accept(&listener).await;
        read_head(&mut stream).await;
        // The client leaves before all of it is written.
        let _ = stream.write_all(long.as_bytes()).await;
    };
    let (_, got) = tokio::join!(worker, get(&client));
    assert!(
        matches!(got, Err(ClientError::TooLarge(bytes_max)) if bytes_max == 1 << 20),
        "{got:?}"
    );
}

#[tokio::test]
async fn an_answer_before_the_whole_request_was_read_is_heard() {
    let (listener, client) = listen().await;
    let path = PathAndQuery::from_static("/generate");
    // More than the sockets' buffers take.
    let body = Bytes::from(vec![b'x'; 64 << 20]);
    let request = client.request(&Method::POST, &path, &HeaderMap::new(), body);
    let worker = async {
        let mut stream = accept(&listener).await;
        let refusal = "HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno";
        stream.write_all(refusal.as_bytes()).await.unwrap();
        stream
    };
    let (_stream, answered) = tokio::join!(worker, client.exchange(request, 10));
    let (head, body) = answered.unwrap();
    assert_eq!(head.status, 413);
    assert_eq!(body, "no");
    let again = async { answer(&mut accept(&listener).await, OK).await };
    let (_, got) = tokio::join!(again, get(&client));
    assert_eq!(got.unwrap(), "ok");
}

#[tokio::test]
async fn a_port_without_a_listener_is_reported_as_such() {
    let (listener, client) = listen().await;
    drop(listener);
    assert!(matches!(get(&client).await, Err(ClientError::Connect(_))));
}

#[tokio::test]
async fn a_handshake_that_has_no_answer_is_a_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let keyring = Keyring::parse("keys", b"0123456789abcdef0123456789abcdef").unwrap();
    let peers = Peers::Tls(Identity::new(keyring));
    let client = Client::new(Endpoint::parse(&url, true).unwrap(), &peers);
    // The kernel accepts for a process that is frozen.
    let error = get(&client).await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    drop(listener);
    let error = get(&client).await.unwrap_err();
    assert!(!error.is_timeout(), "{error}");
}
