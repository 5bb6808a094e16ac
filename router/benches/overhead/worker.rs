//! A mock worker that answers at once: 535 bytes of JSON, or 33 events of 285 bytes, each in a
//! network write of its own.

use bytes::Bytes;
use http::{Request, Response};
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

pub(crate) struct Worker {
    pub(crate) addr: SocketAddr,
    pub(crate) role: &'static str,
}

impl Worker {
    pub(crate) async fn start(role: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let service = service_fn(move |request| answer(role, request));
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
    request: Request<Incoming>,
) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
    let is_info = request.uri().path() == "/server_info";
    let body = request.into_body().collect().await.unwrap().to_bytes();
    if is_info {
        let info = format!(r#"{{"served_model_name":"m","disaggregation_mode":"{role}"}}"#);
        return Ok(Response::new(Full::new(Bytes::from(info)).boxed()));
    }
    let streams = asks_for_stream(&body);
    if !streams || role == "prefill" {
        let answer = Bytes::from_static(&[b'x'; 535]);
        return Ok(Response::new(Full::new(answer).boxed()));
    }
    let frames = futures_util::stream::unfold(0, |sent| async move {
        if sent > 0 {
            // Lets the connection write the frame before the next one is there.
            tokio::task::yield_now().await;
        }
        let event = Bytes::from_static(&EVENT);
        (sent < FRAMES).then_some((Ok(Frame::data(event)), sent + 1))
    });
    let mut response = Response::new(BodyExt::boxed(StreamBody::new(frames)));
    let kind = http::HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert("content-type", kind);
    Ok(response)
}

const EVENT: [u8; 285] = {
    let mut event = [b'x'; 285];
    event[283] = b'\n';
    event[284] = b'\n';
    event
};

/// Whether the load's body asks for a stream; it says so near its beginning.
fn asks_for_stream(body: &[u8]) -> bool {
    let head = &body[..body.len().min(64)];
    head.windows(13).any(|window| window == b"\"stream\":true")
}
