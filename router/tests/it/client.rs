//! A client of the router.

use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use std::net::SocketAddr;

#[derive(Clone)]
pub(crate) struct Client {
    inner: legacy::Client<HttpConnector, Full<Bytes>>,
    base: String,
}

pub(crate) struct Reply {
    pub(crate) head: Parts,
    pub(crate) body: Bytes,
}

// === impl Client ===

impl Client {
    pub(crate) fn new(addr: SocketAddr) -> Self {
        Self {
            inner: legacy::Client::builder(TokioExecutor::new()).build_http(),
            base: format!("http://{addr}"),
        }
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Response<Incoming> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).unwrap();
        self.inner.request(request).await.unwrap()
    }

    /// Posts and gives the answer as soon as it begins.
    pub(crate) async fn open(&self, path: &str, body: impl Into<Bytes>) -> Response<Incoming> {
        self.send(Method::POST, path, &[], body).await
    }

    pub(crate) async fn post(&self, path: &str, body: impl Into<Bytes>) -> Reply {
        Reply::read(self.open(path, body).await).await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.call(Method::GET, path, &[], "").await
    }

    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &'static str,
    ) -> Reply {
        Reply::read(self.send(method, path, headers, body).await).await
    }
}

// === impl Reply ===

impl Reply {
    pub(crate) async fn read(response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Self { head, body }
    }

    pub(crate) fn status(&self) -> u16 {
        self.head.status.as_u16()
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {:?}", self.text()))
    }

    /// The message of an error object, whose other fields must be there too.
    pub(crate) fn error(&self) -> String {
        let json = self.json();
        let error = json["error"].as_object().expect("an error object");
        for field in ["message", "type", "param", "code"] {
            assert!(error.contains_key(field), "{field} is missing in {json}");
        }
        error["message"].as_str().unwrap().to_owned()
    }
}
