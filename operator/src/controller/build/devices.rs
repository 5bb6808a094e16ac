//! What a worker's container asks of its node's devices, and what follows from it.

use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, SecurityContext, Volume, VolumeMount};
use pd_crds::pool::PoolSpec;

/// Resources of NVIDIA's device plugin begin so: whole GPUs, shared ones (`nvidia.com/gpu.shared`) and
/// slices (`nvidia.com/mig-1g.10gb`).
const NVIDIA: [&str; 2] = ["nvidia.com/gpu", "nvidia.com/mig-"];
/// Those of AMD's, Intel's and Habana's.
const OTHERS: [&str; 3] = ["amd.com/gpu", "gpu.intel.com/", "habana.ai/gaudi"];

const SHARED_MEMORY: &str = "/dev/shm";
const SHARED_MEMORY_VOLUME: &str = "shared-memory";

/// Whether a worker is to compute on a GPU of NVIDIA's.
pub(super) fn has_cuda(pool: &PoolSpec) -> bool {
    limits(pool, &NVIDIA)
}

/// Whether it has a GPU of anybody's, as a resource or by a claim. What a claim brings is not known
/// here, so it counts as one.
fn has_gpu(pool: &PoolSpec) -> bool {
    let claims = pool.resources.as_ref().and_then(|it| it.claims.as_ref());
    has_cuda(pool) || limits(pool, &OTHERS) || claims.is_some_and(|claims| !claims.is_empty())
}

fn limits(pool: &PoolSpec, prefixes: &[&str]) -> bool {
    let limits = pool.resources.as_ref().and_then(|it| it.limits.as_ref());
    let mut limits = limits.into_iter().flatten();
    limits.any(|(name, quantity)| {
        quantity.0 != "0" && prefixes.iter().any(|prefix| name.starts_with(prefix))
    })
}

/// The root file system of a container with a GPU is writable: under CDI, hooks of NVIDIA's container
/// toolkit write links and the linker's cache there, and where they cannot, the container is not
/// created.
pub(super) fn let_hooks_write(context: &mut SecurityContext, pool: &PoolSpec) {
    if has_gpu(pool) {
        context.read_only_root_filesystem = Some(false);
    }
}

/// Ranks of a GPU worker meet in shared memory, and the 64 MB that a container has by itself are too
/// few for them. It counts as the pod's memory, and kubelet ends it at the pod's memory limit or, if
/// there is none, at the node's; a limit of ours would be a guess that breaks replicas of many GPUs.
pub(super) fn shared_memory(pool: &PoolSpec, is_needed: bool) -> Option<(Volume, VolumeMount)> {
    let volume = Volume {
        name: SHARED_MEMORY_VOLUME.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: Some("Memory".to_owned()),
            size_limit: None,
        }),
        ..Volume::default()
    };
    let mount = VolumeMount {
        name: SHARED_MEMORY_VOLUME.to_owned(),
        mount_path: SHARED_MEMORY.to_owned(),
        ..VolumeMount::default()
    };
    (is_needed || has_gpu(pool)).then_some((volume, mount))
}

#[cfg(test)]
mod tests {
    //! Facts about resources.

    use super::*;
    use serde_json::{Value, json};

    fn mk_pool(resources: Value) -> PoolSpec {
        PoolSpec {
            resources: serde_json::from_value(resources).expect("ResourceRequirements"),
            ..PoolSpec::default()
        }
    }

    #[test]
    fn gpus_slices_and_claims_share_memory_and_only_nvidias_are_cudas() {
        for (resources, cuda, gpu) in [
            (json!({"limits": {"nvidia.com/gpu": 1}}), true, true),
            (
                json!({"limits": {"nvidia.com/gpu.shared": "1"}}),
                true,
                true,
            ),
            (json!({"limits": {"nvidia.com/mig-1g.10gb": 1}}), true, true),
            (json!({"limits": {"amd.com/gpu": 1}}), false, true),
            (json!({"limits": {"gpu.intel.com/i915": 1}}), false, true),
            (json!({"claims": [{"name": "gpus"}]}), false, true),
            (json!({"limits": {"nvidia.com/gpu": 0}}), false, false),
            (json!({"limits": {"cpu": 8, "rdma/hca": 1}}), false, false),
            (json!({"requests": {"cpu": 8}}), false, false),
        ] {
            let pool = mk_pool(resources.clone());
            assert_eq!(has_cuda(&pool), cuda, "{resources}");
            assert_eq!(shared_memory(&pool, false).is_some(), gpu, "{resources}");
            let mut context = super::super::pod::security_context();
            let_hooks_write(&mut context, &pool);
            assert_eq!(context.read_only_root_filesystem, Some(!gpu), "{resources}");
        }
    }
}
