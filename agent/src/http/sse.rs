//! Server-sent events of a streamed answer. A failure is the last event, an error object; only a
//! stream that succeeded ends with `[DONE]`.

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

    /// The events for one step of a part.
    fn on_delta(&mut self, part: usize, delta: Delta) -> Vec<Self::Event>;

    /// The events after the last step of the last part.
    fn on_end(&mut self) -> Vec<Self::Event>;
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
            Some(Ok((part, delta))) => Some(write(events.on_delta(part, delta))),
            Some(Err(failure)) => {
                *failed = true;
                Some(vec![json(Event::default().event("error"), &failure.body())])
            }
            None => {
                let mut last = write(events.on_end());
                last.push(Event::default().data("[DONE]"));
                Some(last)
            }
        };
        std::future::ready(frames)
    });
    frames.flat_map(stream::iter)
}

fn write<T: Serialize>(bodies: Vec<T>) -> Vec<Event> {
    let frame = |body| json(Event::default(), &body);
    bodies.into_iter().map(frame).collect()
}

fn json<T: Serialize>(event: Event, body: &T) -> Event {
    event
        .json_data(body)
        .expect("bodies have string keys, so they are JSON")
}
