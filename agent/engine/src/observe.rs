//! Observation points: hashes of a request's KV and state where it is computed, before it is sent, where it has
//! arrived, and after each step. Two runs of one request can be compared point by point, so that it shows where bits
//! part. Off by default; then nothing is read and nothing is hashed.

mod compare;
mod payload_hash;
mod points;

use std::fmt::Debug;
use std::sync::Arc;

pub use compare::{Comparison, Difference, Place, compare};
pub use payload_hash::PayloadHash;
pub(crate) use payload_hash::PayloadHasher;
pub use points::{Admitted, Observation, ObservedEngine, Payload, Point, RecordedGrammar};

/// Takes what is observed.
pub trait Observer: Debug + Send + Sync {
    /// The engine is about to take requests.
    fn started(&self, engine: ObservedEngine);

    /// On the scheduler's thread, which waits for it.
    fn observe(&self, observation: Observation);
}

/// An engine's observer, if it has one.
pub(crate) type Observing = Option<Arc<dyn Observer>>;
