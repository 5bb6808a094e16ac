//! A plain HTTP client: JSON in and out, and server-sent events as they arrive.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

#[derive(Clone)]
pub(crate) struct Client {
    http: HyperClient<HttpConnector, Full<Bytes>>,
    bearer: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
}

/// A streamed answer; dropping it closes its connection.
pub(crate) struct Events {
    body: Incoming,
    pending: Vec<u8>,
}

impl Client {
    pub(crate) fn new() -> Self {
        Self {
            http: HyperClient::builder(TokioExecutor::new()).build(HttpConnector::new()),
            bearer: None,
        }
    }

    pub(crate) fn with_bearer(&self, token: &str) -> Self {
        Self {
            bearer: Some(token.to_owned()),
            ..self.clone()
        }
    }

    pub(crate) async fn send(&self, method: Method, url: &str, body: impl Into<Bytes>) -> Answer {
        let (head, body) = self.head(method, url, body.into()).await.into_parts();
        Answer {
            status: head.status.as_u16(),
            body: body.collect().await.unwrap().to_bytes(),
        }
    }

    pub(crate) async fn get(&self, url: &str) -> Answer {
        self.send(Method::GET, url, Bytes::new()).await
    }

    pub(crate) async fn post(&self, url: &str, body: &Value) -> Answer {
        self.send(Method::POST, url, body.to_string()).await
    }

    pub(crate) async fn stream(&self, url: &str, body: &Value) -> Events {
        let response = self.head(Method::POST, url, body.to_string().into()).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Events {
            body: response.into_body(),
            pending: Vec::new(),
        }
    }

    async fn head(&self, method: Method, url: &str, body: Bytes) -> Response<Incoming> {
        let mut request = Request::builder().method(method).uri(url);
        if let Some(token) = &self.bearer {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Full::new(body)).unwrap();
        self.http.request(request).await.unwrap()
    }
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {text}"))
    }

    /// The body of a 200.
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.body));
        self.json()
    }
}

impl Events {
    /// The next event's data; `None` at the end of the body.
    pub(crate) async fn next(&mut self) -> Option<String> {
        Some(self.next_named().await?.1)
    }

    /// The next event's name, if it has one, and its data; `None` at the end of the body.
    pub(crate) async fn next_named(&mut self) -> Option<(Option<String>, String)> {
        loop {
            if let Some(end) = self.pending.windows(2).position(|w| w == b"\n\n") {
                let event: Vec<u8> = self.pending.drain(..end + 2).collect();
                let event = String::from_utf8(event).unwrap();
                let field = |name| event.lines().find_map(|line| line.strip_prefix(name));
                let data = field("data: ").expect("an event has data");
                return Some((field("event: ").map(str::to_owned), data.to_owned()));
            }
            let frame = self.body.frame().await?.unwrap();
            self.pending.extend(frame.into_data().unwrap_or_default());
        }
    }

    /// Every event before `[DONE]`, which is the last.
    pub(crate) async fn all(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let data = self.next().await.expect("a good stream says [DONE]");
            if data == "[DONE]" {
                assert_eq!(self.next().await, None);
                return events;
            }
            events.push(serde_json::from_str(&data).unwrap());
        }
    }
}
