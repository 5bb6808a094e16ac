//! Facts about spans: whose children they are, what they say, and where they are sent.

use super::*;
use http::StatusCode;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SpanData};
use pd_protocol::BootstrapRoom;
use pd_protocol::timeline::{Stage, StageEvent};
use std::net::TcpListener;
use std::time::Instant;

const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn kept() -> (Spans, InMemorySpanExporter) {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone());
    (Spans::of(provider.build()), exporter)
}

fn headers(traceparent: Option<&'static str>) -> HeaderMap {
    let parent = traceparent.map(|parent| {
        (
            "traceparent".parse().unwrap(),
            HeaderValue::from_static(parent),
        )
    });
    parent.into_iter().collect()
}

fn span<'a>(spans: &'a [SpanData], name: &str) -> &'a SpanData {
    let found = spans.iter().find(|span| span.name == name);
    found.unwrap_or_else(|| panic!("no {name} in {spans:?}"))
}

#[test]
fn a_request_continues_its_callers_trace_and_its_workers_continue_its() {
    let (spans, exporter) = kept();
    let mut headers = headers(Some(CALLER));
    let router = spans.serve("router", &mut headers);
    let worker = spans.serve("worker", &mut headers);
    router.set("pdserve.room", 7);
    router.answered(StatusCode::BAD_GATEWAY);
    drop((worker, router));

    let ended = exporter.get_finished_spans().unwrap();
    let (router, worker) = (span(&ended, "router"), span(&ended, "worker"));
    assert_eq!(router.parent_span_id.to_string(), "b7ad6b7169203331");
    assert_eq!(worker.parent_span_id, router.span_context.span_id());
    for one in [router, worker] {
        let trace = one.span_context.trace_id().to_string();
        assert_eq!(trace, "0af7651916cd43dd8448eb211c80319c");
    }
    assert_eq!(router.status, Status::error("502 Bad Gateway"));
    assert_eq!(router.attributes.len(), 2);
}

#[test]
fn callers_say_what_is_traced_and_wrong_headers_say_nothing() {
    let (spans, exporter) = kept();
    let unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
    drop(spans.serve("not traced", &mut headers(Some(unsampled))));
    drop(spans.serve("wrong", &mut headers(Some("00-zz-1-01"))));
    drop(spans.serve("none", &mut headers(None)));
    let ended = exporter.get_finished_spans().unwrap();
    let names: Vec<&str> = ended.iter().map(|span| span.name.as_ref()).collect();
    assert_eq!(names, ["wrong", "none"]);
}

#[test]
fn stages_are_children_with_their_times() {
    let (spans, exporter) = kept();
    let request = spans.serve("prefill", &mut headers(None));
    let event = |stage, at_unix_ns, duration_ns| StageEvent {
        stage,
        at_unix_ns,
        duration_ns,
        tokens: Some(64),
        bytes: None,
        state_bytes: None,
    };
    request.stages(&RequestTimeline {
        room: BootstrapRoom::new(7).unwrap(),
        process: "prefill".to_owned(),
        events: vec![
            event(Stage::PrefillQueued, 1_000, None),
            event(Stage::ChunkComputed, 9_000, Some(5_000)),
        ],
    });
    drop(request);
    let ended = exporter.get_finished_spans().unwrap();
    assert_eq!(ended.len(), 3, "{ended:?}");
    let (request, chunk) = (span(&ended, "prefill"), span(&ended, "chunk"));
    assert_eq!(chunk.parent_span_id, request.span_context.span_id());
    assert_eq!((chunk.start_time, chunk.end_time), (at(4_000), at(9_000)));
    assert_eq!(chunk.attributes, [KeyValue::new("tokens", 64)]);
    let phase = span(&ended, "compute the prompt");
    assert_eq!((phase.start_time, phase.end_time), (at(1_000), at(9_000)));
}

#[test]
fn an_endpoint_is_a_url_and_gets_the_standard_path() {
    let url = |endpoint| traces_url(endpoint).map_err(|error| error.to_string());
    assert_eq!(
        url("http://otel:4318").unwrap(),
        "http://otel:4318/v1/traces"
    );
    assert_eq!(
        url("http://otel:4318/").unwrap(),
        "http://otel:4318/v1/traces"
    );
    assert_eq!(url("http://otel/own/path").unwrap(), "http://otel/own/path");
    for wrong in ["otel:4317", "https://otel", "", "http://", "grpc://otel"] {
        let said = url(wrong).unwrap_err();
        assert!(said.contains("http://otel-collector:4318"), "{said}");
    }
}

#[tokio::test]
async fn it_starts_where_a_runtime_runs_and_a_collector_may_come_later() {
    let spans = Spans::start("http://127.0.0.1:9", "test", "one").unwrap();
    drop(spans.serve("request", &mut headers(None)));
    let gone = tokio::task::spawn_blocking(move || drop(spans));
    gone.await.unwrap();
}

#[test]
fn a_collector_that_never_answers_holds_no_one_up_for_long() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let spans = Spans::start(&endpoint, "test", "one").unwrap();
    let began = Instant::now();
    drop(spans.serve("request", &mut headers(None)));
    assert!(began.elapsed() < EXPORT_LIMIT, "a request waited for it");
    spans.flush();
    drop(spans);
    assert!(began.elapsed() < 6 * EXPORT_LIMIT, "{:?}", began.elapsed());
}
