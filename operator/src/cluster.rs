//! Reconciles the `PDDeployment`s of a cluster.
//!
//! Life of a change: one of the [`watches`] reports it → the deployment it belongs to is [`reconcile`]d. What the
//! [`index`] holds of it is read into a [`snapshot`] → [`observe`] asks its processes → [`decide`] returns what to write
//! → [`write`](mod@write) does so, with the verbs of [`apply`] → [`report`] writes the status. One process writes at a
//! time, the one that holds the [`lease`]: its [`write_fence`] is open.

mod addresses;
pub(crate) mod admin;
pub(crate) mod admin_secret;
mod admin_token;
pub(crate) mod apply;
mod binding;
pub(crate) mod check;
pub(crate) mod children;
pub(crate) mod context;
mod decide;
mod deletion;
pub(crate) mod effective_spec;
pub(crate) mod endpoint;
pub(crate) mod error;
pub(crate) mod facts;
#[cfg(test)]
pub(crate) mod fake;
mod gangs;
mod handover;
mod held_back;
pub(crate) mod history;
pub(crate) mod host_ports;
mod index;
mod kept_models;
pub(crate) mod lease;
mod memory;
pub(crate) mod metrics;
mod models;
mod node_fetches;
pub(crate) mod nodes;
pub(crate) mod observe;
pub(crate) mod peer_keys;
mod probe;
mod queue;
pub(crate) mod reconcile;
pub(crate) mod report;
mod router_template;
pub(crate) mod routers;
pub(crate) mod run;
pub(crate) mod scaling;
mod shared;
mod sizes;
mod snapshot;
pub(crate) mod status;
mod status_inputs;
mod version;
mod vital_tasks;
mod watches;
mod weights;
mod worker_key;
mod workers;
mod write;
pub(crate) mod write_fence;
mod written_statuses;
