//! An apiserver in memory for tests: it stores what it is sent, under its path, and counts requests.

use super::context::Context;
use super::index::Index;
use super::memory::Memories;
use super::metrics::Metrics;
use super::reconcile::reconcile;
use crate::controller::build::config::BuildConfig;
use crate::controller::site::Site;
use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use kube::core::Status;
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector::ObjectRef;
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use pd_crds::pod::Pod;
use pd_crds::{PdDeployment, PdPool, document};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use tower::service_fn;

/// What it has stored and what it was asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct FakeApi {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Value>,
    requests: Vec<(Method, String)>,
    /// What is refused, with the code.
    refused: Vec<(Method, String, u16)>,
    version: u64,
}

// === impl FakeApi ===

impl FakeApi {
    /// A context that knows nothing yet and writes here.
    pub(crate) fn context(&self, config: BuildConfig) -> Context {
        let client = self.client();
        Context {
            recorder: Recorder::new(client.clone(), Reporter::from("pd-operator")),
            config,
            metrics: Arc::new(Metrics::new()),
            index: Index::default(),
            memories: Memories::default(),
            sharing: tokio::sync::Mutex::default(),
            client,
        }
    }

    /// Paths of the stored objects of which something holds.
    pub(crate) fn stored(&self, holds: impl Fn(&Value) -> bool) -> Vec<String> {
        let state = self.state.lock();
        let found = state.objects.iter().filter(|(_, object)| holds(object));
        found.map(|(path, _)| path.clone()).collect()
    }

    /// The object that is stored under a path; null if there is none.
    pub(crate) fn find(&self, path: &str) -> Value {
        let state = self.state.lock();
        state.objects.get(path).cloned().unwrap_or_default()
    }

    /// What was written since this was last called.
    pub(crate) fn take_writes(&self) -> Vec<String> {
        let requests = std::mem::take(&mut self.state.lock().requests);
        let writes = requests.into_iter().filter(|(it, _)| it != Method::GET);
        writes
            .map(|(method, path)| format!("{method} {path}"))
            .collect()
    }

    pub(crate) fn put(&self, path: &str, object: Value) {
        self.state.lock().objects.insert(path.to_owned(), object);
    }

    pub(crate) fn remove(&self, path: &str) {
        self.state.lock().objects.remove(path);
    }

    /// Refuses every request of a method to a path from now on.
    pub(crate) fn refuse(&self, method: Method, path: &str, code: u16) {
        let refused = (method, path.to_owned(), code);
        self.state.lock().refused.push(refused);
    }

    /// Refuses nothing any more.
    pub(crate) fn permit_all(&self) {
        self.state.lock().refused.clear();
    }

    /// Brings a deployment's pods into the index, as their watch would.
    pub(crate) fn report_pods(&self, context: &Context, deployment: &PdDeployment) {
        let key = ObjectRef::from_obj(deployment);
        for pod in context.index.pods.of(&key) {
            context.index.pods.take(&key, &pod.name_any());
        }
        for path in self.stored(|object| object["kind"] == "Pod") {
            let pod: Pod = serde_json::from_value(self.find(&path)).expect("a Pod");
            context.index.pods.put(&key, &pod.metadata.clone(), pod);
        }
    }

    /// Brings a deployment's pools into the index, as their watch would.
    pub(crate) fn report_pools(&self, context: &Context, deployment: &PdDeployment) {
        let key = ObjectRef::from_obj(deployment);
        for path in self.stored(|object| object["kind"] == "PDPool") {
            let pool: PdPool = serde_json::from_value(self.find(&path)).expect("a PDPool");
            context.index.pools.put(&key, &pool.metadata.clone(), pool);
        }
    }

    fn client(&self) -> Client {
        let fake = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let fake = fake.clone();
            async move {
                let (parts, body) = request.into_parts();
                let bytes = body.collect_bytes().await.expect("a whole body");
                let body = serde_json::from_slice(&bytes).unwrap_or_default();
                let (status, body) = fake.answer(&parts.method, parts.uri.path(), body);
                let mut response = Response::new(Body::from(body.to_string().into_bytes()));
                *response.status_mut() = status;
                Ok::<_, Infallible>(response)
            }
        });
        Client::new(service, "ns")
    }

    fn answer(&self, method: &Method, path: &str, body: Value) -> (StatusCode, Value) {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.requests.push((method.clone(), path.to_owned()));
        state.version += 1;
        let is_it = |(of, at, _): &&(Method, String, u16)| of == method && at == path;
        if let Some((_, _, code)) = state.refused.iter().find(is_it) {
            let reason = match code {
                404 => "NotFound",
                409 => "Conflict",
                _ => "Refused",
            };
            return refusal(reason, *code);
        }
        let whole = path.trim_end_matches("/status").trim_end_matches("/scale");
        let at = match *method {
            Method::POST => format!("{path}/{}", body["metadata"]["name"].as_str().unwrap_or("")),
            _ => whole.to_owned(),
        };
        let stored = state.objects.get(&at).cloned();
        let answer = match (method.as_str(), stored) {
            ("POST", Some(_)) => return refusal("AlreadyExists", 409),
            ("GET" | "DELETE", None) => return refusal("NotFound", 404),
            ("GET", Some(stored)) => return (StatusCode::OK, stored),
            ("DELETE", Some(stored)) => {
                state.objects.remove(&at);
                return (StatusCode::OK, stored);
            }
            (_, Some(mut stored)) if path.ends_with("/scale") => {
                merge(&mut stored, body);
                stored["metadata"]["resourceVersion"] = json!(state.version.to_string());
                let scale = json!({
                    "apiVersion": "autoscaling/v1",
                    "kind": "Scale",
                    "metadata": stored["metadata"],
                    "spec": {"replicas": stored["spec"]["replicas"]},
                });
                state.objects.insert(at, stored);
                return (StatusCode::OK, scale);
            }
            ("PUT", Some(stored)) => {
                let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
                if version(&body) != version(&stored) {
                    return refusal("Conflict", 409);
                }
                body
            }
            (_, Some(mut stored)) => {
                merge(&mut stored, body);
                stored
            }
            (_, None) => body,
        };
        let mut answer = answer;
        answer["metadata"]["resourceVersion"] = json!(state.version.to_string());
        if answer["metadata"]["uid"].is_null() {
            answer["metadata"]["uid"] = json!(format!("uid-{}", state.version));
        }
        state.objects.insert(at, answer.clone());
        (StatusCode::OK, answer)
    }
}

/// A merge patch. Source: RFC 7396.
fn merge(stored: &mut Value, patch: Value) {
    if !stored.is_object() || !patch.is_object() {
        *stored = patch;
        return;
    }
    for (name, value) in patch.as_object().into_iter().flatten() {
        merge(&mut stored[name], value.clone());
    }
}

fn refusal(reason: &str, code: u16) -> (StatusCode, Value) {
    let status = Status::failure("refused", reason).with_code(code);
    let code = StatusCode::from_u16(code).expect("a code");
    (code, json!(status))
}

/// A cluster where nodes' folders are open.
pub(crate) fn mk_config() -> BuildConfig {
    BuildConfig {
        image: "pdserve:test".to_owned(),
        discovery: true,
        site: Site {
            host_paths: vec!["/".into()],
            ..Site::default()
        },
        ..BuildConfig::default()
    }
}

/// A deployment of one worker each and two routers.
pub(crate) fn mk_deployment(name: &str, namespace: &str) -> PdDeployment {
    let text = format!(
        "apiVersion: pdserve.io/v1alpha1
kind: PDDeployment
metadata: {{name: {name}, namespace: {namespace}, uid: uid-of-{name}, resourceVersion: '1', generation: 1}}
spec:
  model: {{source: {{hostPath: {{path: /m.gguf}}}}}}
  pools: {{prefill: {{replicas: 1}}, decode: {{replicas: 1}}}}
  router: {{replicas: 2}}
"
    );
    document::parse(&text).unwrap()
}

pub(crate) fn create(api: &FakeApi, deployment: &PdDeployment) {
    let (name, namespace) = (deployment.name_any(), deployment.namespace().unwrap());
    let path = format!("/apis/pdserve.io/v1alpha1/namespaces/{namespace}/pddeployments/{name}");
    api.put(&path, json!(deployment));
}

/// Reconciles a deployment once, as if its watch had just reported it.
pub(crate) async fn reconciled(api: &FakeApi, context: &Arc<Context>, deployment: &PdDeployment) {
    create(api, deployment);
    let reconcile = reconcile(Arc::new(deployment.clone()), Arc::clone(context));
    reconcile.await.unwrap_or_else(|error| panic!("{error}"));
}
