//! What this cluster cannot carry out, or does not let everybody have.

use crate::controller::build::config::BuildConfig;
use crate::controller::build::gang::GangScheduler;
use crate::controller::site::GangApis;
use pd_crds::PdDeploymentSpec;
use pd_crds::field::{FieldError, FieldPath};
use pd_crds::kv::{KvSpec, KvTransport};
use pd_crds::model::{CachePlace, HostPathSource, HuggingFaceSource, ModelSource};
use pd_crds::scheduling::GangScheduling;
use std::path::{Path, PathBuf};

/// All of it, each with the path of its field.
pub(super) fn check(spec: &PdDeploymentSpec, config: &BuildConfig) -> Vec<FieldError> {
    let path = FieldPath::new("spec");
    let source = check_source(
        &spec.model.source,
        config,
        &path.child("model").child("source"),
    );
    let account = spec.engine.service_account_name.as_deref();
    let at = path.child("engine").child("serviceAccountName");
    let account = account.and_then(|name| check_account(name, config, &at));
    let kv = check_kv(&spec.kv, config, &path.child("kv"));
    let gang = check_gang(spec, config, &path.child("scheduling").child("gang"));
    let all = source.into_iter().chain(account).chain(kv).chain(gang);
    all.collect()
}

/// A scheduler that is asked for by name must be there.
fn check_gang(
    spec: &PdDeploymentSpec,
    config: &BuildConfig,
    path: &FieldPath,
) -> Option<FieldError> {
    let apis = &config.site.gangs;
    let asked = spec.scheduling.gang;
    let (api, remedy) = match asked {
        GangScheduling::Auto | GangScheduling::None => return None,
        GangScheduling::Kubernetes => (
            GangApis::KUBERNETES,
            "turn its feature gates on (GenericWorkload and GangScheduling)",
        ),
        GangScheduling::Coscheduling => (GangApis::COSCHEDULING.0, "install scheduler-plugins"),
        GangScheduling::Volcano => (GangApis::VOLCANO.0, "install Volcano"),
        GangScheduling::Kueue => {
            return apis.kueue.is_none().then(|| {
                path.error(format!(
                    "this cluster serves no Workload of {}, so no quota would ever be given; install Kueue with its \
                     integration pod and restart the operator, or set Auto",
                    GangApis::KUEUE
                ))
            });
        }
    };
    let is_served = GangScheduler::choose(spec, apis).is_some();
    (!is_served).then(|| {
        path.error(format!(
            "this cluster serves no PodGroup of {api}, so no scheduler would place {} gangs; {remedy} and restart the \
             operator, or set Auto",
            asked.as_str()
        ))
    })
}

fn check_kv(kv: &KvSpec, config: &BuildConfig, path: &FieldPath) -> Option<FieldError> {
    let KvSpec {
        page_size: _,
        dtype: _,
        transport,
        node_shared_memory,
    } = kv;
    if *node_shared_memory && config.site.shared_memory.is_none() {
        return Some(path.child("nodeSharedMemory").error(
            "pods of one node share memory through a folder of that node, and none is open to them \
             here; leave it out, or have one opened: helm value sharedMemory.hostPath",
        ));
    }
    (*transport == KvTransport::Shm && !node_shared_memory).then(|| {
        path.child("transport").error(
            "pods share no memory by themselves, so no KV would ever arrive; set nodeSharedMemory \
             and keep both pools on one node, or set auto, tcp or rdma",
        )
    })
}

fn check_source(
    source: &ModelSource,
    config: &BuildConfig,
    path: &FieldPath,
) -> Option<FieldError> {
    let ModelSource {
        host_path,
        pvc: _,
        hugging_face,
        image,
    } = source;
    if let Some(source) = hugging_face {
        let path = path.child("huggingFace").child("cache");
        return check_cache(source, config, &path);
    }
    if let (Some(_), Some(minor)) = (image, config.site.lacks_image_volumes()) {
        return Some(path.child("image").error(format!(
            "image volumes are off in this Kubernetes 1.{minor}, and on from 1.35; put the files on a \
             volume and name that by pvc, or turn the feature gate ImageVolume on and say so to the \
             operator: helm value overrides.imageVolumes"
        )));
    }
    let path = path.child("hostPath").child("path");
    host_path
        .as_ref()
        .and_then(|source| check_host_path(source, config, &path))
}

/// On a cluster a model is fetched to a place that the spec names.
fn check_cache(
    source: &HuggingFaceSource,
    config: &BuildConfig,
    path: &FieldPath,
) -> Option<FieldError> {
    let folder = match source.place() {
        Some(CachePlace::Claim(_)) => return None,
        Some(CachePlace::Nodes(folder)) => folder,
        None => {
            return Some(path.error(
                "it is not said where the model is fetched to; make a PersistentVolumeClaim that \
                 has room for it and that several nodes can mount (ReadWriteMany), and name it in \
                 pvc.claimName, or name a folder of the nodes in hostPath.path",
            ));
        }
    };
    if config.may_raise_privileges || config.site.allows_cache_at(Path::new(folder)) {
        return None;
    }
    let allowed = allowed(folder, "open to fetched models", &config.site.cache_paths);
    Some(path.child("hostPath").child("path").error(format!(
        "{allowed}; use pvc, or have the folder opened: helm value overrides.cachePaths"
    )))
}

/// Why a folder of the nodes is none of those that are open to something.
fn allowed(path: &str, open: &str, folders: &[PathBuf]) -> String {
    let folders: Vec<String> = folders.iter().map(|it| it.display().to_string()).collect();
    match folders.as_slice() {
        [] => format!("nodes' folders are not {open} here"),
        folders => format!(
            "{path} lies in no folder of the nodes that is {open} here ({})",
            folders.join(", ")
        ),
    }
}

/// Every user of the model can read a path of the node, so the one who installed the operator says
/// which.
fn check_host_path(
    HostPathSource { path }: &HostPathSource,
    config: &BuildConfig,
    at: &FieldPath,
) -> Option<FieldError> {
    let place = Path::new(path);
    if !place.is_absolute() {
        return Some(at.error(format!(
            "{path} is relative, and a node has no folder that it could be relative to; give an \
             absolute path, which each node must have"
        )));
    }
    if config.may_raise_privileges || config.site.allows_model_at(place) {
        return None;
    }
    let allowed = allowed(path, "open to models", &config.site.host_paths);
    Some(at.error(format!(
        "{allowed}; use pvc or image, or have the folder opened: helm value overrides.hostPaths"
    )))
}

/// With an account comes what the cluster ties to it, such as a cloud's identity.
fn check_account(name: &str, config: &BuildConfig, path: &FieldPath) -> Option<FieldError> {
    let allowed = &config.site.service_accounts;
    let is_allowed = config.may_raise_privileges || allowed.iter().any(|it| it == name);
    (!is_allowed).then(|| {
        path.error(format!(
            "workers may not run under the account {name}; leave it out, or have it allowed: helm \
             value overrides.serviceAccounts"
        ))
    })
}
