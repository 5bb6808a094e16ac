//! The key that routers present to workers of an engine which knows no peers: those admit no one else to their HTTP API.

use super::engines::{self, Engine};
use super::pod::secret_env;
use super::router;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::EnvVar;
use kube::ResourceExt;
use pd_crds::{PdDeployment, PdDeploymentSpec};
use pd_protocol::labels::{ENV_ADMIN_TOKEN, ENV_WORKER_API_KEY};

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

/// Gives routers the key that their spec does not ask for any more, at the place where it would stand.
pub(crate) fn give_key(routers: &mut Deployment, deployment: &PdDeployment) {
    let template = routers
        .spec
        .as_mut()
        .and_then(|it| it.template.spec.as_mut());
    let mut containers = template.into_iter().flat_map(|it| &mut it.containers);
    let router = containers.find(|it| it.name == router::CONTAINER);
    let Some(env) = router.and_then(|it| it.env.as_mut()) else {
        return;
    };
    if env.iter().all(|it| it.name != ENV_WORKER_API_KEY) {
        let token = env.iter().position(|it| it.name == ENV_ADMIN_TOKEN);
        let at = token.map_or(env.len(), |token| token + 1);
        env.insert(at, key_env(ENV_WORKER_API_KEY, deployment));
    }
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
