//! Runs a deployment as processes on this machine: the pods that a cluster would get, each with a
//! loopback address of its own.
//!
//! Life of a reconcile: read the file if it changed → observe processes and routers → [`plan`](crate::controller::plan) (pure) →
//! [`apply`] → [`status`]. A reconcile assumes nothing about the one before it.

pub(crate) mod address;
pub(crate) mod apply;
pub(crate) mod cache;
pub(crate) mod child;
pub(crate) mod console;
pub(crate) mod fleet;
pub(crate) mod launch;
mod model;
pub(crate) mod observe;
pub(crate) mod probe;
pub(crate) mod process;
pub(crate) mod run;
pub(crate) mod scaler;
pub(crate) mod signals;
pub(crate) mod status;
pub(crate) mod support;
pub(crate) mod target;
pub(crate) mod watch;
mod weights;
