//! `metrics.k8s.io` for hollow pods: what each uses is its share of what its role is said to use. Like metrics-server it honours
//! label selectors, knows every pod that runs, and the apiserver passes requests on to it.

use anyhow::{Context, Result};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use pd_protocol::labels;
use rustls::ServerConfig;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

const GROUP: &str = "metrics.k8s.io/v1beta1";

/// Thousandths of a CPU, by role, that all its replicas use together.
#[derive(Clone, Default)]
pub(super) struct Usage(Arc<Mutex<BTreeMap<String, u64>>>);

pub(super) struct UsageServer {
    port: u16,
    _tasks: JoinSet<()>,
}

#[derive(Clone)]
struct Known {
    client: Client,
    usage: Usage,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Selection {
    #[serde(default)]
    label_selector: String,
}

/// Connections over TLS.
struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

// === impl Usage ===

impl Usage {
    pub(super) fn set(&self, role: &str, millis: u64) {
        self.0.lock().insert(role.to_owned(), millis);
    }

    fn of(&self, role: &str) -> u64 {
        self.0.lock().get(role).copied().unwrap_or(0)
    }
}

// === impl UsageServer ===

impl UsageServer {
    pub(super) async fn start(client: Client, usage: Usage) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let acceptor = TlsAcceptor::from(Arc::new(tls()?));
        let listener = TlsListener { listener, acceptor };
        let routes = Router::new()
            .route(&format!("/apis/{GROUP}"), get(resources))
            .route(
                &format!("/apis/{GROUP}/namespaces/{{namespace}}/pods"),
                get(pods),
            )
            .with_state(Known { client, usage });
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            axum::serve(listener, routes)
                .await
                .expect("axum's serve does not end");
        });
        Ok(Self {
            port,
            _tasks: tasks,
        })
    }

    /// What makes the apiserver pass requests on.
    pub(super) fn objects(&self) -> [Value; 2] {
        let metadata = json!({"name": "pod-usage", "namespace": "kube-system"});
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        });
        let (group, version) = GROUP.split_once('/').unwrap_or_default();
        let api = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("{version}.{group}")},
            "spec": {
                "group": group, "version": version, "insecureSkipTLSVerify": true,
                "groupPriorityMinimum": 100, "versionPriority": 100,
                "service": {"namespace": "kube-system", "name": "pod-usage", "port": self.port},
            },
        });
        [service, api]
    }
}

fn tls() -> Result<ServerConfig> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der());
    let key = key.map_err(|why| anyhow::anyhow!("{why}"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .context("a certificate that its key fits")
}

// === impl TlsListener ===

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            // A client that breaks off connects again.
            if let Ok((stream, from)) = self.listener.accept().await
                && let Ok(stream) = self.acceptor.accept(stream).await
            {
                return (stream, from);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

async fn resources() -> Json<Value> {
    Json(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP,
        "resources": [{
            "name": "pods", "singularName": "", "namespaced": true, "kind": "PodMetrics",
            "verbs": ["get", "list"],
        }],
    }))
}

async fn pods(
    State(known): State<Known>,
    Path(namespace): Path<String>,
    Query(selection): Query<Selection>,
) -> Response {
    match known.list(&namespace, &selection.label_selector).await {
        Ok(list) => Json(list).into_response(),
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

// === impl Known ===

impl Known {
    async fn list(&self, namespace: &str, selector: &str) -> Result<Value> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let all = api.list(&ListParams::default()).await?.items;
        let chosen = api.list(&ListParams::default().labels(selector)).await?;
        let items = chosen.items.iter().filter(|pod| runs(pod));
        let items: Vec<Value> = items.map(|pod| self.measured(pod, &all)).collect();
        Ok(json!({"kind": "PodMetricsList", "apiVersion": GROUP, "metadata": {}, "items": items}))
    }

    /// Every pod of a replica uses what its leader does.
    fn measured(&self, pod: &Pod, all: &[Pod]) -> Value {
        let role = role(pod);
        let replicas = all.iter().filter(|other| {
            let is_one = !labels::is_follower(other.labels());
            is_one && role_and_stays(other) == Some(role) && runs(other)
        });
        let replicas = u64::try_from(replicas.count()).unwrap_or(u64::MAX).max(1);
        let millis = self.usage.of(role) / replicas;
        let spec = pod.spec.iter();
        let containers = spec.flat_map(|spec| &spec.containers).enumerate();
        let containers = containers.map(|(nr, container)| {
            let millis = if nr == 0 { millis } else { 0 };
            json!({"name": container.name, "usage": {"cpu": format!("{millis}m"), "memory": "1Mi"}})
        });
        json!({
            "metadata": {"name": pod.name_any(), "namespace": pod.namespace(), "labels": pod.labels()},
            "timestamp": Timestamp::now(), "window": "1s",
            "containers": containers.collect::<Vec<_>>(),
        })
    }
}

fn role(pod: &Pod) -> &str {
    let role = pod.labels().get(labels::ROLE);
    role.map_or("", String::as_str)
}

fn role_and_stays(pod: &Pod) -> Option<&str> {
    let leaves = pod.labels().contains_key(labels::LEAVING);
    let goes = pod.metadata.deletion_timestamp.is_some();
    (!leaves && !goes).then(|| role(pod))
}

fn runs(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    phase == Some("Running")
}
