//! Inference engine: scheduler, queues, caches, models, sampler. A request enters through
//! [`engine::EngineHandle::submit`], which checks it on the caller's thread, and leaves as a stream
//! of tokens. In between it belongs to the scheduler (`event_loop`), one OS thread; the backend and
//! the KV transfer have threads of their own. Nothing here opens a socket or knows HTTP.

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
