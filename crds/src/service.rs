//! The Service in front of the routers.

use crate::rules;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[x_kube(
    validation = rules::CLASS_NEEDS_LOAD_BALANCER.cel(),
    validation = rules::SERVICE_NAMES_ARE_NOT_OURS.cel(),
)]
#[serde(rename_all = "camelCase")]
pub struct RouterServiceSpec {
    /// `ClusterIP` within the cluster, `NodePort` on each node, `LoadBalancer` by the cloud's.
    #[serde(rename = "type", default)]
    pub kind: ServiceType,
    /// Which load balancer, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub load_balancer_class: Option<String>,
    /// Annotations to add, such as a cloud's for its load balancer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "texts")]
    pub annotations: BTreeMap<String, String>,
    /// Labels to add; names below `pdserve.io/` are the operator's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "texts")]
    pub labels: BTreeMap<String, String>,
}

#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServiceType {
    #[default]
    #[serde(rename = "ClusterIP")]
    ClusterIp,
    NodePort,
    LoadBalancer,
}

// === impl RouterServiceSpec ===

impl RouterServiceSpec {
    /// Whether nothing was asked for.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Names with their texts, as many as have room beside our own.
fn texts(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": {
            "description": "The text of one.",
            "type": "string",
            "maxLength": 4096,
        },
    })
}

// === impl ServiceType ===

impl ServiceType {
    /// The word of a Service's `spec.type`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClusterIp => "ClusterIP",
            Self::NodePort => "NodePort",
            Self::LoadBalancer => "LoadBalancer",
        }
    }
}
