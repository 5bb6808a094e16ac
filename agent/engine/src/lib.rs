//! Inference engine: scheduler, queues, caches, models, sampler. A request enters through
//! [`engine::EngineHandle::submit`] and leaves as a stream of tokens; what lies between runs on one
//! OS thread, opens no socket and knows no HTTP.

pub mod engine;
mod kvcache;
pub mod metrics;
pub mod model;
pub mod sample;
pub mod text;
pub mod timeline;
pub mod weights;
