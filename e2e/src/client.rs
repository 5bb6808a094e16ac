//! An HTTP client: JSON in and out, and server-sent events as they arrive; over TLS where the URL
//! says so.

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use futures_util::future::try_join_all;
use http::{HeaderName, HeaderValue};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

#[derive(Clone)]
pub struct Client {
    http: HyperClient<HttpsConnector<HttpConnector>, Full<Bytes>>,
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
    /// Trusts no authority, so that only plain HTTP gets an answer.
    pub fn new() -> Self {
        Self::with_roots(RootCertStore::empty())
    }

    /// Trusts one authority and no other.
    ///
    /// # Errors
    /// When the file is no certificate.
    pub fn trusting(authority: &Path) -> Result<Self> {
        Ok(Self::with_roots(roots(authority)?))
    }

    /// Takes any certificate and shows none, as scrapers and probes do.
    pub fn trusting_all() -> Self {
        let mut config = tls_config(RootCertStore::empty());
        let any = Arc::new(AnyServer(
            ring::default_provider().signature_verification_algorithms,
        ));
        config.dangerous().set_certificate_verifier(any);
        Self::with_tls(config)
    }

    fn with_roots(roots: RootCertStore) -> Self {
        Self::with_tls(tls_config(roots))
    }

    fn with_tls(config: ClientConfig) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.enforce_http(false);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
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

    /// Posts all requests at once; their answers, in the same order.
    ///
    /// # Errors
    /// When one has no answer, or one that is not 200 or not JSON.
    pub async fn post_all(&self, url: &str, requests: &[Value]) -> Result<Vec<Value>> {
        try_join_all(requests.iter().map(|request| async move {
            let answer = self.post(url, request).await?;
            if answer.status != StatusCode::OK {
                bail!("{url} answered {}: {}", answer.status, answer.text());
            }
            answer.json()
        }))
        .await
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

/// Any server that holds the key of the certificate that it shows.
#[derive(Debug)]
struct AnyServer(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// # Errors
/// When the file is no certificate.
pub fn roots(authority: &Path) -> Result<RootCertStore> {
    let authority = CertificateDer::from_pem_file(authority)
        .with_context(|| format!("read {}", authority.display()))?;
    let mut roots = RootCertStore::empty();
    roots.add(authority)?;
    Ok(roots)
}

/// TLS as any client speaks it.
pub fn tls_config(roots: RootCertStore) -> ClientConfig {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has suites for every version")
        .with_root_certificates(roots)
        .with_no_client_auth()
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

    /// The text of a streamed chat, whole; `begins` is called when its first event is here.
    ///
    /// # Errors
    /// As [`EventStream::next`]; also `REFUSED` for an error among the events, and `CUT` where it ends without `[DONE]`.
    pub async fn said(&mut self, begins: impl FnOnce()) -> Result<String> {
        let (mut said, mut has_ended, mut begins) = (String::new(), false, Some(begins));
        while let Some(data) = self.next().await? {
            if let Some(begins) = begins.take() {
                begins();
            }
            if data == "[DONE]" {
                has_ended = true;
                continue;
            }
            let event: Value =
                serde_json::from_str(&data).with_context(|| format!("event {data}"))?;
            ensure!(event["error"].is_null(), "REFUSED {event}");
            let delta = &event["choices"][0]["delta"]["content"];
            said.push_str(delta.as_str().unwrap_or_default());
        }
        ensure!(has_ended, "CUT after {said:?}");
        Ok(said)
    }
}
