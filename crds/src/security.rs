//! Security: how the processes of a deployment know each other.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SecuritySpec {
    /// Whom workers take requests and KV from. `Authenticated`: routers and workers of this deployment, which
    /// prove by mutual TLS that they have its key, of the Secret `NAME-peer-keys` that the operator makes;
    /// needs `engine.kind` `pdserve`. `Plain`: all who reach their ports, unencrypted. A change replaces all
    /// pods.
    #[serde(default)]
    pub peers: PeerTrust,
}

#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerTrust {
    #[default]
    Authenticated,
    Plain,
}
