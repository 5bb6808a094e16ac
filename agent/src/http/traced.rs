//! A span of OpenTelemetry for each request of the APIs that generate, from its head to the last byte of its answer, with the
//! stages of its rooms below it.

use crate::service::App;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use parking_lot::Mutex;
use pd_http::AnswerBody;
use pd_protocol::BootstrapRoom;
use pd_spans::RequestSpan;
use std::sync::Arc;

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
    let span = spans.serve(route.as_str().to_owned(), request.headers_mut());
    let rooms = Rooms::default();
    let traced = Traced {
        app: Arc::clone(&app),
        span,
        rooms: Arc::clone(&rooms),
    };
    let response = ROOMS.scope(rooms, next.run(request)).await;
    traced.span.answered(response.status());
    response.map(|body| Body::new(AnswerBody::new(body, traced)))
}

/// Notes a room of the request that this task serves.
pub(crate) fn note_room(room: BootstrapRoom) {
    // Where requests are not traced, there is no list.
    let _ = ROOMS.try_with(|rooms| {
        let mut rooms = rooms.lock();
        if rooms.len() < ROOMS_MAX {
            rooms.push(room);
        }
    });
}

// === impl Traced ===

impl Drop for Traced {
    fn drop(&mut self) {
        let Ok(service) = self.app.service() else {
            return;
        };
        let rooms = self.rooms.lock();
        if let Some(first) = rooms.first() {
            self.span.set_room(*first);
        }
        for room in rooms.iter() {
            if let Some(timeline) = service.engine.timeline(*room) {
                self.span.stages(&timeline);
            }
        }
    }
}
