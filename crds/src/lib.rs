//! Kubernetes types of pdserve and the rules that an object must obey; and what pods, nodes and
//! records say of a deployment, for all who read them.
//!
//! The Rust types are the source of truth: `yaml/` is generated from them, and the rules that the
//! apiserver evaluates (OpenAPI bounds, CEL) are the ones that [`validate`](mod@validate) checks
//! on a machine without one.

#![allow(
    unreachable_pub,
    reason = "deriving KubeSchema repeats each struct inside a function"
)]

pub mod document;
pub mod drain;
pub mod engine;
pub mod field;
pub mod gpus;
pub mod json_order;
mod kube_schema;
pub mod kv;
pub mod limits;
pub mod manifest;
pub mod model;
pub mod node_disposition;
pub mod pd_deployment;
pub mod pd_pool;
pub mod pod;
pub mod pool;
pub mod record;
pub mod rollout;
pub mod router;
pub mod rules;
pub mod scaling;
pub mod scheduling;
pub mod schema_check;
pub mod security;
pub mod service;
pub mod slo;
pub mod status;
pub mod stuck;
pub mod tracing;
pub mod validate;

pub use pd_deployment::{PdDeployment, PdDeploymentSpec};
pub use pd_pool::{PdPool, PdPoolSpec, PdPoolStatus, PoolRole};
pub use status::PdDeploymentStatus;
pub use validate::validate;
