//! `kubectl pd bundle`: what support needs to know of a deployment, in one archive, without its secrets.

mod redaction;

use crate::connection::{Cluster, message_of};
use crate::{doctor, explain, status};
use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, ListParams, LogParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, ResourceExt};
use pd_protocol::labels;
use redaction::{redact, redacted_text};
use serde_json::{Value, json};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Kinds of a deployment's objects: group, version, kind.
const KINDS: [(&str, &str, &str); 8] = [
    (labels::GROUP, "v1alpha1", "PDPool"),
    ("", "v1", "Pod"),
    ("", "v1", "Service"),
    ("apps", "v1", "Deployment"),
    ("apps", "v1", "ReplicaSet"),
    ("apps", "v1", "ControllerRevision"),
    ("policy", "v1", "PodDisruptionBudget"),
    ("networking.k8s.io", "v1", "NetworkPolicy"),
];
/// Lines of a log, the last ones.
const LINES: i64 = 20_000;
const LOG_BYTES: i64 = 16 << 20;
const OPERATOR: &str = "app.kubernetes.io/component=operator,app.kubernetes.io/name=pdserve";

/// What goes into the archive, and what could not be read.
struct Bundle {
    folder: String,
    archive: tar::Builder<GzEncoder<File>>,
    unread: Vec<String>,
}

/// Writes the archive; says where it is and what it lacks.
pub(crate) async fn bundle(
    cluster: &Cluster,
    name: &str,
    output: Option<PathBuf>,
) -> Result<String> {
    // It has to be there, so that a typing error makes no empty archive.
    let deployment = cluster.deployment(name).await?;
    let now = Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
    let folder = format!("pdserve-{name}-{now}");
    let path = output.unwrap_or_else(|| format!("{folder}.tar.gz").into());
    let mut bundle = Bundle::create(&path, folder)?;
    bundle.add_json("deployment.json", json!(deployment))?;
    let shown = status::one(cluster, name).await;
    bundle.add_read("status.txt", shown)?;
    let explained = explain::explain(cluster, name).await;
    bundle.add_read("explain.txt", explained)?;
    let examined = doctor::examine(cluster).await;
    bundle.add("doctor.txt", &examined.0)?;
    bundle.add_objects(cluster, name).await?;
    bundle.add_events(cluster).await?;
    bundle.add_nodes(cluster).await?;
    let of_deployment = format!("{}={name}", labels::DEPLOYMENT);
    bundle.add_logs(cluster, &of_deployment, "logs").await?;
    bundle.add_operators(cluster).await?;
    bundle.finish(&path)
}

// === impl Bundle ===

impl Bundle {
    fn create(path: &Path, folder: String) -> Result<Self> {
        let file = File::create_new(path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self {
            folder,
            archive: tar::Builder::new(GzEncoder::new(file, Compression::default())),
            unread: Vec::new(),
        })
    }

    fn add(&mut self, name: &str, text: &str) -> Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(Timestamp::now().as_second().unsigned_abs());
        let path = format!("{}/{name}", self.folder);
        let added = self.archive.append_data(&mut header, path, text.as_bytes());
        added.with_context(|| format!("cannot write {name}"))
    }

    fn add_json(&mut self, name: &str, mut value: Value) -> Result<()> {
        redact(&mut value);
        self.add(name, &serde_json::to_string_pretty(&value)?)
    }

    /// A text, or why there is none.
    fn add_read(&mut self, name: &str, text: Result<String>) -> Result<()> {
        match text {
            Ok(text) => self.add(name, &text),
            Err(why) => {
                self.unread.push(format!("{name}: {why:#}"));
                Ok(())
            }
        }
    }

    async fn add_objects(&mut self, cluster: &Cluster, name: &str) -> Result<()> {
        let params = ListParams::default().labels(&format!("{}={name}", labels::DEPLOYMENT));
        for (group, version, kind) in KINDS {
            let kind_of = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
            let client = cluster.client.clone();
            let api: Api<DynamicObject> =
                Api::namespaced_with(client, &cluster.namespace, &kind_of);
            self.add_list(&format!("objects/{kind}.json"), &api, &params)
                .await?;
        }
        Ok(())
    }

    async fn add_events(&mut self, cluster: &Cluster) -> Result<()> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Event"));
        let client = cluster.client.clone();
        let api: Api<DynamicObject> = Api::namespaced_with(client, &cluster.namespace, &kind);
        self.add_list("events.json", &api, &ListParams::default())
            .await
    }

    async fn add_nodes(&mut self, cluster: &Cluster) -> Result<()> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Node"));
        let api: Api<DynamicObject> = Api::all_with(cluster.client.clone(), &kind);
        self.add_list("nodes.json", &api, &ListParams::default())
            .await
    }

    async fn add_list(
        &mut self,
        name: &str,
        api: &Api<DynamicObject>,
        params: &ListParams,
    ) -> Result<()> {
        match api.list(params).await {
            Ok(list) => self.add_json(name, json!(list.items)),
            Err(error) => {
                self.unread.push(format!("{name}: {}", message_of(&error)));
                Ok(())
            }
        }
    }

    /// What each container of some pods has logged, also before it was started again.
    async fn add_logs(&mut self, cluster: &Cluster, selector: &str, folder: &str) -> Result<()> {
        let api: Api<Pod> = cluster.api();
        let pods = match api.list(&ListParams::default().labels(selector)).await {
            Ok(pods) => pods,
            Err(error) => {
                self.unread
                    .push(format!("{folder}: {}", message_of(&error)));
                return Ok(());
            }
        };
        for pod in pods {
            let spec = pod.spec.iter();
            let containers = spec.flat_map(|spec| {
                let first = spec.init_containers.iter().flatten();
                first.chain(&spec.containers)
            });
            for container in containers {
                for previous in [false, true] {
                    let name = pod.name_any();
                    let params = LogParams {
                        container: Some(container.name.clone()),
                        previous,
                        tail_lines: Some(LINES),
                        limit_bytes: Some(LOG_BYTES),
                        timestamps: true,
                        ..LogParams::default()
                    };
                    let suffix = if previous { ".previous" } else { "" };
                    let file = format!("{folder}/{name}.{}{suffix}.log", container.name);
                    match api.logs(&name, &params).await {
                        Ok(text) => self.add(&file, &redacted_text(&text))?,
                        // Most containers were never started again.
                        Err(_) if previous => {}
                        Err(error) => {
                            self.unread.push(format!("{file}: {}", message_of(&error)));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The logs of operators, which are where their Leases are.
    async fn add_operators(&mut self, cluster: &Cluster) -> Result<()> {
        let api = Api::<Lease>::all(cluster.client.clone());
        let named = ListParams::default().fields(&format!("metadata.name={}", doctor::LEASE));
        match api.list(&named).await {
            Ok(leases) => {
                for lease in leases {
                    let namespace = lease.namespace().unwrap_or_default();
                    let folder = format!("operator/{namespace}");
                    let there = cluster.within(namespace);
                    self.add_logs(&there, OPERATOR, &folder).await?;
                }
            }
            Err(error) => self
                .unread
                .push(format!("operator: {}", message_of(&error))),
        }
        Ok(())
    }

    fn finish(mut self, path: &Path) -> Result<String> {
        let unread = self.unread.join("\n");
        if !unread.is_empty() {
            self.add("unread.txt", &unread)?;
        }
        let written = self.archive.into_inner().and_then(GzEncoder::finish);
        let file = written.context("cannot write the archive")?;
        let bytes = file.metadata().map_or(0, |found| found.len());
        let mut text = format!(
            "{} ({} kB): objects, events and logs. Secrets are not read, and what looks like a key is left out; look into \
             it before you send it.\n",
            path.display(),
            bytes / 1000
        );
        for line in unread.lines() {
            text.push_str(&format!("  not in it: {line}\n"));
        }
        Ok(text)
    }
}
