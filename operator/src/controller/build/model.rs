//! How a model's files get into a worker's container.

use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, ImageVolumeSource, PersistentVolumeClaimVolumeSource, Volume, VolumeMount,
};
use kube::ResourceExt;
use pd_crds::model::{CachePlace, HuggingFaceSource, ModelSource, ModelSpec};
use pd_crds::{PdDeployment, PdDeploymentSpec};
use pd_protocol::weights::Checkpoint;

/// Where a model lies in the container that comes from a volume of its own.
pub(super) const MOUNT: &str = "/model";
pub(super) const VOLUME: &str = "model";

/// What the engine is given as the model.
pub(super) fn path(model: &ModelSpec) -> String {
    let source = source_path(&model.source);
    match &model.weights {
        Some(weights) => format!("{}/{}", source.trim_end_matches('/'), weights.path),
        None => source,
    }
}

/// What every worker is to serve, where the spec changes it on workers that run.
pub(crate) fn checkpoint(spec: &PdDeploymentSpec) -> Option<Checkpoint> {
    let weights = spec.model.weights.as_ref()?;
    Some(Checkpoint {
        model_path: path(&spec.model),
        weight_version: weights.version().to_owned(),
    })
}

/// A `hostPath` is mounted where it lies on the node, so that a path means the same inside.
fn source_path(source: &ModelSource) -> String {
    let ModelSource {
        host_path,
        pvc,
        hugging_face,
        image,
    } = source;
    let inside = |path: Option<&String>| match path {
        Some(path) => format!("{MOUNT}/{path}"),
        None => MOUNT.to_owned(),
    };
    match (host_path, hugging_face) {
        (Some(host_path), _) => host_path.path.clone(),
        (None, Some(source)) => inside(Some(&fetched_path(source))),
        (None, None) => inside(
            pvc.as_ref()
                .and_then(|pvc| pvc.path.as_ref())
                .or(image.as_ref().and_then(|image| image.path.as_ref())),
        ),
    }
}

/// Where a fetch leaves the files on its volume: of a commit, once the branch is resolved.
fn fetched_path(source: &HuggingFaceSource) -> String {
    let folder = format!(
        "models--{}/snapshots/{}",
        source.repo.replace('/', "--"),
        source.revision()
    );
    match &source.file {
        Some(file) => format!("{folder}/{file}"),
        None => folder,
    }
}

/// The folder of the nodes that keeps the models of a deployment: none of another namespace can change what it reads.
fn node_folder(path: &str, deployment: &PdDeployment) -> HostPathVolumeSource {
    let namespace = deployment.namespace().unwrap_or_default();
    HostPathVolumeSource {
        path: format!("{}/{namespace}", path.trim_end_matches('/')),
        type_: Some("DirectoryOrCreate".to_owned()),
    }
}

/// The volume, and where it is mounted.
pub(super) fn volume(deployment: &PdDeployment) -> (Volume, VolumeMount) {
    let ModelSource {
        host_path,
        pvc,
        hugging_face,
        image,
    } = &deployment.spec.model.source;
    let place = hugging_face.as_ref().and_then(HuggingFaceSource::place);
    let (fetched_claim, fetched_folder) = match place {
        Some(CachePlace::Claim(name)) => (Some(name), None),
        Some(CachePlace::Nodes(path)) => (None, Some(node_folder(path, deployment))),
        None => (None, None),
    };
    let claim = pvc.as_ref().map(|pvc| pvc.claim_name.as_str());
    let claim = claim.or(fetched_claim);
    let given_folder = host_path.as_ref().map(|source| HostPathVolumeSource {
        path: source.path.clone(),
        type_: None,
    });
    let volume = Volume {
        name: VOLUME.to_owned(),
        host_path: given_folder.or(fetched_folder),
        persistent_volume_claim: claim.map(|claim_name| PersistentVolumeClaimVolumeSource {
            claim_name: claim_name.to_owned(),
            read_only: Some(true),
        }),
        image: image.as_ref().map(|image| ImageVolumeSource {
            reference: Some(image.reference.clone()),
            pull_policy: None,
        }),
        ..Volume::default()
    };
    let given_path = host_path.as_ref().map(|source| source.path.clone());
    let mount = VolumeMount {
        name: VOLUME.to_owned(),
        mount_path: given_path.unwrap_or_else(|| MOUNT.to_owned()),
        read_only: Some(true),
        ..VolumeMount::default()
    };
    (volume, mount)
}
