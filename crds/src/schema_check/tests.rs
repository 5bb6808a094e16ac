//! Facts about fields, types and bounds.

use super::*;
use serde_json::json;

fn mk_document(spec: Value) -> Value {
    json!({
        "apiVersion": "pdserve.io/v1alpha1",
        "kind": "PDDeployment",
        "metadata": {"name": "tiny", "labels": {"any": "label"}},
        "spec": spec,
    })
}

fn found(spec: Value) -> Vec<String> {
    check(&mk_document(spec))
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn mk_spec(more: Value) -> Value {
    let mut spec = json!({"model": {"source": {"hostPath": {"path": "m.gguf"}}}, "pools": {}});
    for (name, value) in more.as_object().unwrap() {
        spec[name] = value.clone();
    }
    spec
}

#[test]
fn a_minimal_spec_is_clean() {
    assert_eq!(found(mk_spec(json!({}))), Vec::<String>::new());
}

#[test]
fn a_mistyped_field_is_named_with_the_one_meant() {
    let spec = mk_spec(json!({
        "pools": {"prefil": {}, "decode": {"min_replicas": 1, "replica": 2, "colour": "red"}},
    }));
    insta::assert_snapshot!(found(spec).join("\n"), @r"
    spec.pools.decode.colour: unknown field; known here: args, dp, maxReplicas, minReplicas, nodes, podTemplate, pp, replicas, resources, topology, tp
    spec.pools.decode.min_replicas: unknown field; did you mean minReplicas?
    spec.pools.decode.replica: unknown field; did you mean replicas?
    spec.pools.prefil: unknown field; did you mean prefill?
    ");
}

#[test]
fn wrong_types_say_what_was_expected_and_given() {
    let spec = mk_spec(json!({
        "pools": {"prefill": {"replicas": "two"}, "decode": []},
        "rollout": {"paused": "no", "maxSurge": 1.5},
        "engine": {"args": [{"name": "page", "value": 16}, {"value": "x"}], "kind": null},
    }));
    insta::assert_snapshot!(found(spec).join("\n"), @r"
    spec.engine.args[0].value: expected a string, got a number; quote it to make it a string
    spec.engine.args[1].name: required, but not given
    spec.engine.kind: expected a string, got nothing; remove the field or give it a value
    spec.pools.decode: expected an object, got an array
    spec.pools.prefill.replicas: expected an integer, got a string
    spec.rollout.maxSurge: expected an integer, got a number with a fraction
    spec.rollout.paused: expected a boolean, got a string
    ");
}

#[test]
fn lengths_patterns_and_words_are_checked() {
    let spec = mk_spec(json!({
        "model": {"source": {"huggingFace": {"repo": "no slash"}}, "servedModelName": ""},
        "router": {"policies": {"decode": "fastest"}},
        "engine": {"args": [{"name": "--flag"}]},
    }));
    insta::assert_snapshot!(found(spec).join("\n"), @r#"
    spec.engine.args[0].name: "--flag" does not match ^[a-z][a-z0-9-]*$
    spec.model.servedModelName: has 0 characters, at least 1 are required
    spec.model.source.huggingFace.repo: "no slash" does not match ^[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+$
    spec.router.policies.decode: fastest is not one of random, round_robin, power_of_two, least_loaded
    "#);
}

#[test]
fn pod_templates_are_left_to_the_builder() {
    let spec = mk_spec(json!({
        "pools": {"prefill": {"podTemplate": {"spec": {"anything": {"at": ["all"]}}}}},
    }));
    assert_eq!(found(spec), Vec::<String>::new());
}
