//! Facts about records and about going back to them.

use super::*;
use proptest::option;
use proptest::prelude::*;

fn mk_pool() -> impl Strategy<Value = Value> {
    let sizes = (option::of(0..9), option::of(1..9), option::of(1..9));
    (sizes, 1..4, option::of("[a-z]{1,3}")).prop_map(|((replicas, least, most), tp, arg)| {
        let args: Vec<Value> = arg.iter().map(|name| json!({"name": name})).collect();
        let mut pool = json!({"tp": tp, "args": args});
        for (field, size) in SIZES.into_iter().zip([replicas, least, most]) {
            if let Some(size) = size {
                pool[field] = json!(size);
            }
        }
        pool
    })
}

/// A spec as the apiserver holds it.
fn mk_spec() -> impl Strategy<Value = Value> {
    let engine = option::of("[a-z]{1,3}").prop_map(|image| match image {
        Some(image) => json!({"image": image}),
        None => json!({}),
    });
    let parts = ("/[a-z]{1,3}", engine, prop::sample::select(vec![1, 16, 64]));
    (parts, mk_pool(), mk_pool(), 1..100, any::<bool>()).prop_map(
        |((path, engine, page_size), prefill, decode, timeout, paused)| {
            json!({
                "model": {"source": {"hostPath": {"path": path}}},
                "engine": engine,
                "kv": {"pageSize": page_size},
                "pools": {"prefill": prefill, "decode": decode},
                "drain": {"timeoutSeconds": timeout},
                "rollout": {"paused": paused},
            })
        },
    )
}

fn typed(spec: &Value) -> PdDeploymentSpec {
    serde_json::from_value(spec.clone()).expect("a spec")
}

/// What a record does not hold.
fn rest(spec: &Value) -> Value {
    let sizes = |role: &str| SIZES.map(|size| spec["pools"][role][size].clone());
    json!([
        spec["drain"],
        spec["rollout"],
        sizes("prefill"),
        sizes("decode")
    ])
}

proptest! {
    #[test]
    fn a_restored_spec_is_of_the_record_and_keeps_sizes_and_all_else(
        now in mk_spec(),
        then in mk_spec(),
    ) {
        let record = recorded(&typed(&then));
        let restored = restored(&now, &record).expect("it is a record");
        prop_assert_eq!(recorded(&typed(&restored)), record);
        prop_assert_eq!(rest(&restored), rest(&now));
    }
}

#[test]
fn what_is_no_record_restores_nothing() {
    let spec = json!({"model": {}, "pools": {}});
    assert_eq!(restored(&spec, &json!({})), None);
    assert_eq!(restored(&spec, &json!({"spec": {"model": {}}})), None);
}

#[test]
fn a_branch_that_is_resolved_is_its_commit() {
    let source = json!({"repo": "a/b", "cache": {"pvc": {"claimName": "models"}}});
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let model = |repo: &str, commit: &str| json!({"repo": repo, "revision": "main", "claimName": "models", "commit": commit});
    for (model, expected) in [
        (model("a/b", commit), Some(commit)),
        (model("a/b", ""), None),
        (model("a/other", commit), None),
    ] {
        let object = json!({
            "apiVersion": "pdserve.io/v1alpha1", "kind": "PDDeployment", "metadata": {"name": "a"},
            "spec": {"model": {"source": {"huggingFace": source}}, "pools": {"prefill": {}, "decode": {}}},
            "status": {"model": model},
        });
        let deployment: PdDeployment = serde_json::from_value(object).expect("a deployment");
        let spec = resolved(&deployment);
        let revision = spec.model.source.hugging_face.and_then(|is| is.revision);
        assert_eq!(revision.as_deref(), expected);
    }
}
