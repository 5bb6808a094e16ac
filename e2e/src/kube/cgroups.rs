//! The cgroups of a cluster: one folder in each v1 controller, or one in the unified v2 tree. Kubelet
//! keeps its pods' below, a folder per node.

use anyhow::{Context, Result};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/fs/cgroup";
/// What kubelet wants to hand out in a v2 tree.
const V2_CONTROLLERS: &[&str] = &["cpu", "cpuset", "io", "memory", "pids"];

/// The cluster's folder, below each controller's root.
fn folder(id: &str) -> String {
    format!("pdserve-kube-{id}")
}

/// What kubelet calls the root of its node's pods.
pub(super) fn node_root(id: &str, node: &str) -> String {
    format!("/{}/{node}", folder(id))
}

/// Makes the folder of `node` in every controller.
///
/// # Errors
/// When a controller refuses.
pub(super) fn make(id: &str, node: &str) -> Result<()> {
    for controller in controllers()? {
        let cluster = controller.join(folder(id));
        for path in [&cluster, &cluster.join(node)] {
            enable_controllers(path.parent().unwrap_or(&controller))?;
            if !path.is_dir() {
                fs::create_dir(path).with_context(|| format!("make {}", path.display()))?;
                inherit_cpuset(path)?;
            }
        }
        enable_controllers(&cluster.join(node))?;
    }
    Ok(())
}

/// Removes what is left of the cluster; processes in it must have ended.
///
/// # Errors
/// When a folder is busy.
pub(super) fn remove(id: &str) -> Result<()> {
    for controller in controllers()? {
        remove_tree(&controller.join(folder(id)))?;
    }
    Ok(())
}

fn remove_tree(path: &Path) -> Result<()> {
    if !path.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(path).with_context(|| format!("remove {}", path.display()))
}

/// Each v1 controller's own tree (with `name=systemd` and a hybrid's `unified`), or the v2 tree alone.
/// Links such as `cpu -> cpu,cpuacct` would name a tree twice.
fn controllers() -> Result<Vec<PathBuf>> {
    let root = Path::new(ROOT);
    if is_v2(root) {
        return Ok(vec![root.to_owned()]);
    }
    let entries = fs::read_dir(root).with_context(|| format!("read {ROOT}"))?;
    let entries: Vec<fs::DirEntry> = entries.collect::<io::Result<_>>()?;
    let folders = entries
        .iter()
        .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
    let trees = folders
        .map(fs::DirEntry::path)
        .filter(|p| p.join("cgroup.procs").is_file());
    Ok(trees.collect())
}

fn is_v2(path: &Path) -> bool {
    path.join("cgroup.controllers").is_file()
}

/// A v2 folder hands its controllers to its children on request only.
fn enable_controllers(path: &Path) -> Result<()> {
    let Ok(available) = fs::read_to_string(path.join("cgroup.controllers")) else {
        return Ok(());
    };
    for controller in V2_CONTROLLERS {
        if available.split_whitespace().any(|have| have == *controller) {
            fs::write(
                path.join("cgroup.subtree_control"),
                format!("+{controller}"),
            )
            .with_context(|| format!("hand {controller} on in {}", path.display()))?;
        }
    }
    Ok(())
}

/// A new v1 cpuset is empty, and nothing can run in it until it is filled in.
fn inherit_cpuset(path: &Path) -> Result<()> {
    let Some(parent) = path.parent() else {
        return Ok(());
    };
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let own = path.join(file);
        if own.is_file() && !is_v2(path) {
            let inherited = fs::read_to_string(parent.join(file))?;
            fs::write(&own, inherited.trim_end())
                .with_context(|| format!("write {}", own.display()))?;
        }
    }
    Ok(())
}
