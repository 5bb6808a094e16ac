//! A hub in the cluster, which serves folders of this machine as repositories, and a volume that both nodes mount.

use super::Stand;
use anyhow::{Context, Result};
use pd_e2e::binaries::binary;
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// For `endpoint`.
pub(crate) const ENDPOINT: &str = "http://10.96.77.77";
/// The claim of the volume.
pub(crate) const CLAIM: &str = "models";

/// What the hub serves and how.
pub(crate) struct Hub {
    /// A folder for what is served and for the volume.
    root: TempDir,
    /// Repositories as the server's flags name them.
    pub(crate) repos: Vec<String>,
    /// Folders of this machine that the hub reads.
    pub(crate) folders: Vec<PathBuf>,
    pub(crate) token: Option<&'static str>,
    pub(crate) bytes_per_second: u32,
}

// === impl Hub ===

impl Hub {
    pub(crate) fn new(bytes_per_second: u32) -> Result<Self> {
        let root = tempfile::tempdir()?;
        fs::set_permissions(root.path(), Permissions::from_mode(0o755))?;
        let cache = root.path().join("cache");
        fs::create_dir(&cache)?;
        // A volume of this kind is not given to a pod's group.
        fs::set_permissions(&cache, Permissions::from_mode(0o777))?;
        let program = binary("pd-hub-server");
        let programs = program.parent().context("a folder")?;
        Ok(Self {
            folders: vec![root.path().to_owned(), programs.to_owned()],
            root,
            repos: Vec::new(),
            token: None,
            bytes_per_second,
        })
    }

    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    /// Starts it, and makes the volume and its claim.
    pub(crate) fn apply(&self, stand: &Stand) -> Result<()> {
        stand.apply(&self.pod())?;
        stand.apply(&json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "hub"},
            "spec": {
                "selector": {"app": "hub"}, "ports": [{"port": 80}],
                "clusterIP": ENDPOINT.trim_start_matches("http://"),
            },
        }))?;
        let size = json!({"storage": "1Gi"});
        let modes = json!(["ReadWriteMany"]);
        stand.apply(&json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": CLAIM},
            "spec": {
                "capacity": size, "accessModes": modes, "storageClassName": "",
                "hostPath": {"path": self.root().join("cache")},
            },
        }))?;
        stand.apply(&json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM},
            "spec": {
                "resources": {"requests": size}, "accessModes": modes, "storageClassName": "",
                "volumeName": CLAIM,
            },
        }))?;
        stand.kubectl("wait pod/hub --for=condition=Ready --timeout=60s")?;
        Ok(())
    }

    fn pod(&self) -> Value {
        let program = binary("pd-hub-server").display().to_string();
        let speed = self.bytes_per_second.to_string();
        let flags = ["--listen", "$(POD_IP):80", "--bytes-per-second", &speed];
        let mut command = vec![program];
        command.extend(flags.map(str::to_owned));
        let token = self.token.iter().flat_map(|token| ["--token", *token]);
        command.extend(token.map(str::to_owned));
        let repos = self.repos.iter().flat_map(|repo| ["--repo", repo]);
        command.extend(repos.map(str::to_owned));
        let named = || (0..).zip(&self.folders);
        let volumes = named().map(|(nr, path): (usize, _)| {
            json!({"name": format!("folder-{nr}"), "hostPath": {"path": path}})
        });
        let mounts = named().map(|(nr, path): (usize, _)| {
            json!({"name": format!("folder-{nr}"), "mountPath": path, "readOnly": true})
        });
        let field = json!({"fieldRef": {"fieldPath": "status.podIP"}});
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "hub", "labels": {"app": "hub"}},
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": "node-2"},
                "containers": [{
                    "name": "hub",
                    "image": format!("pdserve:{}", env!("CARGO_PKG_VERSION")),
                    "command": command,
                    "env": [{"name": "POD_IP", "valueFrom": field}],
                    "volumeMounts": mounts.collect::<Vec<Value>>(),
                    "securityContext": {"runAsUser": 0},
                }],
                "volumes": volumes.collect::<Vec<Value>>(),
            },
        })
    }
}

impl Stand {
    /// First bytes that the hub was asked for, of each request.
    pub(crate) fn asked_of_hub(&self) -> Result<Vec<u64>> {
        let log = self.kubectl("logs hub")?;
        let asked = log.lines().filter_map(|line| line.split_once("from="));
        let numbers = asked.filter_map(|(_, rest)| rest.split_whitespace().next()?.parse().ok());
        Ok(numbers.collect())
    }

    /// The Status column of a deployment.
    pub(crate) fn said(&self) -> Result<String> {
        self.kubectl("get pdd smollm2 -o jsonpath={.status.summary}")
    }
}
