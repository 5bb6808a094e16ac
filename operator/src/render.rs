//! What an operator would make of a deployment, as YAML: for reviews, for tests of its arguments, and
//! for those who want to see it before they apply it.

use crate::controller::build::account::Account;
use crate::controller::build::budget::{Mover, build_budgets};
use crate::controller::build::config::BuildConfig;
use crate::controller::build::pool::Pool;
use crate::controller::build::shared::{Shared, build_shared};
use crate::controller::build::slot::Slot;
use crate::controller::build::{self, Resources};
use crate::controller::dereference::{self, DereferenceError, Dereferenced};
use crate::controller::validate;
use kube::ResourceExt;
use pd_crds::PdDeployment;
use pd_crds::field::FieldErrors;
use pd_protocol::ports::WorkerPorts;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The first pod of a pool.
const FIRST: Slot = Slot {
    ordinal: 0,
    incarnation: 1,
};

/// Why there is nothing to render.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RenderError {
    #[error(transparent)]
    Dereference(#[from] DereferenceError),
    #[error("{file} cannot run on a cluster of these flags:\n{source}")]
    Invalid { file: PathBuf, source: FieldErrors },
    #[error("cannot write YAML: {0}")]
    Yaml(#[from] serde_saphyr::SerializeError),
}

/// The objects of the deployment in `file`, after those that its namespace shares, in the order in which they are made; of each pool the first
/// replica's pod, or its leader's.
pub(crate) fn render(
    file: &Path,
    namespace: &str,
    config: &BuildConfig,
) -> Result<String, RenderError> {
    let Dereferenced {
        mut deployment,
        host_model: _,
    } = dereference::file(file, None)?;
    deployment
        .metadata
        .namespace
        .get_or_insert_with(|| namespace.to_owned());
    let invalid = |source| RenderError::Invalid {
        file: file.to_owned(),
        source,
    };
    let valid = validate::for_a_cluster(&deployment, config).map_err(invalid)?;
    let resources = build::build(&valid, config).map_err(invalid)?;
    Ok(documents(&deployment, &resources, config)?.join("---\n"))
}

fn documents(
    deployment: &PdDeployment,
    resources: &Resources,
    config: &BuildConfig,
) -> Result<Vec<String>, serde_saphyr::SerializeError> {
    let Resources {
        prefill,
        decode,
        router,
        service,
        names,
        policy: own_policy,
    } = resources;
    let Shared {
        account: Account { account, binding },
        policies,
    } = build_shared(deployment.namespace().as_deref(), config);
    let mut all = vec![yaml(&account)?, yaml(&binding)?];
    for policy in &policies {
        all.push(yaml(policy)?);
    }
    let is_plain = !deployment.spec.authenticates_peers();
    if let Some(policy) = own_policy.as_ref().filter(|_| is_plain) {
        all.push(yaml(policy)?);
    }
    all.push(yaml(service)?);
    if let Some(names) = names {
        all.push(yaml(names)?);
    }
    all.push(yaml(router)?);
    let pods = [prefill, decode].map(|pool| pool.replicas * pool.nodes);
    let routers = deployment.spec.router.replicas.unwrap_or(1);
    for budget in build_budgets(deployment, pods.iter().sum(), routers, Mover::Operator) {
        all.push(yaml(&budget)?);
    }
    for pool in [prefill, decode] {
        all.extend(pool_documents(deployment, pool)?);
    }
    Ok(all)
}

fn pool_documents(
    deployment: &PdDeployment,
    pool: &Pool,
) -> Result<[String; 2], serde_saphyr::SerializeError> {
    let pod = pool.pod(FIRST, WorkerPorts::WELL_KNOWN);
    Ok([yaml(&pool.object(deployment))?, yaml(&pod)?])
}

fn yaml(object: &impl Serialize) -> Result<String, serde_saphyr::SerializeError> {
    let object = serde_json::to_value(object).expect("Kubernetes objects serialize to JSON");
    serde_saphyr::to_string(&object)
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
