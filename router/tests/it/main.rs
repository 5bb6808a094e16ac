//! The router over real sockets, between a client and mock workers of this process.

#![allow(
    clippy::unwrap_used,
    reason = "the lint's exemption for tests does not see their helper functions"
)]

mod access;
mod admin;
mod bad_input;
mod cancel;
mod client;
mod dispatch;
mod drain;
mod faults;
mod files;
mod harness;
mod health;
mod limits;
mod logprobs;
mod logs;
mod mock;
mod peers;
mod sequential;
mod waiting;
