//! A whole Kubernetes on this machine, without a registry: tools built from Go modules, a control plane
//! in seconds, and nodes in namespaces of their own. What starts it can be killed in any way; nothing
//! of it stays.

pub mod audit;
mod cgroups;
pub mod cluster;
pub mod control_plane;
pub mod daemon;
pub mod forward;
pub mod guard;
pub mod hollow;
pub mod host;
pub mod image;
pub mod kubeconfig;
pub mod ledger;
pub mod machine;
mod mark;
pub mod network;
pub mod node;
pub mod port;
pub mod teardown;
pub mod tools;
pub mod versions;
