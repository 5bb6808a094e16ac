//! Requests as OpenTelemetry's spans, sent to a collector by OTLP over HTTP. A process has a span for each request that it
//! serves, a child of the one that the request's `traceparent` names (W3C Trace Context), and below it the request's stages.
//! Which requests are traced, the caller says, or the standard variables do (`OTEL_TRACES_SAMPLER`).

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::{Span as _, SpanKind, Status, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use pd_protocol::BootstrapRoom;
use pd_protocol::timeline::RequestTimeline;
use pd_protocol::trace_event::Trace;
use reqwest::blocking::Client;
use std::borrow::Cow;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Where collectors take spans, below their address.
const PATH: &str = "/v1/traces";
/// The operator sets it in containers.
const POD_NAME: &str = "POD_NAME";
/// How long a collector may take for a batch.
const EXPORT_LIMIT: Duration = Duration::from_secs(2);

/// Why spans cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum SpansError {
    #[error("{0:?} is no collector: give a URL such as http://otel-collector:4318")]
    Endpoint(String),
    #[error("cannot send spans: {0}")]
    Exporter(#[from] ExporterBuildError),
    #[error("cannot send spans: no HTTP client: {0}")]
    Client(#[from] reqwest::Error),
}

/// The spans of a process. They are sent in batches, by a thread.
#[derive(Debug)]
pub struct Spans {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

/// A request that is being served. It ends with its last clone.
#[derive(Clone, Debug)]
pub struct RequestSpan {
    context: Context,
    tracer: SdkTracer,
}

// === impl Spans ===

impl Spans {
    /// To the collector at `endpoint`, `http://HOST:PORT` or with a path of its own, as those of `service`. Its instance is
    /// the pod, or `instance` outside of pods.
    ///
    /// # Errors
    /// When the endpoint is no such URL.
    pub fn start(
        endpoint: &str,
        service: &'static str,
        instance: &str,
    ) -> Result<Self, SpansError> {
        let exporter = SpanExporter::builder()
            .with_http()
            .with_endpoint(traces_url(endpoint)?)
            .with_timeout(EXPORT_LIMIT)
            .with_http_client(client()?)
            .build()?;
        let instance = std::env::var(POD_NAME).unwrap_or_else(|_| instance.to_owned());
        let instance = KeyValue::new("service.instance.id", instance);
        let resource = Resource::builder()
            .with_service_name(service)
            .with_attribute(instance);
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource.build())
            .build();
        Ok(Self::of(provider))
    }

    fn of(provider: SdkTracerProvider) -> Self {
        let tracer = provider.tracer("pdserve");
        Self { provider, tracer }
    }

    /// Begins the span of a request with these headers, whose context becomes this span's: those who get them next
    /// are its children.
    pub fn serve(
        &self,
        name: impl Into<Cow<'static, str>>,
        headers: &mut HeaderMap,
    ) -> RequestSpan {
        let propagator = TraceContextPropagator::new();
        let parent = propagator.extract_with_context(&Context::new(), &Headers(headers));
        let span = self
            .tracer
            .span_builder(name)
            .with_kind(SpanKind::Server)
            .start_with_context(&self.tracer, &parent);
        let context = parent.with_span(span);
        propagator.inject_context(&context, &mut HeadersMut(headers));
        RequestSpan {
            context,
            tracer: self.tracer.clone(),
        }
    }

    /// Sends what has ended. Blocks for some seconds at most.
    pub fn flush(&self) {
        // What failed is logged by the crate.
        let _ = self.provider.force_flush();
    }
}

// === impl RequestSpan ===

impl RequestSpan {
    pub fn set(&self, key: &'static str, value: impl Into<Value>) {
        let span = self.context.span();
        span.set_attribute(KeyValue::new(key, value.into()));
    }

    /// The room of the request's first answer.
    pub fn set_room(&self, room: BootstrapRoom) {
        let room = i64::try_from(room.get()).unwrap_or(i64::MAX);
        self.set("pdserve.room", room);
    }

    /// Something that happens now.
    pub fn event(&self, name: &'static str) {
        self.context.span().add_event(name, Vec::new());
    }

    /// What was answered; errors of the server fail the span.
    pub fn answered(&self, status: http::StatusCode) {
        self.set("http.response.status_code", i64::from(status.as_u16()));
        if status.is_server_error() {
            self.failed(status.to_string());
        }
    }

    pub fn failed(&self, why: String) {
        self.context.span().set_status(Status::error(why));
    }

    /// A request's stages in this process, as children.
    pub fn stages(&self, timeline: &RequestTimeline) {
        if !self.context.span().is_recording() {
            return;
        }
        let trace = Trace::of_request(std::slice::from_ref(timeline));
        for stage in trace.spans().iter().filter(|span| !span.is_whole()) {
            let args = stage.args.iter();
            let attributes = args.map(|(name, value)| {
                KeyValue::new(*name, i64::try_from(*value).unwrap_or(i64::MAX))
            });
            let mut span = self
                .tracer
                .span_builder(stage.name)
                .with_start_time(at(stage.begin_unix_ns))
                .with_attributes(attributes)
                .start_with_context(&self.tracer, &self.context);
            span.end_with_timestamp(at(stage.end_unix_ns));
        }
    }
}

/// A client that blocks, for the thread that sends. Collectors are asked over plain HTTP, so it knows no authority.
fn client() -> reqwest::Result<Client> {
    // One that is installed already is this one.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let build = || {
        let builder = Client::builder().timeout(EXPORT_LIMIT);
        builder.tls_certs_only([]).build()
    };
    // It has a runtime of its own, which may not begin where another one runs.
    thread::scope(|scope| scope.spawn(build).join()).expect("building a client does not panic")
}

fn at(unix_ns: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(unix_ns)
}

fn traces_url(endpoint: &str) -> Result<String, SpansError> {
    let refused = || SpansError::Endpoint(endpoint.to_owned());
    let uri: http::Uri = endpoint.parse().map_err(|_| refused())?;
    if uri.scheme_str() != Some("http") || uri.host().is_none_or(str::is_empty) {
        return Err(refused());
    }
    let base = endpoint.trim_end_matches('/');
    Ok(match uri.path() {
        "" | "/" => format!("{base}{PATH}"),
        _ => endpoint.to_owned(),
    })
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

struct HeadersMut<'a>(&'a mut HeaderMap);

impl Injector for HeadersMut<'_> {
    fn set(&mut self, key: &str, value: String) {
        let name = HeaderName::try_from(key);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value)) {
            self.0.insert(name, value);
        }
    }
}

#[cfg(test)]
mod tests;
