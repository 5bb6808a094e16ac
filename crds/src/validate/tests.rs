//! One table of broken objects, through Rust and through CEL.

use super::*;
use crate::manifest::open_api_schema;
use serde_json::{Value, json};

/// An edit that breaks one rule: what is set where, and the path and words of the error.
struct Case {
    set: &'static [(&'static str, Value)],
    rule: CelRule,
    path: &'static str,
}

fn minimal() -> Value {
    json!({
        "apiVersion": "pdserve.io/v1alpha1",
        "kind": "PDDeployment",
        "metadata": {"name": "tiny"},
        "spec": {"model": {"source": {"hostPath": {"path": "/models/tiny"}}}, "pools": {}},
    })
}

/// Sets a value at a JSON pointer, making the objects on the way.
fn set(document: &mut Value, pointer: &str, value: Value) {
    let mut node = document;
    for name in pointer.trim_start_matches('/').split('/') {
        if node.is_null() {
            *node = json!({});
        }
        node = &mut node[name];
    }
    *node = value;
}

fn case(rule: CelRule, path: &'static str, set: &'static [(&'static str, Value)]) -> Case {
    Case { set, rule, path }
}

macro_rules! set {
    ($($pointer:literal = $value:tt),* $(,)?) => {
        Vec::leak(vec![$(($pointer, json!($value))),*])
    };
}

fn cases() -> Vec<Case> {
    let mut cases = single_part_cases();
    cases.extend(pool_cases());
    cases
}

fn single_part_cases() -> Vec<Case> {
    vec![
        case(rules::NAME, "", set!["/metadata/name" = "Tiny"]),
        case(rules::NAME, "", set!["/metadata/name" = "1tiny"]),
        case(rules::NAME, "", set!["/metadata/name" = "tiny-"]),
        case(
            rules::NAME,
            "",
            set!["/metadata/name" = "a2345678901234567890123456789012345678901"],
        ),
        case(
            rules::ONE_SOURCE,
            "spec.model.source",
            set!["/spec/model/source/pvc" = {"claimName": "models"}],
        ),
        case(
            rules::ONE_SOURCE,
            "spec.model.source",
            set!["/spec/model/source" = {}],
        ),
        case(
            rules::SGLANG_NEEDS_IMAGE,
            "spec.engine",
            set!["/spec/engine/kind" = "sglang"],
        ),
        case(
            rules::ARG_NOT_RESERVED,
            "spec.engine.args[0].name",
            set!["/spec/engine/args" = [{"name": "port", "value": "1"}]],
        ),
        case(
            rules::ARG_NOT_RESERVED,
            "spec.pools.decode.args[0].name",
            set!["/spec/pools/decode/args" = [{"name": "tp-size", "value": "2"}]],
        ),
    ]
}

fn pool_cases() -> Vec<Case> {
    vec![
        case(
            rules::FIXED_OR_BOUNDS,
            "spec.pools.prefill",
            set![
                "/spec/pools/prefill" = {"replicas": 1, "minReplicas": 1, "maxReplicas": 2},
            ],
        ),
        case(
            rules::BOUNDS_TOGETHER,
            "spec.pools.decode",
            set!["/spec/pools/decode/maxReplicas" = 2],
        ),
        case(
            rules::MIN_BELOW_MAX,
            "spec.pools.decode",
            set!["/spec/pools/decode" = {"minReplicas": 3, "maxReplicas": 2}],
        ),
        case(
            rules::BOTH_POOLS_OR_NONE,
            "spec",
            set!["/spec/pools/decode/replicas" = 0],
        ),
        case(
            rules::AUTOSCALING_NEEDS_BOUNDS,
            "spec",
            set!["/spec/autoscaling/mode" = "Auto"],
        ),
        case(
            rules::BUDGET_COVERS_MINIMUM,
            "spec",
            set![
                "/spec/pools/prefill" = {"replicas": 2, "tp": 2},
                "/spec/pools/decode" = {"minReplicas": 1, "maxReplicas": 4, "pp": 2},
                "/spec/autoscaling/budget/maxGpus" = 5,
            ],
        ),
        case(
            rules::ROLLOUT_CAN_MOVE,
            "spec.rollout",
            set!["/spec/rollout" = {"maxSurge": 0, "maxUnavailable": 0}],
        ),
    ]
}

fn mk_deployment(edits: &[(&str, Value)]) -> PdDeployment {
    let mut document = minimal();
    for (pointer, value) in edits {
        set(&mut document, pointer, value.clone());
    }
    serde_json::from_value(document).expect("cases break rules, not types")
}

/// The messages of the CEL rules that an object breaks, by the evaluator that kube offers for
/// rules outside an apiserver. Defaults are in place, because the object went through Rust.
fn broken_in_cel(deployment: &PdDeployment) -> Vec<String> {
    let object = serde_json::to_value(deployment).unwrap();
    let result = kube_cel::Validator::new().validate(&open_api_schema(), &object, None);
    result
        .err()
        .into_iter()
        .flatten()
        .map(|error| error.message)
        .collect()
}

#[test]
fn the_minimal_object_breaks_no_rule() {
    let deployment = mk_deployment(&[]);
    assert_eq!(validate(&deployment), Ok(()));
    assert_eq!(broken_in_cel(&deployment), Vec::<String>::new());
}

#[test]
fn each_broken_rule_is_named_once_with_its_path() {
    for Case { set, rule, path } in cases() {
        let found = validate(&mk_deployment(set)).expect_err(rule.message).0;
        let expected = FieldPath::new(path).error(rule.message);
        assert_eq!(found, vec![expected], "{set:?}");
    }
}

#[test]
fn cel_refuses_what_rust_refuses_in_the_same_words() {
    for Case { set, rule, path: _ } in cases() {
        assert_eq!(
            broken_in_cel(&mk_deployment(set)),
            vec![rule.message],
            "{set:?}"
        );
    }
}

#[test]
fn every_rule_is_in_the_schema_and_broken_by_a_case() {
    let schema = open_api_schema().to_string();
    for rule in rules::ALL {
        let expression = serde_json::to_string(rule.expression).unwrap();
        assert!(
            schema.contains(&expression),
            "not in the schema: {expression}"
        );
        assert!(
            cases().iter().any(|case| case.rule == rule),
            "no case: {expression}"
        );
    }
}

#[test]
fn the_cel_list_of_reserved_flags_is_the_constant() {
    for name in rules::RESERVED_ARGS {
        assert!(
            rules::ARG_NOT_RESERVED
                .expression
                .contains(&format!("'{name}'")),
            "{name}"
        );
    }
    let quoted = rules::ARG_NOT_RESERVED.expression.matches('\'').count() / 2;
    assert_eq!(quoted, rules::RESERVED_ARGS.len());
}

#[test]
fn bounds_of_single_fields_are_the_schemas() {
    let deployment = mk_deployment(&[
        ("/spec/pools/prefill/tp", json!(0)),
        ("/spec/router/port", json!(70_000)),
        ("/spec/kv/pageSize", json!(32)),
    ]);
    let found = validate(&deployment).unwrap_err().to_string();
    insta::assert_snapshot!(found, @r"
    spec.kv.pageSize: 32 is not one of 1, 16, 64
    spec.pools.prefill.tp: 0 is below the least allowed, 1
    spec.router.port: 70000 is above the largest allowed, 65535
    ");
}

#[test]
fn a_flag_given_twice_is_refused() {
    let args = json!([{"name": "log-level", "value": "info"}, {"name": "log-level"}]);
    let found = validate(&mk_deployment(&[("/spec/engine/args", args)]))
        .unwrap_err()
        .to_string();
    assert_eq!(
        found,
        "spec.engine.args[1].name: log-level is given twice; each flag may appear once"
    );
}
