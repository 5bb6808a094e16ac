//! A plain HTTP client: JSON in and out, and server-sent events as they arrive.

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

#[derive(Clone)]
pub struct Client {
    http: HyperClient<HttpConnector, Full<Bytes>>,
    /// Sent with every request.
    headers: HeaderMap,
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// An answer read event by event; dropping it closes the connection.
pub struct EventStream {
    pub headers: HeaderMap,
    body: Incoming,
    pending: Vec<u8>,
}

// === impl Client ===

impl Client {
    pub fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self {
            http: HyperClient::builder(TokioExecutor::new()).build(connector),
            headers: HeaderMap::new(),
        }
    }

    /// # Errors
    /// When the token has characters that no header carries.
    pub fn with_bearer(self, token: &str) -> Result<Self> {
        self.with_header("authorization", &format!("Bearer {token}"))
    }

    /// # Errors
    /// When the value has characters that no header carries.
    pub fn with_header(mut self, name: &'static str, value: &str) -> Result<Self> {
        let value = HeaderValue::from_str(value)?;
        self.headers.insert(HeaderName::from_static(name), value);
        Ok(self)
    }

    /// # Errors
    /// When no HTTP answer came; a status is no error here.
    pub async fn send(&self, method: Method, url: &str, body: impl Into<Bytes>) -> Result<Answer> {
        let response = self.head(method, url, body.into()).await?;
        let (head, body) = response.into_parts();
        let body = body
            .collect()
            .await
            .with_context(|| format!("read {url}"))?
            .to_bytes();
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body,
        })
    }

    /// # Errors
    /// As [`Client::send`].
    pub async fn get(&self, url: &str) -> Result<Answer> {
        self.send(Method::GET, url, Bytes::new()).await
    }

    /// # Errors
    /// As [`Client::send`].
    pub async fn post(&self, url: &str, body: &Value) -> Result<Answer> {
        self.send(Method::POST, url, body.to_string()).await
    }

    /// # Errors
    /// When no answer came or its status is not 200.
    pub async fn stream(&self, url: &str, body: &Value) -> Result<EventStream> {
        let response = self
            .head(Method::POST, url, body.to_string().into())
            .await?;
        let (head, body) = response.into_parts();
        if head.status != StatusCode::OK {
            let text = body.collect().await?.to_bytes();
            bail!(
                "{url} answered {}: {}",
                head.status,
                String::from_utf8_lossy(&text)
            );
        }
        Ok(EventStream {
            headers: head.headers,
            body,
            pending: Vec::new(),
        })
    }

    async fn head(&self, method: Method, url: &str, body: Bytes) -> Result<Response<Incoming>> {
        let mut request = Request::builder().method(method).uri(url);
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        let mut request = request.body(Full::new(body))?;
        request.headers_mut().extend(self.headers.clone());
        self.http
            .request(request)
            .await
            .with_context(|| format!("no answer from {url}"))
    }
}

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}

// === impl Answer ===

impl Answer {
    /// # Errors
    /// When the body is not JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body)
            .with_context(|| format!("not JSON: {}", String::from_utf8_lossy(&self.body)))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

// === impl EventStream ===

impl EventStream {
    /// The next event's data; `None` at the end of the body.
    ///
    /// # Errors
    /// When the connection broke, or the body ended inside an event.
    pub async fn next(&mut self) -> Result<Option<String>> {
        loop {
            if let Some(end) = self.pending.windows(2).position(|w| w == b"\n\n") {
                let event: Vec<u8> = self.pending.drain(..end + 2).collect();
                let event = String::from_utf8(event).context("an event is UTF-8")?;
                let data: Vec<&str> = event
                    .lines()
                    .filter_map(|line| line.strip_prefix("data:"))
                    .map(str::trim_start)
                    .collect();
                return Ok(Some(data.join("\n")));
            }
            match self.body.frame().await {
                Some(frame) => {
                    if let Ok(data) = frame.context("the stream broke")?.into_data() {
                        self.pending.extend_from_slice(&data);
                    }
                }
                None if self.pending.is_empty() => return Ok(None),
                None => bail!("the body ended inside an event"),
            }
        }
    }

    /// Every event up to `[DONE]` or the end.
    ///
    /// # Errors
    /// As [`EventStream::next`]; also when an event is not JSON.
    pub async fn rest(&mut self) -> Result<Vec<Value>> {
        let mut events = Vec::new();
        while let Some(data) = self.next().await? {
            if data == "[DONE]" {
                break;
            }
            events.push(serde_json::from_str(&data).with_context(|| format!("event {data}"))?);
        }
        Ok(events)
    }
}
