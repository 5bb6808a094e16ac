//! Facts about writes that fail, with an apiserver in memory.

use super::*;
use crate::cluster::context::Context;
use crate::cluster::decide::decide_writes;
use crate::cluster::fake::{FakeApi, create, mk_config, mk_deployment};
use crate::cluster::held_back::HeldBackBy;
use crate::cluster::reconcile::reconcile;
use crate::cluster::snapshot::fixture::{mk_effective, mk_observed, mk_there, mk_with, mk_workers};
use crate::controller::plan::{Leaving, Observed};
use axum::Router;
use http::Method;
use pd_crds::PdDeployment;
use pd_crds::node_disposition::NodeDisposition;
use pd_protocol::labels;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpListener;
use tokio::sync::Barrier;

const PODS: &str = "/api/v1/namespaces/ns/pods";

fn mk_writer<'a>(context: &'a Context, deployment: &'a PdDeployment) -> Writer<'a> {
    Writer {
        context,
        deployment,
        namespace: "ns",
    }
}

/// Carries out what is decided of a snapshot; gives what was written of pods.
async fn written(
    api: &FakeApi,
    context: &Context,
    snapshot: &Snapshot<'_>,
    observed: &Observed,
) -> (Outcome, Vec<String>) {
    for facts in &snapshot.pods {
        let path = format!("{PODS}/{}", facts.pod.name_any());
        api.put(&path, json!(*facts.pod));
    }
    api.take_writes();
    let writer = mk_writer(context, snapshot.deployment());
    let writes = decide_writes(snapshot, observed, None);
    let outcome = write(&writer, None, snapshot, &writes).await;
    let writes = api.take_writes().into_iter();
    let of_pods = writes.filter(|write| write.contains("/pods"));
    (outcome, of_pods.map(|it| it.replace(PODS, "")).collect())
}

#[tokio::test]
async fn no_worker_leaves_while_its_successors_gate_has_not_latched() {
    let (api, mut deployment) = (FakeApi::default(), mk_deployment("a", "ns"));
    let before = mk_effective(&deployment);
    deployment.spec.engine.image = Some("another".to_owned());
    let effective = mk_effective(&deployment);
    let mut workers = mk_workers(&before, 0, true);
    workers.extend(mk_workers(&effective, 1, false));
    let snapshot = mk_with(&effective, workers);
    let observed = mk_observed(&snapshot);
    let admitted = ["PATCH /a-prefill-1-1/status", "PATCH /a-decode-1-1/status"];
    for code in [409, 404] {
        let api = FakeApi::default();
        let context = api.context(mk_config());
        api.refuse(Method::PATCH, &format!("{PODS}/a-prefill-1-1/status"), code);
        let (outcome, writes) = written(&api, &context, &snapshot, &observed).await;
        assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
        assert_eq!(writes, admitted, "{code}");
    }
    let (_, writes) = written(&api, &api.context(mk_config()), &snapshot, &observed).await;
    let left = ["PATCH /a-prefill-0-1", "PATCH /a-decode-0-1"];
    assert_eq!(writes, [admitted, left].concat());
}

#[tokio::test]
async fn an_admission_that_is_refused_keeps_none_that_does_not_depend_on_it_from_leaving() {
    let deployment = mk_deployment("a", "ns");
    let effective = mk_effective(&deployment);
    let mut workers = mk_workers(&effective, 0, false);
    workers.extend((1..4).flat_map(|first| mk_workers(&effective, first, true)));
    let mut snapshot = mk_with(&effective, workers);
    for facts in &mut snapshot.pods {
        // Prefill's gate of 0 has not latched, and decode's has.
        let name = facts.pod.name_any();
        if name == "a-prefill-3-1" {
            facts.disposition = NodeDisposition::Lost;
        }
        if name == "a-prefill-2-1" {
            let mut pod = json!(*facts.pod);
            pod["status"]["conditions"] = json!([]);
            facts.pod = Arc::new(serde_json::from_value(pod).expect("a Pod"));
        }
    }
    snapshot
        .pods
        .retain(|facts| facts.pod.name_any() != "a-decode-0-1");
    let mut observed = mk_observed(&snapshot);
    for pod in &mut observed.pods {
        (pod.ready, pod.admitted) = match pod.name.as_str() {
            "a-prefill-2-1" => (false, false),
            _ => (true, true),
        };
        if pod.name == "a-prefill-3-1" {
            pod.disposition = NodeDisposition::Lost;
        }
    }
    let api = FakeApi::default();
    let context = api.context(mk_config());
    api.refuse(Method::PATCH, &format!("{PODS}/a-prefill-0-1/status"), 403);
    let (_, writes) = written(&api, &context, &snapshot, &observed).await;
    let left = [
        "PATCH /a-prefill-0-1/status",
        "PATCH /a-prefill-3-1",
        "PATCH /a-prefill-2-1",
        "PATCH /a-decode-3-1",
        "PATCH /a-decode-2-1",
    ];
    assert_eq!(writes, left, "a-prefill-1-1 stays");
}

#[tokio::test]
async fn a_worker_on_its_way_out_goes_although_no_pool_can_be_sized() {
    let (api, mut deployment) = (FakeApi::default(), mk_deployment("a", "ns"));
    let before = mk_effective(&deployment);
    deployment.spec.pools.decode.replicas = Some(2);
    let effective = mk_effective(&deployment);
    let mut snapshot = mk_there(&effective, true);
    snapshot.pools = mk_there(&before, true).pools;
    let mut observed = mk_observed(&snapshot);
    observed.pods[0].leaving = Some(Leaving {
        drain_asked: true,
        drained: true,
        ..Leaving::default()
    });
    let scale = "/apis/pdserve.io/v1alpha1/namespaces/ns/pdpools/a-decode/scale";
    api.refuse(Method::PATCH, scale, 403);
    let context = api.context(mk_config());
    let (outcome, writes) = written(&api, &context, &snapshot, &observed).await;
    assert!(!outcome.sized && outcome.failure.is_some());
    assert_eq!(writes, ["DELETE /a-prefill-0-1"]);
}

#[tokio::test]
async fn an_accepted_spec_is_recorded_although_routers_cannot_be_written() {
    let api = FakeApi::default();
    let deployment = mk_deployment("a", "ns");
    create(&api, &deployment);
    let routers = "/apis/apps/v1/namespaces/ns/deployments/a-router";
    api.refuse(Method::PATCH, routers, 403);
    let context = Arc::new(api.context(mk_config()));
    let failed = reconcile(Arc::new(deployment), context).await;
    assert!(failed.is_err());
    let records = api.stored(|object| object["kind"] == "ControllerRevision");
    assert_eq!(records.len(), 1);
}

#[tokio::test]
async fn only_a_worker_that_leaves_has_an_event() {
    for (code, events) in [(None, 1), (Some(409), 0)] {
        let api = FakeApi::default();
        let deployment = mk_deployment("a", "ns");
        let effective = mk_effective(&deployment);
        let mut facts = mk_there(&effective, true).pods.remove(0);
        facts.disposition = NodeDisposition::Lost;
        if let Some(code) = code {
            api.refuse(Method::PATCH, &format!("{PODS}/a-prefill-0-1"), code);
        }
        let context = api.context(mk_config());
        let writer = mk_writer(&context, &deployment);
        let mut outcome = Outcome::default();
        let leave = WorkerWrite::Leave(&facts, HeldBackBy::None);
        write_workers(&writer, None, &[&leave], &mut outcome).await;
        let published = api.stored(|object| object["reason"] == "WorkerReplaced");
        assert_eq!(published.len(), events, "{code:?}");
    }
}

/// Answers a drain once as many are asked as `all` waits for; gives the port before its own.
async fn answer(all: Arc<Barrier>, answered: Arc<AtomicUsize>) -> u16 {
    let app = Router::new().fallback(move || async move {
        all.wait().await;
        answered.fetch_add(1, Ordering::Relaxed);
        r#"{"state": "draining", "in_flight": 1}"#
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(axum::serve(listener, app).into_future());
    port - 1
}

#[tokio::test]
async fn workers_are_asked_to_drain_at_the_same_time() {
    let api = FakeApi::default();
    let deployment = mk_deployment("a", "ns");
    let effective = mk_effective(&deployment);
    let mut workers = mk_workers(&effective, 0, true);
    let all = Arc::new(Barrier::new(workers.len()));
    let answered = Arc::<AtomicUsize>::default();
    for pod in &mut workers {
        let port = answer(Arc::clone(&all), Arc::clone(&answered)).await;
        pod.annotations_mut()
            .insert(labels::FIRST_PORT.to_owned(), port.to_string());
        pod.status.get_or_insert_default().pod_ip = Some("127.0.0.1".to_owned());
    }
    let snapshot = mk_with(&effective, workers);
    let drains: Vec<WorkerWrite> = snapshot.pods.iter().map(WorkerWrite::Drain).collect();
    let drains: Vec<&WorkerWrite> = drains.iter().collect();
    let context = api.context(mk_config());
    let writer = mk_writer(&context, &deployment);
    let admin = Admin::new(String::new());
    write_workers(&writer, Some(&admin), &drains, &mut Outcome::default()).await;
    assert_eq!(answered.load(Ordering::Relaxed), drains.len());
}
