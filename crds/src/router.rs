//! The router: how many, where it listens, whom it lets in, how it picks workers, how often it
//! retries.

use crate::limits::LimitsSpec;
use crate::pool::PodTemplate;
use crate::rules;
use crate::service::RouterServiceSpec;
use k8s_openapi::api::core::v1::ResourceRequirements;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where routers that serve TLS expose their metrics, in plain HTTP: a scraper need not trust the
/// authority that clients trust. SGLang's `--prometheus-port`, with its default.
pub const METRICS_PORT: i32 = 29_000;

#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[x_kube(
    validation = rules::KEYS_ARE_NOT_THE_CERTIFICATE.cel(),
    validation = rules::METRICS_PORT_IS_FREE.cel()
)]
#[serde(rename_all = "camelCase")]
pub struct RouterSpec {
    /// Number of routers; more than one for availability. Default: one, and the number is left to
    /// the autoscaler of the Deployment `NAME-router`, such as a HorizontalPodAutoscaler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub replicas: Option<i32>,
    /// Port of the OpenAI API.
    #[serde(default = "port")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// API keys, of which clients must present one as `Authorization: Bearer KEY`. Each entry of the
    /// Secret is a key, named after who holds it; a change is taken in without a restart. Default:
    /// anyone is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_keys: Option<SecretSource>,
    /// Serve HTTPS with the certificate of a Secret of type `kubernetes.io/tls`. A renewed one is
    /// taken in without a restart. Default: plain HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<SecretSource>,
    /// Container image. Default: the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub image: Option<String>,
    /// How a worker is picked, for each pool.
    #[serde(default)]
    pub policies: PoliciesSpec,
    /// Retries on another pair, before the client has received a byte.
    #[serde(default)]
    pub retries: RetriesSpec,
    /// How much each router takes on at once, and how long it works on a request.
    #[serde(default, skip_serializing_if = "LimitsSpec::is_default")]
    pub limits: LimitsSpec,
    /// The Service in front of the routers.
    #[serde(default, skip_serializing_if = "RouterServiceSpec::is_default")]
    pub service: RouterServiceSpec,
    /// Resources of the router's container. Default: requests of 100m CPU and 64Mi memory, and a limit of memory by what it bounds itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::kube_schema::resource_requirements")]
    pub resources: Option<ResourceRequirements>,
    /// Fields of a Pod, merged over those that the operator writes, as in the pools; the router's
    /// container is named `router`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<PodTemplate>,
}

/// A Secret that is mounted whole. The operator never reads it.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[x_kube(validation = rules::SECRET_NAME.cel())]
#[serde(rename_all = "camelCase")]
pub struct SecretSource {
    /// Name of a Secret of the same namespace. Routers do not start before it is there.
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: String,
}

#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PoliciesSpec {
    /// How a prefill worker is picked.
    #[serde(default)]
    pub prefill: Policy,
    /// How a decode worker is picked.
    #[serde(default)]
    pub decode: Policy,
}

/// The words of SGLang's router flag `--policy`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    Random,
    RoundRobin,
    PowerOfTwo,
    #[default]
    LeastLoaded,
}

#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct RetriesSpec {
    /// Further attempts after the first; 0 for none.
    #[serde(default = "max_retries")]
    #[schemars(range(min = 0, max = 10))]
    pub max: i32,
}

// === impl RouterSpec ===

impl Default for RouterSpec {
    fn default() -> Self {
        Self {
            replicas: None,
            port: port(),
            api_keys: None,
            tls: None,
            image: None,
            policies: PoliciesSpec::default(),
            retries: RetriesSpec::default(),
            limits: LimitsSpec::default(),
            service: RouterServiceSpec::default(),
            resources: None,
            pod_template: None,
        }
    }
}

impl RouterSpec {
    /// Scheme of the API's URLs.
    pub fn scheme(&self) -> &'static str {
        match self.tls {
            Some(_) => "https",
            None => "http",
        }
    }

    /// Port where routers expose their metrics, in plain HTTP.
    pub fn metrics_port(&self) -> i32 {
        match self.tls {
            Some(_) => METRICS_PORT,
            None => self.port,
        }
    }
}

impl Default for RetriesSpec {
    fn default() -> Self {
        Self { max: max_retries() }
    }
}

impl Policy {
    /// The word of the router's `--prefill-policy` and `--decode-policy`.
    pub fn flag(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::RoundRobin => "round_robin",
            Self::PowerOfTwo => "power_of_two",
            Self::LeastLoaded => "least_loaded",
        }
    }
}

fn port() -> i32 {
    8000
}

fn max_retries() -> i32 {
    3
}
