//! How workers of one node share KV memory: through a folder of the node that all of a deployment's
//! workers there mount. Each pod has a network namespace of its own, so an abstract socket, by which
//! processes of one machine meet, does not reach from one to another.

use super::config::BuildConfig;
use super::pod::security_context;
use k8s_openapi::api::core::v1::{Container, HostPathVolumeSource, PodSpec, Volume, VolumeMount};
use kube::ResourceExt;
use pd_crds::PdDeployment;

/// Where the folder is in the worker's container; the path of a socket in it must be short.
pub(super) const MOUNT: &str = "/run/pdserve";
/// Names what a namespace's pod security refuses, in the words that status then has.
const VOLUME: &str = "node-shared-memory";

/// Mounts the folder into the worker's container, and opens it before that starts. Nothing where the
/// deployment does not ask for it.
pub(super) fn join(spec: &mut PodSpec, deployment: &PdDeployment, config: &BuildConfig) {
    let folder = config.site.shared_memory.as_ref();
    let Some(folder) = folder.filter(|_| deployment.spec.kv.node_shared_memory) else {
        return;
    };
    // Deployments do not see each other's: who reaches a socket there reaches KV.
    let namespace = deployment.namespace().unwrap_or_default();
    let folder = folder.join(namespace).join(deployment.name_any());
    spec.volumes.get_or_insert_default().push(Volume {
        name: VOLUME.to_owned(),
        host_path: Some(HostPathVolumeSource {
            path: folder.display().to_string(),
            type_: Some("DirectoryOrCreate".to_owned()),
        }),
        ..Volume::default()
    });
    let mount = VolumeMount {
        name: VOLUME.to_owned(),
        mount_path: MOUNT.to_owned(),
        ..VolumeMount::default()
    };
    for container in &mut spec.containers {
        let mounts = container.volume_mounts.get_or_insert_default();
        mounts.push(mount.clone());
    }
    spec.init_containers = Some(vec![opener(config, mount)]);
}

/// Kubelet makes the folder root's, and workers are not root: its owner, without any capability, lets
/// them write there.
fn opener(config: &BuildConfig, mount: VolumeMount) -> Container {
    let mut context = security_context();
    context.run_as_user = Some(0);
    context.run_as_non_root = Some(false);
    Container {
        name: "open-folder".to_owned(),
        image: Some(config.image.clone()),
        command: Some(
            ["pd-operator", "open-folder", MOUNT]
                .map(str::to_owned)
                .to_vec(),
        ),
        security_context: Some(context),
        volume_mounts: Some(vec![mount]),
        termination_message_policy: Some(super::pod::LAST_WORDS.to_owned()),
        ..Container::default()
    }
}
