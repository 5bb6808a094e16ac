//! Tracing: where spans of requests go, and of how many.

use crate::rules;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[x_kube(validation = rules::COLLECTOR.cel())]
#[serde(rename_all = "camelCase")]
pub struct TracingSpec {
    /// Collector of OpenTelemetry that gets a span of every traced request from routers and from workers of `engine.kind`
    /// `pdserve`, by OTLP over plain HTTP, such as `http://otel-collector:4318`; without a path at `/v1/traces`. A
    /// change replaces these pods.
    #[schemars(length(min = 1, max = 512))]
    pub otlp_endpoint: String,
    /// Of a million requests whose client sends no `traceparent`, so many are traced; all if absent. Clients that
    /// send one decide themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub sampling_rate_per_million: Option<i32>,
}
