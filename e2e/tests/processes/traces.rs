//! Requests as traces: a collector, which reads OTLP by OpenTelemetry's own types, gets one trace of router, prefill and decode.

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use pd_e2e::binaries::tiny_model;
use pd_e2e::client::Client;
use pd_e2e::fleet::{FleetSpec, eventually};
use pd_e2e::prompts::{greedy, ids};
use prost::Message;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";
/// Batches leave every five seconds.
const SENT_WITHIN: Duration = Duration::from_secs(20);

/// Spans by the service that sent them.
#[derive(Clone, Default)]
struct Collected(Arc<Mutex<Vec<(String, Span)>>>);

impl Collected {
    async fn start() -> Result<(Self, String)> {
        let collected = Self::default();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let taken = collected.clone();
        let take = async move |body: Bytes| match ExportTraceServiceRequest::decode(body) {
            Ok(request) => {
                taken.take(request);
                StatusCode::OK
            }
            Err(_) => StatusCode::BAD_REQUEST,
        };
        let routes = Router::new().route("/v1/traces", post(take));
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Ok((collected, endpoint))
    }

    fn take(&self, request: ExportTraceServiceRequest) {
        for group in request.resource_spans {
            let attributes = group.resource.unwrap_or_default().attributes;
            let name = attributes.into_iter().find(|one| one.key == "service.name");
            let name = match name.and_then(|name| name.value?.value) {
                Some(any_value::Value::StringValue(name)) => name,
                _ => String::new(),
            };
            let spans = group.scope_spans.into_iter().flat_map(|scope| scope.spans);
            let mut collected = self.0.lock();
            collected.extend(spans.map(|span| (name.clone(), span)));
        }
    }

    /// The span that each of these is a child of, and the spans below it.
    fn children(&self, parent: &[u8]) -> Vec<(String, Span)> {
        let spans = self.0.lock();
        let of = spans
            .iter()
            .filter(|(_, span)| span.parent_span_id == parent);
        of.cloned().collect()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of(text: &str) -> Vec<u8> {
    let byte = |place| u8::from_str_radix(&text[place..place + 2], 16).expect("hexadecimal");
    (0..text.len()).step_by(2).map(byte).collect()
}

fn inside(outer: &Span, inner: &Span) -> bool {
    outer.start_time_unix_nano <= inner.start_time_unix_nano
        && inner.end_time_unix_nano <= outer.end_time_unix_nano
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_one_trace_of_router_prefill_and_decode() -> Result<()> {
    let (collected, endpoint) = Collected::start().await?;
    let mut spec = FleetSpec::new(tiny_model("tiny-llama"));
    let flags = ["--otlp-traces-endpoint".to_owned(), endpoint];
    spec.agent_args.extend(flags.clone());
    spec.prefill_args = ["--chunked-prefill-size", "64"].map(str::to_owned).to_vec();
    spec.router_args.extend(flags);
    let fleet = spec.start().await?;
    let traceparent = format!("00-{TRACE}-{CALLER}-01");
    let client = Client::new().with_header("traceparent", &traceparent)?;
    let request = greedy(&ids(1, 150), 8);
    let answer = client.post(&fleet.url("/generate"), &request).await?;
    ensure!(answer.status == 200, "{}", answer.text());
    // One that its caller does not want traced.
    let unwanted = format!("00-{TRACE}-00000000000000aa-00");
    let client = Client::new().with_header("traceparent", &unwanted)?;
    client.post(&fleet.url("/generate"), &request).await?;

    eventually(SENT_WITHIN, async || {
        let routers = collected.children(&bytes_of(CALLER));
        let [(service, router)] = &routers[..] else {
            anyhow::bail!("{} spans of the caller", routers.len());
        };
        ensure!(service == "pdserve-router" && hex(&router.trace_id) == TRACE);
        let agents = collected.children(&router.span_id);
        ensure!(agents.len() == 2, "{} spans of agents", agents.len());
        let mut names = Vec::new();
        for (service, agent) in &agents {
            ensure!(service == "pdserve-agent" && hex(&agent.trace_id) == TRACE);
            for (_, stage) in collected.children(&agent.span_id) {
                ensure!(inside(agent, &stage), "{stage:?} is not in {agent:?}");
                names.push(stage.name);
            }
        }
        for (name, count) in [
            ("wait for decode's pages", 1),
            ("chunk", 3),
            ("send", 3),
            ("reserve pages", 1),
            ("receive", 1),
            ("decode", 1),
        ] {
            let found = names.iter().filter(|one| *one == name).count();
            ensure!(found == count, "{found} spans of {name}: {names:?}");
        }
        Ok(())
    })
    .await
    .with_context(|| fleet.logs())?;
    ensure!(collected.children(&bytes_of("00000000000000aa")).is_empty());
    Ok(())
}
