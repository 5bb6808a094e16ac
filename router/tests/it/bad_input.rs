//! Bad requests are refused with what is wrong and where, and reach no worker.

use crate::client::Reply;
use crate::harness::{Pair, Running, config};
use http::Method;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn each_bad_body_has_its_message() {
    let pair = Pair::start("").await;
    let cases: [(&[u8], u16, &str); 9] = [
        (b"{\"text\":", 400, "line 1 column 8"),
        (b"", 400, "EOF"),
        (b"[1]", 400, "expected a JSON object"),
        (b"{\"text\":\"\xff\"}", 400, "byte 9"),
        (b"{\"model\":7}", 400, "model must be a string, not 7"),
        (b"{\"model\":\"gpt\"}", 404, "served are: m"),
        (b"{\"stream\":1}", 400, "stream must be true or false"),
        (
            b"{\"bootstrap_room\":1,\"bootstrap_room\":2}",
            400,
            "bootstrap_room appears twice",
        ),
        (
            b"{\"text\":\"a\",\"text\":\"b\"}",
            400,
            "text appears twice",
        ),
    ];
    for (body, status, message) in cases {
        let reply = pair.running.client.post("/generate", body.to_vec()).await;
        assert_eq!(reply.status(), status, "{}", reply.text());
        assert!(reply.error().contains(message), "{}", reply.text());
    }
    for worker in [&pair.prefill, &pair.decode] {
        assert_eq!(worker.counts().asked, 0);
    }
    pair.running.until_idle().await;
}

#[tokio::test]
async fn more_headers_than_workers_take_are_refused_here() {
    let pair = Pair::start("").await;
    let names: Vec<String> = (0..95).map(|number| format!("x-{number}")).collect();
    let headers: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
    let client = &pair.running.client;
    let answer = client.send(Method::POST, "/generate", &headers, "{}").await;
    assert_eq!(answer.status(), 431);
    let reply = Reply::read(answer).await;
    assert!(
        reply.error().contains("send at most 90"),
        "{}",
        reply.text()
    );
    assert_eq!(pair.prefill.counts().asked + pair.decode.counts().asked, 0);
}

#[tokio::test]
async fn an_unknown_path_or_method_is_answered_with_an_error_object() {
    let running = Running::start(config(""), &[]).await;
    let reply = running.client.post("/v1/embeddings", "{}").await;
    assert_eq!(
        (reply.status(), reply.error()),
        (
            404,
            "there is no POST /v1/embeddings here: models here generate text, and no embeddings, scores or classes; served \
             are /v1/chat/completions, /v1/completions, /v1/responses, /generate, /tokenize, /detokenize and /v1/models"
                .to_owned()
        )
    );
    let reply = running.client.get("/generate").await;
    assert_eq!(
        (reply.status(), reply.error()),
        (405, "/generate does not take GET".to_owned())
    );
}

#[tokio::test]
async fn without_workers_the_router_lives_and_says_that_it_cannot_serve() {
    let running = Running::start(config("--no-worker-timeout-secs 0"), &[]).await;
    assert_eq!(running.client.get("/health").await.status(), 200);
    assert_eq!(running.client.get("/ready").await.status(), 503);
    let reply = running.client.post("/generate", "{}").await;
    assert_eq!(reply.status(), 503);
    assert!(reply.error().contains("no worker is ready"));
    assert_eq!(reply.headers()["retry-after"], "1");
}

/// Answers of the router to these bytes: their statuses, in order, until it closes or says nothing more.
async fn statuses(to: SocketAddr, bytes: &[u8]) -> Vec<String> {
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut said = Vec::new();
    let read = stream.read_to_end(&mut said);
    let _ = tokio::time::timeout(Duration::from_millis(500), read).await;
    let said = String::from_utf8_lossy(&said);
    let heads = said.split("HTTP/1.1 ").skip(1);
    heads.map(|head| head[..3].to_owned()).collect()
}

#[tokio::test]
async fn one_request_is_never_taken_for_two() {
    let pair = Pair::start("").await;
    let to = pair.running.api_addr;
    let hidden = "GET /hidden HTTP/1.1\r\nhost: r\r\n\r\n";
    let len = hidden.len();
    let post = "POST /v1/nothing HTTP/1.1\r\nhost: r\r\n";
    let cases: [(String, &[&str]); 12] = [
        // Two lengths, or one that is none.
        (
            format!("{post}content-length: 0\r\ncontent-length: {len}\r\n\r\n{hidden}"),
            &["400"],
        ),
        (
            format!("{post}content-length: +{len}\r\n\r\n{hidden}"),
            &["400"],
        ),
        (
            format!("{post}content-length: -1\r\n\r\n{hidden}"),
            &["400"],
        ),
        (
            format!("{post}content-length: 0x10\r\n\r\n{hidden}"),
            &["400"],
        ),
        (
            format!("{post}content-length: 18446744073709551616\r\n\r\n{hidden}"),
            &["400"],
        ),
        // A body of chunks and a length: the chunks count, and the connection ends with the answer.
        (
            format!(
                "{post}content-length: {len}\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"
            ),
            &["404"],
        ),
        (
            format!("{post}transfer-encoding: xchunked\r\n\r\n0\r\n\r\n{hidden}"),
            &["400"],
        ),
        (
            format!("{post}transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n{hidden}"),
            &["400"],
        ),
        // A folded line, a space before the colon, control characters in a value.
        (
            format!("{post}x-a: b\r\n content-length: {len}\r\n\r\n{hidden}"),
            &["400"],
        ),
        (
            format!("{post}content-length : {len}\r\n\r\n{hidden}"),
            &["400"],
        ),
        (
            format!("{post}x-a: b\0c\r\ncontent-length: 0\r\n\r\n"),
            &["400"],
        ),
        // Truly two.
        (
            format!("{post}content-length: 0\r\n\r\n{hidden}"),
            &["404", "404"],
        ),
    ];
    for (bytes, wanted) in cases {
        assert_eq!(statuses(to, bytes.as_bytes()).await, wanted, "{bytes:?}");
    }
    for worker in [&pair.prefill, &pair.decode] {
        assert_eq!(worker.counts().asked, 0);
    }
}
