//! Decides whether a dereferenced deployment can be built: the rules of its kind, and what this
//! version of the operator carries out.

mod cluster;

use super::build::config::BuildConfig;
use super::dereference::{Dereferenced, HostModel};
use pd_crds::field::{FieldError, FieldErrors, FieldPath};
use pd_crds::kv::KvTransport;
use pd_crds::model::ModelSource;
use pd_crds::router::RouterSpec;
use pd_crds::{PdDeployment, PdDeploymentSpec};
use pd_protocol::labels;

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
pub(crate) fn for_a_cluster(
    deployment: &PdDeployment,
    config: &BuildConfig,
) -> Result<Valid, FieldErrors> {
    pd_crds::validate(deployment)?;
    FieldErrors::check(cluster::check(&deployment.spec, config))?;
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
    // One from the hub was put in its place.
    if host_path.is_none() {
        errors.push(path.child("model").child("source").error(
            "on this machine only hostPath and huggingFace are carried out; give one of them",
        ));
    }
    errors.extend(check_router(&spec.router, &path.child("router")));
    if spec.kv.transport == KvTransport::Rdma {
        let path = path.child("kv").child("transport");
        errors.push(path.error("rdma is not carried out on this machine; set auto, shm or tcp"));
    }
    if spec.engine.service_account_name.is_some() {
        let path = path.child("engine").child("serviceAccountName");
        errors.push(path.error("there are no accounts on this machine; remove it"));
    }
    if !spec.image_pull_secrets.is_empty() {
        let path = path.child("imagePullSecrets");
        errors.push(path.error("no image is pulled on this machine; remove it"));
    }
    errors
}

fn check_router(router: &RouterSpec, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if router.replicas.is_some_and(|replicas| replicas != 1) {
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
    if !router.service.is_default() {
        errors.push(path.child("service").error(
            "there are no Services on this machine; remove it, and give `pd-operator local` the \
             address by --listen",
        ));
    }
    if router.tls.is_some() {
        errors.push(path.child("tls").error(
            "there are no Secrets on this machine; remove it, or start pd-router yourself with \
             --tls-cert-path and --tls-key-path",
        ));
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
    /// A deployment that passed the rules of its time, even if it breaks today's.
    pub(crate) fn accepted_before(deployment: PdDeployment) -> Self {
        Self(deployment)
    }

    /// The same with the commit that its model's revision was resolved to.
    pub(crate) fn at_commit(mut self, commit: &str) -> Result<Self, FieldErrors> {
        if let Some(source) = &mut self.0.spec.model.source.hugging_face {
            source.revision = Some(commit.to_owned());
        }
        pd_crds::validate(&self.0)?;
        Ok(self)
    }

    pub(crate) fn deployment(&self) -> &PdDeployment {
        &self.0
    }
}

#[cfg(test)]
mod tests;
