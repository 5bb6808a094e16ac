//! A request of several answers as several of one answer each, whose answers become one again. For pairs of vLLM's: prefill
//! gives the blocks of a prompt back once one decode has fetched them, so each answer needs a prefill of its own (which finds
//! the prompt in its prefix cache).

mod merge;

use crate::dispatch::dual_dispatch;
use crate::error::ApiError;
use crate::relay;
use crate::request::{Api, ClientRequest, RequestError, RoutingFields};
use crate::router::Router;
use crate::splice::Field;
use crate::sse::EventSplitter;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, Stream, StreamExt, TryStreamExt};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use http_body_util::{BodyExt, Limited};
use merge::{EventMerger, merge};
use serde_json::value::RawValue;
use std::sync::Arc;

/// Parts of one request that are asked for at once; the others follow.
const AT_ONCE: usize = 16;
/// Whole answers are no larger together.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Whether workers of the request's model hand the KV of a prompt over once only, and the request asks for more.
pub(crate) fn is_needed(router: &Router, request: &ClientRequest) -> bool {
    let routing = &request.routing;
    if routing.rooms.get() == 1 || request.api == Api::Generate {
        return false;
    }
    let fleet = router.registry.fleet();
    fleet.hands_over_once(fleet.meant(routing.model.as_deref()))
}

/// # Errors
/// Of the first part that fails, if nothing was answered before.
pub(crate) async fn answer(
    router: &Arc<Router>,
    request: ClientRequest,
) -> Result<Response, ApiError> {
    let split = Arc::new(Split::new(Arc::clone(router), request)?);
    if split.request.routing.stream {
        split.stream().await
    } else {
        split.whole().await
    }
}

struct Split {
    router: Arc<Router>,
    request: ClientRequest,
    /// Prompts of a batch; none where the prompt is one.
    prompts: Vec<Box<RawValue>>,
    /// Answers of each prompt.
    samples: u32,
}

// === impl Split ===

impl Split {
    fn new(router: Arc<Router>, request: ClientRequest) -> Result<Self, ApiError> {
        let points = &request.routing.splice_points;
        let prompt = points.value(&request.body, Field::Prompt);
        let is_batch = |prompt: &&str| {
            let inside = prompt.strip_prefix('[').map(str::trim_start);
            inside.is_some_and(|inside| inside.starts_with(['"', '[']))
        };
        let prompt = prompt.filter(|_| request.api == Api::Completions);
        let prompts: Vec<Box<RawValue>> = match prompt.filter(is_batch) {
            Some(prompt) => serde_json::from_str(prompt).map_err(|source| {
                let param = "prompt";
                RequestError::Value { param, source }
            })?,
            None => Vec::new(),
        };
        let items = u32::try_from(prompts.len().max(1)).unwrap_or(u32::MAX);
        let samples = request.routing.rooms.get() / items;
        Ok(Self {
            router,
            request,
            prompts,
            samples: samples.max(1),
        })
    }

    fn count(&self) -> u32 {
        self.request.routing.rooms.get()
    }

    /// The request for the answer of this index.
    fn part(&self, idx: u32) -> Result<ClientRequest, ApiError> {
        let request = &self.request;
        let points = &request.routing.splice_points;
        let mut members = vec![(Field::N, "1")];
        if let Some(prompt) = self.prompts.get((idx / self.samples) as usize) {
            members.push((Field::Prompt, prompt.get()));
        }
        // As vLLM gives each sample of a seeded request another seed.
        let seed = points.value(&request.body, Field::Seed);
        let seed: Option<i64> = seed.and_then(|seed| seed.parse().ok());
        let seed = seed.map(|seed| seed.wrapping_add(i64::from(idx % self.samples)).to_string());
        if let Some(seed) = &seed {
            members.push((Field::Seed, seed));
        }
        let body = points.overwrite(&request.body, &members);
        Ok(ClientRequest {
            api: request.api,
            headers: request.headers.clone(),
            routing: RoutingFields::parse(request.api, &body)?,
            body,
            accepted: request.accepted,
            accepted_unix_ns: request.accepted_unix_ns,
            span: request.span.clone(),
        })
    }

    async fn ask(&self, idx: u32) -> Result<Response, ApiError> {
        let part = self.part(idx)?;
        let (response, permit) = dual_dispatch(&self.router, &part).await?;
        Ok(relay::respond(&self.router, &part, response, permit))
    }

    async fn whole(&self) -> Result<Response, ApiError> {
        let asked = stream::iter(0..self.count()).map(|idx| self.ask_whole(idx));
        let mut answers = Vec::new();
        let mut bytes = 0;
        let mut asked = asked.buffered(AT_ONCE);
        while let Some(answer) = asked.try_next().await? {
            bytes += answer.len();
            if bytes > ANSWER_BYTES_MAX {
                let message =
                    "the answers together are larger than the router holds: ask for fewer at once";
                return Err(ApiError::invalid(StatusCode::BAD_REQUEST, message));
            }
            answers.push(answer);
        }
        let merged = merge(&answers, self.samples as usize);
        let merged = merged.map_err(|error| {
            ApiError::broken_off(&format!(
                "the decode worker's answer is not understood: {error}"
            ))
        })?;
        let mut response = Response::new(Body::from(merged));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        Ok(response)
    }

    async fn ask_whole(&self, idx: u32) -> Result<Bytes, ApiError> {
        let body = self.ask(idx).await?.into_body();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| ApiError::broken_off(&error))?;
        Ok(body.to_bytes())
    }

    async fn stream(self: Arc<Self>) -> Result<Response, ApiError> {
        let merger = EventMerger::new(self.samples);
        let parts = stream::iter(0..self.count()).map(move |idx| Arc::clone(&self).events(idx));
        let events = parts.flatten_unordered(AT_ONCE);
        let mut merged = Box::pin(merged(events, merger));
        let first = match merged.next().await {
            Some(first) => first?,
            None => Bytes::new(),
        };
        // Nothing of a stream that has begun is an error of HTTP.
        let rest = merged.map(|event| match event {
            Ok(event) => event,
            Err(error) => crate::sse::error_event(error.json().as_bytes(), <_>::default()),
        });
        let body = stream::iter([first])
            .chain(rest)
            .map(Ok::<_, std::convert::Infallible>);
        let mut response = Response::new(Body::from_stream(body));
        let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        Ok(response)
    }

    /// The events of one part, with its index.
    fn events(self: Arc<Self>, idx: u32) -> BoxStream<'static, Result<(u32, Bytes), ApiError>> {
        let asked = async move { Ok::<_, ApiError>(events_of(self.ask(idx).await?.into_body())) };
        let events = stream::once(asked).try_flatten();
        events.map_ok(move |event| (idx, event)).boxed()
    }
}

fn events_of(body: Body) -> impl Stream<Item = Result<Bytes, ApiError>> {
    let state = (body, EventSplitter::default());
    stream::try_unfold(state, async |(mut body, mut splitter)| {
        loop {
            if let Some(event) = splitter.next_event() {
                return Ok(Some((event, (body, splitter))));
            }
            match body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        splitter.push(data);
                    }
                }
                Some(Err(error)) => return Err(ApiError::broken_off(&error)),
                None => {
                    let rest = splitter.rest();
                    return Ok((!rest.is_empty()).then_some((rest, (body, splitter))));
                }
            }
        }
    })
}

/// The events of all parts as those of one answer; the first error is the last of them.
fn merged(
    events: impl Stream<Item = Result<(u32, Bytes), ApiError>> + Unpin,
    merger: EventMerger,
) -> impl Stream<Item = Result<Bytes, ApiError>> {
    stream::unfold(Some((events, merger)), async |state| {
        let (mut events, mut merger) = state?;
        loop {
            match events.next().await {
                Some(Ok((idx, event))) => {
                    if let Some(event) = merger.pass(idx, &event) {
                        let goes_on = !merger.has_failed();
                        return Some((Ok(event), goes_on.then_some((events, merger))));
                    }
                }
                Some(Err(error)) => return Some((Err(error), None)),
                None => return Some((Ok(merger.end()), None)),
            }
        }
    })
}
