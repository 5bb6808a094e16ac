//! Decides whether a dereferenced deployment can be built: the rules of its kind, and what this
//! version of the operator carries out.

use super::dereference::{Dereferenced, HostModel};
use pd_crds::engine::EngineKind;
use pd_crds::field::{FieldError, FieldErrors, FieldPath};
use pd_crds::kv::{KvDtype, KvSpec, KvTransport};
use pd_crds::model::ModelSource;
use pd_crds::pool::PoolSpec;
use pd_crds::router::RouterSpec;
use pd_crds::{PdDeployment, PdDeploymentSpec};
use pd_protocol::labels;
use std::path::Path;

/// A deployment that passed validation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Valid(PdDeployment);

/// Checks a deployment that is to run on this machine.
pub(crate) fn for_this_machine(dereferenced: Dereferenced) -> Result<Valid, FieldErrors> {
    let Dereferenced {
        deployment,
        host_model,
    } = dereferenced;
    pd_crds::validate(&deployment)?;
    let mut errors = check_carried_out(&deployment.spec);
    errors.extend(check_host_model(host_model.as_ref()));
    FieldErrors::check(errors)?;
    Ok(Valid(deployment))
}

/// Checks a deployment that is to run on a cluster.
pub(crate) fn for_a_cluster(deployment: &PdDeployment) -> Result<Valid, FieldErrors> {
    pd_crds::validate(deployment)?;
    let spec = &deployment.spec;
    let mut errors = Vec::new();
    if let Some(source) = &spec.model.source.host_path
        && !Path::new(&source.path).is_absolute()
    {
        errors.push(
            FieldPath::new("spec.model.source.hostPath.path").error(format!(
                "{} is relative, and a node has no folder that it could be relative to; give an \
             absolute path, which each node must have",
                source.path
            )),
        );
    }
    FieldErrors::check(errors)?;
    Ok(Valid(deployment.clone()))
}

fn check_carried_out(spec: &PdDeploymentSpec) -> Vec<FieldError> {
    let path = FieldPath::new("spec");
    let mut errors = Vec::new();
    let ModelSource {
        host_path,
        pvc: _,
        hugging_face: _,
        image: _,
    } = &spec.model.source;
    if host_path.is_none() {
        errors.push(path.child("model").child("source").error(
            "on this machine only hostPath is carried out; fetch the model and give its path",
        ));
    }
    if spec.engine.kind == EngineKind::Sglang {
        let path = path.child("engine").child("kind");
        errors.push(path.error("on this machine only pdserve is carried out"));
    }
    errors.extend(check_router(&spec.router, &path.child("router")));
    let pools = path.child("pools");
    errors.extend(check_one_rank(&spec.pools.prefill, &pools.child("prefill")));
    errors.extend(check_one_rank(&spec.pools.decode, &pools.child("decode")));
    errors.extend(check_kv(&spec.kv, &path.child("kv")));
    errors
}

fn check_router(router: &RouterSpec, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if router.replicas != 1 {
        errors.push(path.child("replicas").error(
            "on this machine one router serves, because it stands for the Service; set it to 1",
        ));
    }
    if router.api_keys.is_some() {
        errors.push(path.child("apiKeys").error(format!(
            "there are no Secrets on this machine; remove it and set {} for pd-operator, which \
             its processes inherit",
            labels::ENV_API_KEY
        )));
    }
    if router.tls.is_some() {
        errors.push(path.child("tls").error(
            "there are no Secrets on this machine; remove it, or start pd-router yourself with \
             --tls-cert-path and --tls-key-path",
        ));
    }
    errors
}

fn check_one_rank(pool: &PoolSpec, path: &FieldPath) -> Vec<FieldError> {
    let sizes = [("tp", pool.tp), ("pp", pool.pp), ("dp", pool.dp)];
    let beyond = sizes.into_iter().filter(|(_, size)| *size != 1);
    let error = |(name, size)| {
        path.child(name).error(format!(
            "{size} ranks are not carried out yet, a worker is one; set it to 1 and raise replicas"
        ))
    };
    beyond.map(error).collect()
}

/// What the engine's CPU backend and its transports know.
fn check_kv(kv: &KvSpec, path: &FieldPath) -> Vec<FieldError> {
    let KvSpec {
        page_size: _,
        dtype,
        transport,
    } = kv;
    let mut errors = Vec::new();
    if !matches!(dtype, KvDtype::Auto | KvDtype::Float32 | KvDtype::Bfloat16) {
        errors.push(path.child("dtype").error(format!(
            "{} is not carried out on this machine; set auto, float32 or bfloat16",
            dtype.flag()
        )));
    }
    if *transport == KvTransport::Rdma {
        errors.push(
            path.child("transport")
                .error("rdma is not carried out on this machine; set auto, shm or tcp"),
        );
    }
    errors
}

fn check_host_model(model: Option<&HostModel>) -> Option<FieldError> {
    let HostModel { path, exists } = model?;
    let at = FieldPath::new("spec.model.source.hostPath.path");
    (!exists).then(|| {
        at.error(format!(
            "no file or folder at {}; fetch the model (`make model` for the example's) or correct \
             the path, which is relative to the YAML's folder",
            path.display()
        ))
    })
}

// === impl Valid ===

impl Valid {
    /// A deployment that passed the rules of its time, whatever those of today say.
    pub(crate) fn accepted_before(deployment: PdDeployment) -> Self {
        Self(deployment)
    }

    pub(crate) fn deployment(&self) -> &PdDeployment {
        &self.0
    }
}

#[cfg(test)]
mod tests;
