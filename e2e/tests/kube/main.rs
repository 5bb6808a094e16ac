//! Proofs over a real Kubernetes; `make e2e-kube` builds what they need and runs them.

mod bad_edit;
mod control_plane;
mod dashboards;
mod documents;
mod door;
mod engines;
mod extremes;
mod groups;
mod hostile;
mod hpa;
mod karpenter;
mod killed_owner;
mod left_behind;
mod model;
mod nodes;
mod objects;
mod operator;
mod plugin;
mod refused;
mod release;
mod rotation;
mod scaling;
mod serve;
mod sites;
mod stand;
mod upgrade;
