//! Facts about the key of workers that know no peers.

use super::*;
use crate::cluster::context::Context;
use crate::cluster::fake::{FakeApi, mk_config, mk_deployment, reconciled};
use pd_crds::engine::EngineKind;
use pd_crds::security::PeerTrust;
use serde_json::{Value, json};
use std::sync::Arc;

const SECRET: &str = "/api/v1/namespaces/ns/secrets/a-worker-key";

fn mk_sglang() -> PdDeployment {
    let mut deployment = mk_deployment("a", "ns");
    let spec = &mut deployment.spec;
    spec.engine.kind = EngineKind::Sglang;
    spec.engine.image = Some("sglang".to_owned());
    spec.security.peers = PeerTrust::Plain;
    deployment
}

fn known(context: &Context) -> String {
    let memories = &context.memories;
    let key = memories.read("uid-of-a", |memory| memory.worker_key.clone());
    key.flatten().expect("the key is known").text
}

fn age(context: &Context) {
    context.memories.update("uid-of-a", |memory| {
        let key = memory.worker_key.as_mut().expect("the key is known");
        key.read = key.read.checked_sub(READ_AGAIN).expect("an old machine");
    });
}

#[tokio::test]
async fn a_key_is_made_once_and_comes_back_as_it_was() {
    let api = FakeApi::default();
    let context = Arc::new(api.context(mk_config()));
    let deployment = mk_sglang();
    reconciled(&api, &context, &deployment).await;
    let secret = api.find(SECRET);
    assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], "uid-of-a");
    // A kubelet would keep it for new pods when it is gone.
    assert!(secret["immutable"].is_null(), "{secret}");
    let key = known(&context);
    assert_eq!(key.len(), 2 * KEY_BYTES);
    api.remove(SECRET);
    age(&context);
    reconciled(&api, &context, &deployment).await;
    assert_eq!(api.find(SECRET)["data"], secret["data"]);

    let other = Arc::new(api.context(mk_config()));
    api.report_pools(&other, &deployment);
    reconciled(&api, &other, &deployment).await;
    assert_eq!(known(&other), key, "another operator reads it");
}

#[tokio::test]
async fn routers_and_workers_are_given_it_by_name() {
    let api = FakeApi::default();
    let context = Arc::new(api.context(mk_config()));
    reconciled(&api, &context, &mk_sglang()).await;
    let key = known(&context);
    let prefill = api.find("/api/v1/namespaces/ns/pods/a-prefill-0-1");
    let routers = api.find("/apis/apps/v1/namespaces/ns/deployments/a-router");
    for pod in [&prefill["spec"], &routers["spec"]["template"]["spec"]] {
        let env = pod["containers"][0]["env"].as_array().expect("variables");
        let is_it = |it: &&Value| it["name"] == "PDSERVE_WORKER_API_KEY";
        let from = &env.iter().find(is_it).expect("the key")["valueFrom"]["secretKeyRef"];
        assert_eq!(*from, json!({"name": "a-worker-key", "key": "key"}));
        assert!(!pod.to_string().contains(&key), "the key itself");
    }
    let args = prefill["spec"]["containers"][0]["args"].to_string();
    let given = "\"--api-key\",\"$(PDSERVE_WORKER_API_KEY)\"";
    assert!(args.contains(given), "{args}");
}

#[tokio::test]
async fn routers_hold_it_as_long_as_a_worker_asks_for_it() {
    let api = FakeApi::default();
    let context = Arc::new(api.context(mk_config()));
    let mut deployment = mk_sglang();
    reconciled(&api, &context, &deployment).await;
    api.report_pods(&context, &deployment);
    api.report_pools(&context, &deployment);
    deployment.spec.engine.kind = EngineKind::Pdserve;
    deployment.metadata.generation = Some(2);
    reconciled(&api, &context, &deployment).await;
    let env = || {
        let routers = api.find("/apis/apps/v1/namespaces/ns/deployments/a-router");
        routers["spec"]["template"]["spec"]["containers"][0]["env"].to_string()
    };
    assert!(
        env().contains("a-worker-key"),
        "workers of SGLang still run"
    );
}

#[tokio::test]
async fn an_engine_whose_peers_know_each_other_has_none() {
    let api = FakeApi::default();
    let context = Arc::new(api.context(mk_config()));
    reconciled(&api, &context, &mk_deployment("a", "ns")).await;
    assert_eq!(
        api.stored(|it| it.to_string().contains("worker-key")),
        [""; 0]
    );
}

#[tokio::test]
async fn another_owners_secret_is_neither_read_nor_replaced() {
    let api = FakeApi::default();
    let context = Arc::new(api.context(mk_config()));
    let theirs = json!({"metadata": {"name": "a-worker-key", "uid": "theirs"}});
    api.put(SECRET, theirs.clone());
    let deployment = mk_sglang();
    crate::cluster::fake::create(&api, &deployment);
    let failed = crate::cluster::reconcile::reconcile(Arc::new(deployment), context).await;
    let error = failed.expect_err("the key lacks").to_string();
    assert!(error.contains("a-worker-key"), "{error}");
    assert_eq!(api.find(SECRET)["metadata"], theirs["metadata"]);
}
