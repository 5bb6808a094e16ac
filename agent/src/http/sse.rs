//! Server-sent events of a streamed answer. A failure is the last event: an error object, or what an
//! API has for it. Where an API has `[DONE]`, only a stream that succeeded ends with it.

use super::choice::Delta;
use super::error::ApiError;
use super::token_stream::TokenStream;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use serde::Serialize;
use std::convert::Infallible;

/// How an API formats the steps of an answer. Pure.
pub(crate) trait Events: Send + 'static {
    type Event: Serialize + Send;
    /// What ends a stream that succeeded, behind its last event.
    const END: Option<&'static str> = Some("[DONE]");

    /// The name of an event, where an API names them.
    fn name(_event: &Self::Event) -> Option<&'static str> {
        None
    }

    /// The events for one step of a part.
    fn on_delta(&mut self, part: usize, delta: Delta) -> Vec<Self::Event>;

    /// The events after the last step of the last part.
    fn on_end(&mut self) -> Vec<Self::Event>;

    /// The events of a failure, where an API has some.
    fn on_failure(&mut self, _failure: &ApiError) -> Vec<Self::Event> {
        Vec::new()
    }
}

/// The answer of `generation`, formatted by `events`. When its client disconnects, the body is
/// dropped, and with it the generation, which aborts the request.
pub(crate) fn respond<E: Events>(generation: TokenStream, events: E) -> Response {
    Sse::new(frames(generation.into_stream(), events).map(Ok::<Event, Infallible>)).into_response()
}

fn frames<E: Events>(
    steps: impl Stream<Item = Result<(usize, Delta), ApiError>> + Send,
    mut events: E,
) -> impl Stream<Item = Event> + Send {
    let end = stream::once(async { None });
    let frames = steps.map(Some).chain(end).scan(false, move |failed, step| {
        let frames = match step {
            _ if *failed => None,
            Some(Ok((part, delta))) => Some(write::<E>(events.on_delta(part, delta))),
            Some(Err(failure)) => {
                *failed = true;
                Some(failed_with(&mut events, &failure))
            }
            None => {
                let mut last = write::<E>(events.on_end());
                last.extend(E::END.map(|end| Event::default().data(end)));
                Some(last)
            }
        };
        std::future::ready(frames)
    });
    frames.flat_map(stream::iter)
}

fn failed_with<E: Events>(events: &mut E, failure: &ApiError) -> Vec<Event> {
    let own = write::<E>(events.on_failure(failure));
    if own.is_empty() {
        vec![json(Event::default().event("error"), &failure.body())]
    } else {
        own
    }
}

fn write<E: Events>(bodies: Vec<E::Event>) -> Vec<Event> {
    let frame = |body: E::Event| {
        let event = Event::default();
        let event = match E::name(&body) {
            Some(name) => event.event(name),
            None => event,
        };
        json(event, &body)
    };
    bodies.into_iter().map(frame).collect()
}

fn json<T: Serialize>(event: Event, body: &T) -> Event {
    event
        .json_data(body)
        .expect("bodies have string keys, so they are JSON")
}
