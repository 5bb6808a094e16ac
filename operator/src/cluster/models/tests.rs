//! Facts about models that are fetched.

use super::{is_refused, observe_running};
use crate::cluster::context::Context;
use crate::cluster::fake::{FakeApi, mk_config, mk_deployment, reconciled};
use pd_crds::model::{CacheHostPath, CachePvc, HuggingFaceSource, ModelCache, ModelSource};
use pd_crds::status::ModelStatus;
use pd_crds::{PdDeployment, PdDeploymentStatus};
use pd_hub::{Phase, Report};
use serde_json::{Value, json};
use std::sync::Arc;

const DEPLOYMENT: &str = "/apis/pdserve.io/v1alpha1/namespaces/ns/pddeployments/a";
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const NEXT: &str = "fedcba9876543210fedcba9876543210fedcba98";

fn mk_fetched(revision: &str) -> PdDeployment {
    let mut deployment = mk_deployment("a", "ns");
    deployment.spec.model.source = ModelSource {
        hugging_face: Some(HuggingFaceSource {
            repo: "Qwen/Qwen3-8B".to_owned(),
            revision: Some(revision.to_owned()),
            file: None,
            endpoint: None,
            token_secret_ref: None,
            cache: Some(ModelCache {
                pvc: Some(CachePvc {
                    claim_name: "models".to_owned(),
                    remove_unused_after_days: None,
                }),
                host_path: None,
            }),
        }),
        ..ModelSource::default()
    };
    deployment
}

/// The same, kept by each node.
fn mk_on_nodes() -> PdDeployment {
    let mut deployment = mk_fetched("main");
    let source = deployment.spec.model.source.hugging_face.as_mut();
    source.expect("it is set").cache = Some(ModelCache {
        pvc: None,
        host_path: Some(CacheHostPath {
            path: "/mnt/nvme/".to_owned(),
        }),
    });
    deployment
}

/// Paths of the pods that fetch, and of all others.
fn pods(api: &FakeApi) -> (Vec<String>, Vec<String>) {
    let pods = api.stored(|object| object["kind"] == "Pod");
    pods.into_iter()
        .partition(|path| path.contains("/a-fetch-"))
}

/// Gives the one pod that fetches a status, as its node would.
fn report_fetcher(api: &FakeApi, context: &Context, deployment: &PdDeployment, status: Value) {
    let (fetchers, _) = pods(api);
    let [path] = &fetchers[..] else {
        panic!("{fetchers:?}");
    };
    let mut pod = api.find(path);
    pod["status"] = status;
    api.put(path, pod);
    api.report_pods(context, deployment);
}

fn mk_succeeded(commit: &str) -> Value {
    let words = json!({"commit": commit, "path": "/model", "bytes": 16_400_000_000_i64});
    let ended = json!({"exitCode": 0, "message": words.to_string()});
    json!({
        "phase": "Succeeded",
        "containerStatuses": [{"name": "fetch", "state": {"terminated": ended}}],
    })
}

fn status(api: &FakeApi) -> Value {
    api.find(DEPLOYMENT)["status"].clone()
}

fn condition(api: &FakeApi, name: &str) -> (String, String) {
    let status = status(api);
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    let found = conditions.find(|condition| condition["type"] == name);
    let text = |field: &str| {
        let value = found.and_then(|found| found[field].as_str());
        value.unwrap_or_default().to_owned()
    };
    (text("status"), text("reason"))
}

/// The value of a worker's `--model-path`.
fn model_path(pod: &Value) -> String {
    let args = pod["spec"]["containers"][0]["args"].as_array();
    let mut args = args.into_iter().flatten();
    args.find(|arg| *arg == "--model-path").expect("a model");
    args.next()
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

#[tokio::test]
async fn workers_are_made_once_the_model_is_there() {
    let api = FakeApi::default();
    let context = Arc::new(api.context(mk_config()));
    let deployment = mk_fetched("main");
    reconciled(&api, &context, &deployment).await;
    let (fetchers, workers) = pods(&api);
    assert_eq!((fetchers.len(), workers.len()), (1, 0));
    assert_eq!(status(&api)["summary"], "Fetching: its pod starts");
    assert_eq!(
        condition(&api, "Ready"),
        ("False".into(), "FetchingModel".into())
    );
    assert_eq!(condition(&api, "SpecValid").0, "True");

    // What it waits for is said in the words of the one who knows.
    let why = "Qwen/Qwen3-8B is gated: accept its terms";
    let words = format!("error: {why}");
    let waits = json!({
        "phase": "Running",
        "containerStatuses": [{
            "name": "fetch",
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 2, "message": words}},
        }],
    });
    report_fetcher(&api, &context, &deployment, waits);
    reconciled(&api, &context, &deployment).await;
    let said = status(&api)["summary"].clone();
    assert_eq!(said, format!("Cannot be fetched: {why}"));
    assert_eq!(pods(&api).1.len(), 0);

    report_fetcher(&api, &context, &deployment, mk_succeeded(COMMIT));
    reconciled(&api, &context, &deployment).await;
    let (fetchers, workers) = pods(&api);
    assert_eq!(
        (fetchers.len(), workers.len()),
        (1, 2),
        "its outcome is written first"
    );
    for worker in workers {
        let pod = api.find(&worker);
        let expected = format!("/model/models--Qwen--Qwen3-8B/snapshots/{COMMIT}");
        assert_eq!(model_path(&pod), expected);
        let claim = &pod["spec"]["volumes"][0]["persistentVolumeClaim"];
        assert_eq!(
            (&claim["claimName"], &claim["readOnly"]),
            (&json!("models"), &json!(true))
        );
    }
    assert_eq!(status(&api)["model"]["commit"], COMMIT);
    assert_eq!(condition(&api, "ModelReady").0, "True");

    reconciled(&api, &context, &deployment).await;
    assert_eq!(
        pods(&api).0,
        Vec::<String>::new(),
        "it is of no use any more"
    );
}

#[tokio::test]
async fn where_nodes_keep_the_model_each_worker_fetches_what_its_node_lacks() {
    let api = FakeApi::default();
    let mut config = mk_config();
    config.site.cache_paths = vec!["/mnt/nvme".into()];
    let context = Arc::new(api.context(config));
    let deployment = mk_on_nodes();
    reconciled(&api, &context, &deployment).await;
    let (fetchers, workers) = pods(&api);
    assert_eq!((fetchers.len(), workers.len()), (1, 0));
    let resolver = api.find(&fetchers[0]);
    let args = resolver["spec"]["containers"][0]["args"]
        .as_array()
        .cloned();
    assert!(args.is_some_and(|args| args.contains(&json!("--resolve"))));
    assert_eq!(resolver["spec"]["volumes"], Value::Null);

    report_fetcher(&api, &context, &deployment, mk_succeeded(COMMIT));
    reconciled(&api, &context, &deployment).await;
    let said = "each worker fetches 16 GB to its node, or finds it there";
    assert_eq!(status(&api)["model"]["message"], said);
    assert_eq!(condition(&api, "ModelReady").0, "False");
    let (_, workers) = pods(&api);
    assert_eq!(workers.len(), 2);
    for path in workers {
        let pod = api.find(&path);
        let spec = &pod["spec"];
        let folder = &spec["volumes"][0]["hostPath"];
        assert_eq!(
            folder,
            &json!({"path": "/mnt/nvme/ns", "type": "DirectoryOrCreate"})
        );
        let (fetch, agent) = (&spec["initContainers"][0], &spec["containers"][0]);
        let args = fetch["args"].as_array().cloned().unwrap_or_default();
        let at_commit = [json!("Qwen/Qwen3-8B"), json!("--revision"), json!(COMMIT)];
        assert!(args.starts_with(&at_commit), "{args:?}");
        assert_eq!(fetch["volumeMounts"][0]["readOnly"], Value::Null);
        assert_eq!(fetch["securityContext"]["runAsUser"], 0);
        assert_eq!(fetch["securityContext"]["capabilities"]["drop"][0], "ALL");
        assert_eq!(agent["volumeMounts"][0]["readOnly"], true);
        assert_ne!(agent["securityContext"]["runAsUser"], 0);
        let snapshot = format!("/model/models--Qwen--Qwen3-8B/snapshots/{COMMIT}");
        assert_eq!(model_path(&pod), snapshot);
    }
}

#[tokio::test]
async fn what_serves_stays_until_the_next_model_is_there() {
    let api = FakeApi::default();
    let context = Arc::new(api.context(mk_config()));
    let mut deployment = mk_fetched("main");
    reconciled(&api, &context, &deployment).await;
    report_fetcher(&api, &context, &deployment, mk_succeeded(COMMIT));
    reconciled(&api, &context, &deployment).await;
    let revision = status(&api)["revision"]["update"].clone();
    reconciled(&api, &context, &deployment).await;

    deployment = mk_fetched("v2");
    deployment.metadata.generation = Some(2);
    deployment.metadata.resource_version = Some("2".to_owned());
    reconciled(&api, &context, &deployment).await;
    let (fetchers, workers) = pods(&api);
    assert_eq!((fetchers.len(), workers.len()), (1, 2));
    assert_eq!(status(&api)["revision"]["update"], revision);
    assert_eq!(
        condition(&api, "ModelReady"),
        ("False".into(), "FetchingModel".into())
    );
    assert_eq!(
        condition(&api, "Reconciling"),
        ("True".into(), "FetchingModel".into())
    );

    report_fetcher(&api, &context, &deployment, mk_succeeded(NEXT));
    reconciled(&api, &context, &deployment).await;
    assert_ne!(status(&api)["revision"]["update"], revision);
    assert_eq!(status(&api)["model"]["commit"], NEXT);
}

#[tokio::test]
async fn a_clean_up_leaves_what_deployments_have_and_can_go_back_to() {
    const OLD: &str = "1111111111111111111111111111111111111111";
    const OLDEST: &str = "2222222222222222222222222222222222222222";
    let api = FakeApi::default();
    let context = Arc::new(api.context(mk_config()));
    let mut other = mk_fetched(NEXT);
    other.metadata.name = Some("b".to_owned());
    other.status = Some(PdDeploymentStatus {
        model: Some(ModelStatus {
            repo: "Qwen/Qwen3-4B".to_owned(),
            commit: COMMIT.to_owned(),
            ..ModelStatus::default()
        }),
        ..PdDeploymentStatus::default()
    });
    let list = |kind: &str, items: Value| json!({"apiVersion": "v1", "kind": kind, "metadata": {}, "items": items});
    let deployments = list("PDDeploymentList", json!([other, mk_fetched("main")]));
    let path = DEPLOYMENT.strip_suffix("/a").expect("a path");
    api.put(path, deployments);
    let model = |revision: &str| json!({"source": {"huggingFace": {"repo": "Qwen/Qwen3-8B", "revision": revision}}});
    let accepted = json!({"model": model(OLDEST)}).to_string();
    let record = json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 1,
        "metadata": {"name": "a-1", "annotations": {"pdserve.io/accepted-spec": accepted}},
        "data": {"spec": {"model": model(OLD)}},
    });
    let records = list("ControllerRevisionList", json!([record]));
    api.put("/apis/apps/v1/namespaces/ns/controllerrevisions", records);

    let mut deployment = mk_fetched("main");
    let source = deployment.spec.model.source.hugging_face.as_mut();
    let cache = source.and_then(|source| source.cache.as_mut());
    let claim = cache.and_then(|cache| cache.pvc.as_mut());
    claim.expect("a claim").remove_unused_after_days = Some(30);
    reconciled(&api, &context, &deployment).await;
    let (fetchers, _) = pods(&api);
    let pod = api.find(&fetchers[0]);
    let args = pod["spec"]["containers"][0]["args"].as_array().cloned();
    let args = args.unwrap_or_default();
    let from = args
        .iter()
        .position(|arg| arg == "--remove-unused-after-days");
    let expected = [
        "--remove-unused-after-days".to_owned(),
        "30".to_owned(),
        "--keep".to_owned(),
        format!("Qwen/Qwen3-4B@{COMMIT}"),
        "--keep".to_owned(),
        format!("Qwen/Qwen3-8B@{OLD}"),
        "--keep".to_owned(),
        format!("Qwen/Qwen3-8B@{OLDEST}"),
        "--keep".to_owned(),
        format!("Qwen/Qwen3-8B@{NEXT}"),
    ];
    assert_eq!(json!(args[from.expect("a flag")..]), json!(expected));
}

#[tokio::test]
async fn a_pod_that_was_lost_is_made_again() {
    let api = FakeApi::default();
    let context = Arc::new(api.context(mk_config()));
    let deployment = mk_fetched("main");
    reconciled(&api, &context, &deployment).await;
    let uid = |api: &FakeApi| {
        let (fetchers, _) = pods(api);
        let path = fetchers.first().cloned().unwrap_or_default();
        api.find(&path)["metadata"]["uid"].clone()
    };
    let first = uid(&api);
    report_fetcher(&api, &context, &deployment, json!({"phase": "Failed"}));
    reconciled(&api, &context, &deployment).await;
    api.report_pods(&context, &deployment);
    reconciled(&api, &context, &deployment).await;
    assert!(uid(&api).is_string() && uid(&api) != first);
}

#[tokio::test]
async fn a_fetch_takes_the_way_out_that_the_operator_has() {
    let api = FakeApi::default();
    let mut config = mk_config();
    config.proxy = vec![("HTTPS_PROXY".to_owned(), "http://proxy:3128".to_owned())];
    let context = Arc::new(api.context(config));
    reconciled(&api, &context, &mk_fetched("main")).await;
    let (fetchers, _) = pods(&api);
    let pod = api.find(&fetchers[0]);
    let env = pod["spec"]["containers"][0]["env"].as_array().cloned();
    let wanted = json!({"name": "HTTPS_PROXY", "value": "http://proxy:3128"});
    assert!(env.is_some_and(|env| env.contains(&wanted)), "{pod}");
}

#[test]
fn a_refusal_stands_until_the_fetch_gets_further() {
    let source = mk_fetched("main").spec.model.source.hugging_face;
    let mut model = ModelStatus::of(&source.expect("it is set"));
    let silent = "fetching: its pod does not answer how far it is";
    observe_running(None, &mut model);
    assert_eq!((model.message.as_str(), model.refused), (silent, false));

    is_refused(&mut model, &"the hub asks for a token");
    for report in [None, Some(Report::default())] {
        observe_running(report, &mut model);
        let why = "cannot be fetched: the hub asks for a token";
        assert_eq!((model.message.as_str(), model.refused), (why, true));
    }

    let report = Report {
        phase: Phase::Fetching,
        bytes: 250,
        total_bytes: 1000,
        ..Report::default()
    };
    observe_running(Some(report), &mut model);
    assert!(
        model.message.starts_with("fetching: 25 %"),
        "{}",
        model.message
    );
    assert_eq!((model.bytes, model.refused), (250, false));
    // One that stops answering is not forgotten.
    observe_running(None, &mut model);
    assert_eq!(model.bytes, 250);
}
