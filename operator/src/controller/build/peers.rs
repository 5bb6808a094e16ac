//! How the processes of a deployment know each other: by keys of a file that all of them are given. On a cluster a Secret
//! has them, mounted whole so that changes arrive.

use super::access::{mount_path, mounted_secret};
use super::args::Args;
use super::config::BuildConfig;
use k8s_openapi::api::core::v1::{Probe, Volume, VolumeMount};
use kube::ResourceExt;
use pd_crds::{PdDeployment, PdDeploymentSpec};

/// Name of the volume.
const PEERS: &str = "peers";
/// Key of the Secret that [`peer_secret`] names: the text of the key file.
pub(crate) const PEER_SECRET_KEY: &str = "keys";

/// Secret with the keys of a deployment's processes.
pub(crate) fn peer_secret(deployment: &PdDeployment) -> String {
    format!("{}-peer-keys", deployment.name_any())
}

/// Scheme of a worker's HTTP API.
pub(super) fn scheme(spec: &PdDeploymentSpec) -> &'static str {
    if spec.authenticates_peers() {
        "https"
    } else {
        "http"
    }
}

pub(super) fn add_flag(args: &mut Args, spec: &PdDeploymentSpec, config: &BuildConfig) {
    if spec.authenticates_peers() {
        let here = config.peer_key_file.as_ref();
        let mounted = || format!("{}/{PEER_SECRET_KEY}", mount_path(PEERS));
        let file = here.map_or_else(mounted, |file| file.display().to_string());
        args.flag("peer-key-file", file);
    }
}

/// The Secret's volume, and where it is mounted; nothing where the file lies on this machine.
pub(super) fn volume(
    deployment: &PdDeployment,
    config: &BuildConfig,
) -> Option<(Volume, VolumeMount)> {
    let mounts = deployment.spec.authenticates_peers() && config.peer_key_file.is_none();
    mounts.then(|| mounted_secret(PEERS, &peer_secret(deployment)))
}

/// A probe of a worker's HTTP API, in the scheme that it speaks. A prober has no key, and takes any certificate.
pub(super) fn probe_api(mut probe: Probe, spec: &PdDeploymentSpec) -> Probe {
    if let Some(get) = &mut probe.http_get {
        get.scheme = spec.authenticates_peers().then(|| "HTTPS".to_owned());
    }
    probe
}
