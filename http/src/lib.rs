//! Serves HTTP/1.1 to clients that may be slow, silent or many.
//!
//! Life of a connection: the [`Listener`] gives it out → `connections` finds room for it, if need be at the cost of one
//! that waits for its client → `watched` notes when its client owes something: a handshake, a request, the rest of a
//! head, room for an answer → where there is a key of the deployment, the client proves by TLS that it has one → a
//! request goes to the [`Router`], its body with a deadline between pieces → a sweep each second ends connections whose
//! client owes for too long.
//!
//! Deadlines are swept and not timed one by one, so that a request arms no timer but for a body that is waited for.

mod body;
mod body_budget;
mod connections;
mod descriptors;
mod metrics;
mod read_body;
mod refused;
mod serve;
mod watched;

pub use body::AnswerBody;
pub use body_budget::{BodyBudget, BodyShare};
pub use connections::Limits;
pub use descriptors::{connections_for, raise_limit};
pub use metrics::{ConnectionMetrics, ListenerMetrics};
pub use read_body::{BodyError, WholeBody, read_body};
pub use refused::discard;
pub use serve::{ClientPeer, serve, serve_peers};

#[cfg(doc)]
use axum::{Router, serve::Listener};
