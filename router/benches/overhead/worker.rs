//! A mock worker that answers at once: 535 bytes of JSON, or 33 events of up to 285 bytes, each in
//! a network write of its own. To a GET it says what routers ask at their start.

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::SocketAddr;
use tokio::net::TcpListener;

const FRAMES: usize = 33;
const EVENT_BYTES: usize = 285;
/// Length of a plain answer; a stream is longer.
pub(crate) const ANSWER_BYTES: usize = 535;

pub(crate) struct Worker {
    pub(crate) addr: SocketAddr,
    pub(crate) role: &'static str,
}

/// What a worker says, made once.
#[derive(Clone)]
struct Words {
    info: Bytes,
    answer: Bytes,
    event: Bytes,
}

// === impl Worker ===

impl Worker {
    pub(crate) async fn start(role: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let words = Words::new(role);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let words = words.clone();
                let service = service_fn(move |request| answer(role, words.clone(), request));
                let connection =
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        });
        Self { addr, role }
    }
}

async fn answer(
    role: &'static str,
    words: Words,
    request: Request<Incoming>,
) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
    let is_info = request.method() == Method::GET;
    let body = request.into_body().collect().await.unwrap().to_bytes();
    if is_info {
        return Ok(json(words.info));
    }
    if !asks_for_stream(&body) || role == "prefill" {
        return Ok(json(words.answer));
    }
    let frames = futures_util::stream::unfold(0, move |sent| {
        let is_last = sent + 1 == FRAMES;
        let event = if is_last {
            Bytes::from_static(b"data: [DONE]\n\n")
        } else {
            words.event.clone()
        };
        async move {
            if sent > 0 {
                // Lets the connection write the frame before the next one is there.
                tokio::task::yield_now().await;
            }
            (sent < FRAMES).then_some((Ok(Frame::data(event)), sent + 1))
        }
    });
    let mut response = Response::new(BodyExt::boxed(StreamBody::new(frames)));
    let kind = http::HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert("content-type", kind);
    Ok(response)
}

fn json(body: Bytes) -> Response<BoxBody<Bytes, Infallible>> {
    let mut response = Response::new(Full::new(body).boxed());
    let kind = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert("content-type", kind);
    response
}

/// Whether the body asks for a stream, in the words of the load or of a router that wrote it again.
fn asks_for_stream(body: &[u8]) -> bool {
    std::str::from_utf8(body)
        .unwrap()
        .contains("\"stream\":true")
}

// === impl Words ===

impl Words {
    fn new(role: &str) -> Self {
        let info = format!(
            r#"{{"served_model_name":"m","model_path":"m","disaggregation_mode":"{role}","object":"list","data":[{{"id":"m","object":"model"}}]}}"#
        );
        let answer = padded(
            r#"{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":""#,
            r#""},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":9,"total_tokens":18}}"#,
            ANSWER_BYTES,
        );
        let event = padded(
            r#"data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":""#,
            "\"},\"finish_reason\":null}]}\n\n",
            EVENT_BYTES,
        );
        Self {
            info: info.into(),
            answer,
            event,
        }
    }
}

/// `before` and `after` with text between them that makes `len` bytes of all.
fn padded(before: &str, after: &str, len: usize) -> Bytes {
    let text = "x".repeat(len - before.len() - after.len());
    Bytes::from([before, &text, after].concat())
}
