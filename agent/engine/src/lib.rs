//! Inference engine: scheduler, queues, caches, models, sampler. A request enters through
//! [`engine::EngineHandle::submit`] and leaves as a stream of tokens; in between, everything runs
//! on one OS thread, opens no socket and knows no HTTP.

mod batch;
mod disaggregation;
pub mod engine;
mod event_loop;
mod kvcache;
pub mod metrics;
pub mod model;
mod model_runner;
mod req;
mod resources;
pub mod sample;
mod schedule;
pub mod text;
pub mod timeline;
pub mod weights;
