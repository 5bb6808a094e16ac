//! The key that routers present to workers of an engine which knows no peers: those admit no one else to their HTTP API.

use super::engines::{self, Engine};
use super::pod::secret_env;
use k8s_openapi::api::core::v1::EnvVar;
use kube::ResourceExt;
use pd_crds::{PdDeployment, PdDeploymentSpec};
use pd_protocol::labels::ENV_WORKER_API_KEY;

pub(crate) const WORKER_SECRET_KEY: &str = "key";

/// How an engine is given the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakesKey {
    /// It has none: its peers know each other otherwise.
    No,
    /// By a flag, on which kubelet puts the variable's value.
    Flag(&'static str),
    Variable(&'static str),
}

/// Secret with the key.
pub(crate) fn worker_secret(deployment: &PdDeployment) -> String {
    format!("{}-worker-key", deployment.name_any())
}

/// Whether a deployment's workers ask for a key.
pub(crate) fn asks_for_key(spec: &PdDeploymentSpec) -> bool {
    engines::of(spec.engine.kind).takes_key != TakesKey::No
}

/// The key in a router's environment.
pub(super) fn router_env(deployment: &PdDeployment) -> Option<EnvVar> {
    asks_for_key(&deployment.spec).then(|| key_env(ENV_WORKER_API_KEY, deployment))
}

/// The key in a worker's environment.
pub(super) fn engine_env(engine: &Engine, deployment: &PdDeployment) -> Option<EnvVar> {
    match engine.takes_key {
        TakesKey::No => None,
        TakesKey::Flag(_) => Some(key_env(ENV_WORKER_API_KEY, deployment)),
        TakesKey::Variable(name) => Some(key_env(name, deployment)),
    }
}

/// A flag whose value is the key, without naming it.
pub(super) fn flag_value() -> String {
    format!("$({ENV_WORKER_API_KEY})")
}

fn key_env(name: &str, deployment: &PdDeployment) -> EnvVar {
    secret_env(name, worker_secret(deployment), WORKER_SECRET_KEY)
}
