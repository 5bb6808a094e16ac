//! The agent as a process, driven over its sockets, with a tiny random checkpoint.

#![allow(
    clippy::unwrap_used,
    reason = "clippy knows tests only by their attribute, not the helpers beside them"
)]

mod admin;
mod agent;
mod calls;
mod chat;
mod client;
mod completions;
mod constrained;
mod disaggregation;
mod ends;
mod generate;
mod gpus;
mod kv_probe;
mod logs;
mod model_files;
mod peers;
mod refusals;
mod responses;
mod start;
mod stops;
mod tokenize;
mod weights;
