//! Inference engine: scheduler, queues, caches, models, sampler. A request enters through
//! [`engine::EngineHandle::submit`], which checks it on the caller's thread, and leaves as a stream
//! of tokens. In between it belongs to the scheduler (`event_loop`), one OS thread; the backend and
//! the KV transfer have threads of their own. Nothing here opens a socket or knows HTTP.

mod active;
mod answer;
mod command;
mod disaggregation;
pub mod engine;
mod event_loop;
pub mod grammar;
mod in_flight;
mod info;
mod kvcache;
mod latch;
pub mod metrics;
mod mode;
pub mod model;
pub mod observe;
mod profile;
mod queues;
mod ranks;
mod recorder;
mod req;
mod request;
mod resources;
pub mod sample;
mod schedule;
mod speculate;
mod step;
pub mod text;
pub mod timeline;
pub mod weights;
