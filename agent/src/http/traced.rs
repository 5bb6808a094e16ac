//! A span of OpenTelemetry for each request of the APIs that generate, from its head to the last byte of its answer, with the
//! stages of its rooms below it.

use crate::service::App;
use axum::body::{Body, Bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use pd_protocol::BootstrapRoom;
use pd_spans::RequestSpan;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Rooms of one request whose stages are sent.
const ROOMS_MAX: usize = 64;

tokio::task_local! {
    /// The rooms of the request that this task serves.
    static ROOMS: Rooms;
}

type Rooms = Arc<Mutex<Vec<BootstrapRoom>>>;

/// A request's span until its answer is gone.
struct Traced {
    app: Arc<App>,
    span: RequestSpan,
    rooms: Rooms,
}

/// An answer that ends a request's span with itself.
struct TracedBody {
    body: Body,
    _traced: Traced,
}

/// Begins the span, if requests are traced.
pub(crate) async fn trace(
    State(app): State<Arc<App>>,
    route: MatchedPath,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(spans) = &app.spans else {
        return next.run(request).await;
    };
    let span = spans.serve(name(route.as_str()), request.headers_mut());
    let rooms = Rooms::default();
    let traced = Traced {
        app: Arc::clone(&app),
        span,
        rooms: Arc::clone(&rooms),
    };
    let response = ROOMS.scope(rooms, next.run(request)).await;
    traced.span.answered(response.status());
    response.map(|body| {
        Body::new(TracedBody {
            body,
            _traced: traced,
        })
    })
}

/// The request that this task serves has this room.
pub(crate) fn has_room(room: BootstrapRoom) {
    // Requests are not traced.
    let _ = ROOMS.try_with(|rooms| {
        let mut rooms = rooms.lock();
        if rooms.len() < ROOMS_MAX {
            rooms.push(room);
        }
    });
}

fn name(route: &str) -> &'static str {
    match route {
        "/v1/chat/completions" => "/v1/chat/completions",
        "/v1/completions" => "/v1/completions",
        "/v1/responses" => "/v1/responses",
        "/generate" => "/generate",
        _ => "generate",
    }
}

// === impl Traced ===

impl Drop for Traced {
    fn drop(&mut self) {
        let Ok(service) = self.app.service() else {
            return;
        };
        for room in self.rooms.lock().iter() {
            let number = i64::try_from(room.get()).unwrap_or(i64::MAX);
            self.span.set("pdserve.room", number);
            if let Some(timeline) = service.engine.timeline(*room) {
                self.span.stages(&timeline);
            }
        }
    }
}

// === impl TracedBody ===

impl HttpBody for TracedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
