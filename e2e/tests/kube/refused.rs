//! Specs that the apiserver must refuse: the same table that the checks in Rust are held against.

use anyhow::{Result, ensure};
use kube::CustomResourceExt;
use pd_crds::PdDeployment;
use pd_e2e::binaries::workspace;
use pd_e2e::kube::cluster::{Cluster, Spec};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A spec that is taken, and that every case spoils in one place.
fn mk_deployment() -> Value {
    json!({
        "apiVersion": "pdserve.io/v1alpha1",
        "kind": "PDDeployment",
        "metadata": {"name": "tiny"},
        "spec": {
            "model": {"source": {"hostPath": {"path": "/m.gguf"}}},
            "engine": {}, "kv": {}, "router": {"policies": {}}, "rollout": {},
            "security": {},
            "autoscaling": {"budget": {}},
            "pools": {"prefill": {"replicas": 1}, "decode": {"replicas": 1}},
        },
    })
}

/// Puts a value where a JSON pointer leads; its last step may be new.
fn set(object: &mut Value, pointer: &str, value: &Value) {
    let (parent, field) = pointer
        .rsplit_once('/')
        .expect("pointers begin with a slash");
    let parent = object.pointer_mut(parent).expect("the path is there");
    parent[field] = value.clone();
}

/// All messages of rules in a schema.
fn messages(schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            let rules = fields.get("x-kubernetes-validations");
            let rules = rules.and_then(Value::as_array).into_iter().flatten();
            found.extend(rules.filter_map(|rule| rule["message"].as_str().map(str::to_owned)));
            fields.values().for_each(|value| messages(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| messages(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[tokio::test]
async fn the_apiserver_refuses_what_the_rules_refuse_in_the_same_words() -> Result<()> {
    let cluster = Cluster::start(Spec::control_plane()).await?;
    let file = |path: &str| workspace().join(path).display().to_string();
    cluster.kubectl(&["apply", "--server-side", "-f", &file("crds/yaml")])?;
    cluster.kubectl(&["wait", "--for=condition=Established", "crd", "--all"])?;
    let path = cluster.dir().join("case.json").display().to_string();
    let create = |object: &Value| {
        std::fs::write(&path, object.to_string())?;
        cluster.kubectl(&["create", "--validate=strict", "-f", &path])
    };
    create(&mk_deployment())?;
    cluster.kubectl(&["delete", "pdd", "tiny"])?;

    let mut rules = BTreeSet::new();
    messages(&serde_json::to_value(PdDeployment::crd())?, &mut rules);
    let mut unseen = rules.clone();
    let table = std::fs::read_to_string(file("crds/golden/refused.json"))?;
    let cases: Vec<Value> = serde_json::from_str(&table)?;
    for case in &cases {
        let mut object = mk_deployment();
        for (pointer, value) in case["set"].as_object().into_iter().flatten() {
            set(&mut object, pointer, value);
        }
        let Err(refusal) = create(&object) else {
            panic!("taken: {case}");
        };
        let refusal = format!("{refusal:#}");
        let says = case["says"].as_str().unwrap_or_default();
        // What Kubernetes itself refuses, it does not hold against our rules any more.
        let is_checked = !refusal.contains("some validation rules were not checked");
        if rules.contains(says) && is_checked {
            ensure!(refusal.contains(says), "{case} is refused with {refusal}");
            unseen.remove(says);
        }
        eprintln!(
            "{}\n    {}",
            case["set"],
            refusal.trim_start_matches("kubectl create --validate=strict -f ")
        );
    }
    eprintln!("{} cases refused, {} rules", cases.len(), rules.len());
    ensure!(unseen.is_empty(), "no case breaks these rules: {unseen:#?}");
    cluster.stop()
}
