//! How a model's files get into a worker's container.

use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, ImageVolumeSource, PersistentVolumeClaimVolumeSource, Volume, VolumeMount,
};
use pd_crds::model::ModelSource;

/// Where a model lies in the container that comes from a volume of its own.
const MOUNT: &str = "/model";
pub(super) const VOLUME: &str = "model";

/// What the engine is given as the model. A `hostPath` is mounted where it lies on the node, so that a
/// path means the same inside.
pub(super) fn path(source: &ModelSource) -> String {
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
        (None, Some(hugging_face)) => hugging_face.repo.clone(),
        (None, None) => inside(
            pvc.as_ref()
                .and_then(|pvc| pvc.path.as_ref())
                .or(image.as_ref().and_then(|image| image.path.as_ref())),
        ),
    }
}

/// The volume, and where it is mounted; nothing where the engine downloads the files.
pub(super) fn volume(source: &ModelSource) -> Option<(Volume, VolumeMount)> {
    let ModelSource {
        host_path,
        pvc,
        hugging_face,
        image,
    } = source;
    if hugging_face.is_some() {
        return None;
    }
    let volume = Volume {
        name: VOLUME.to_owned(),
        host_path: host_path.as_ref().map(|source| HostPathVolumeSource {
            path: source.path.clone(),
            type_: None,
        }),
        persistent_volume_claim: pvc.as_ref().map(|pvc| PersistentVolumeClaimVolumeSource {
            claim_name: pvc.claim_name.clone(),
            read_only: Some(true),
        }),
        image: image.as_ref().map(|image| ImageVolumeSource {
            reference: Some(image.reference.clone()),
            pull_policy: None,
        }),
        ..Volume::default()
    };
    let host_path = host_path.as_ref().map(|source| source.path.clone());
    let mount = VolumeMount {
        name: VOLUME.to_owned(),
        mount_path: host_path.unwrap_or_else(|| MOUNT.to_owned()),
        read_only: Some(true),
        ..VolumeMount::default()
    };
    Some((volume, mount))
}
