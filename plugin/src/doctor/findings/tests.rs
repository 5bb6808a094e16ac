//! Facts about what a cluster lacks.

use super::*;
use k8s_openapi::apimachinery::pkg::version::Info;
use serde_json::{Value, json};

fn typed<T: k8s_openapi::serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

fn mk_node(name: &str, resources: Value, labels: Value) -> Node {
    let mut all = json!({"kubernetes.io/arch": "amd64"});
    for (name, value) in labels.as_object().into_iter().flatten() {
        all[name.as_str()] = value.clone();
    }
    typed(json!({
        "metadata": {"name": name, "labels": all}, "status": {"allocatable": resources},
    }))
}

fn mk_deployment(source: Value, gpus: u32) -> PdDeployment {
    let pool = json!({
        "replicas": 2, "tp": gpus,
        "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}},
    });
    typed(json!({
        "apiVersion": "pdserve.io/v1alpha1", "kind": "PDDeployment",
        "metadata": {"name": "qwen3", "namespace": "ml"},
        "spec": {"model": {"source": source}, "pools": {"prefill": pool, "decode": pool}},
    }))
}

/// A cluster that lacks nothing.
fn mk_facts() -> Facts {
    let gpus = json!({"nvidia.com/gpu": "8", "rdma/hca": "8"});
    let driver = json!({"nvidia.com/cuda.driver-version.major": "580"});
    let claim = json!({
        "metadata": {"name": "models", "namespace": "ml"},
        "spec": {"accessModes": ["ReadWriteMany"]}, "status": {"phase": "Bound"},
    });
    let lease = json!({
        "metadata": {"name": "pd-operator", "namespace": "pdserve-system"},
        "spec": {"renewTime": "2026-01-02T12:00:00.000000Z"},
    });
    Facts {
        version: Ok(Info {
            major: "1".to_owned(),
            minor: "36".to_owned(),
            ..Info::default()
        }),
        nodes: Ok(vec![
            mk_node("a", gpus.clone(), driver.clone()),
            mk_node("b", gpus, driver),
        ]),
        leases: Ok(vec![typed(lease)]),
        deployments: Ok(vec![mk_deployment(
            json!({"pvc": {"claimName": "models"}}),
            4,
        )]),
        pods: Ok(Vec::new()),
        claims: Ok(vec![typed(claim)]),
    }
}

fn lines(facts: &Facts) -> String {
    let now = "2026-01-02T12:00:03Z".parse().expect("a time");
    findings(facts, now).iter().map(Finding::line).collect()
}

#[test]
fn of_a_cluster_that_lacks_nothing_nothing_is_bad() {
    insta::assert_snapshot!("lacks-nothing", lines(&mk_facts()));
}

#[test]
fn each_thing_that_is_missing_comes_with_its_remedy() {
    let mut facts = mk_facts();
    facts.version = Ok(Info {
        major: "1".to_owned(),
        minor: "30+".to_owned(),
        ..Info::default()
    });
    facts.leases = Ok(Vec::new());
    let silent = json!({"feature.node.kubernetes.io/pci-10de.present": "true"});
    facts.nodes = Ok(vec![mk_node("a", json!({}), silent)]);
    facts.claims = Ok(Vec::new());
    let waiting = json!({"reason": "ImagePullBackOff", "message": "no such image"});
    facts.pods = Ok(vec![typed(json!({
        "metadata": {"name": "qwen3-decode-0-1", "namespace": "ml"},
        "status": {"containerStatuses": [{"name": "agent", "state": {"waiting": waiting}}]},
    }))]);
    insta::assert_snapshot!("lacks-all", lines(&facts));
}

#[test]
fn what_serves_worse_than_it_could_is_a_note() {
    let mut facts = mk_facts();
    facts.nodes = Ok(vec![mk_node("a", json!({}), json!({}))]);
    facts.deployments = Ok(Vec::new());
    facts.claims = Err("forbidden".to_owned());
    insta::assert_snapshot!("could-be-better", lines(&facts));
    let old = json!({"nvidia.com/cuda.driver-version.major": "535"});
    facts.nodes = Ok(vec![mk_node("a", json!({"nvidia.com/gpu": "1"}), old)]);
    assert!(lines(&facts).contains("BAD   the driver of a is older than 580"));
}
