//! The files that containerd, the network plugins and kubelet read.

use crate::certs::Identity;
use crate::kube::image::PAUSE;
use crate::kube::network::{NodeAddress, REGISTRY};
use anyhow::{Context, Result};
use serde_json::json;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

/// Where the names of Services end.
pub(crate) const DOMAIN: &str = "cluster.local";
/// Inside the node's own /run.
pub(super) const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";

/// Writes containerd's configuration and gives its path.
pub(super) fn write_containerd(dir: &Path, plugins: &Path) -> Result<String> {
    let (at, plugins) = (dir.display(), plugins.display());
    let text = format!(
        r#"version = 2
root = "{at}/containerd"
state = "/run/containerd"
[grpc]
address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
path = "{at}/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
# A profile would be loaded into the machine's kernel and stay there.
disable_apparmor = true
# Without CAP_SYS_RESOURCE runc cannot lower a score, and dies of it.
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{plugins}"
conf_dir = "{at}/cni"
[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "{at}/registries"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
"#
    );
    write(&dir.join("containerd.toml"), &text)
}

/// Lets the node pull from a registry beside the control plane, which speaks plain HTTP.
pub(super) fn write_registry(dir: &Path) -> Result<()> {
    let folder = dir.join("registries").join(REGISTRY.to_string());
    fs::create_dir_all(&folder)?;
    let url = format!("http://{REGISTRY}");
    let text =
        format!("server = {url:?}\n[host.{url:?}]\ncapabilities = [\"pull\", \"resolve\"]\n");
    write(&folder.join("hosts.toml"), &text)?;
    Ok(())
}

/// Pods are connected point to point: a bridge would need `br_netfilter` for Services to work between
/// two pods of a node.
pub(super) fn write_cni(dir: &Path, address: NodeAddress) -> Result<()> {
    let folder = dir.join("cni");
    fs::create_dir_all(&folder)?;
    let config = json!({
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {"type": "ptp", "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": address.pods()}]],
                "routes": [{"dst": "0.0.0.0/0"}],
                "dataDir": "/run/cni",
            }},
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    });
    write(&folder.join("10-pods.conflist"), &config.to_string())?;
    Ok(())
}

pub(super) struct Kubelet<'a> {
    pub(super) dir: &'a Path,
    pub(super) cgroup_root: &'a str,
    pub(super) ip: &'a str,
    pub(super) ca: &'a Path,
    pub(super) serving: &'a Identity,
    /// Where pods resolve names.
    pub(super) dns: Option<Ipv4Addr>,
}

// === impl Kubelet ===

impl Kubelet<'_> {
    /// Writes the configuration and gives its path.
    pub(super) fn write(&self) -> Result<String> {
        let Self {
            dir,
            cgroup_root,
            ip,
            ca,
            serving,
            dns,
        } = self;
        // The machine's name server is out of reach.
        let resolv = write(&dir.join("resolv.conf"), "")?;
        let config = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": ip,
            "authentication": {
                "anonymous": {"enabled": false},
                "webhook": {"enabled": true},
                "x509": {"clientCAFile": ca},
            },
            "authorization": {"mode": "Webhook"},
            "clusterDNS": dns.iter().collect::<Vec<_>>(),
            "clusterDomain": DOMAIN,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": cgroup_root,
            "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
            "enforceNodeAllocatable": [],
            // The disk's level is the machine's business.
            "evictionHard": {},
            "imageGCHighThresholdPercent": 100,
            "localStorageCapacityIsolation": false,
            "failCgroupV1": false,
            "failSwapOn": false,
            // The controller manager misses four of these before it calls the node lost.
            "nodeLeaseDurationSeconds": 16,
            "nodeStatusUpdateFrequency": "4s",
            "podLogsDir": dir.join("pod-logs"),
            "readOnlyPort": 0,
            "resolvConf": resolv,
            "serializeImagePulls": false,
            // A changed Secret reaches its pods about as often; by default once in a minute.
            "syncFrequency": "10s",
            "tlsCertFile": serving.cert,
            "tlsPrivateKeyFile": serving.key,
        });
        write(&dir.join("kubelet.json"), &config.to_string())
    }
}

fn write(path: &Path, text: &str) -> Result<String> {
    fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
    Ok(path.display().to_string())
}
