//! One table of broken objects, through Rust and through CEL.

use super::*;
use crate::document;
use crate::manifest::open_api_schema;
use serde_json::{Map, Value, json};

/// An edit of the minimal object for which it is refused, and where and why.
#[derive(serde::Deserialize)]
struct Case {
    /// JSON pointers and what is set there.
    set: Map<String, Value>,
    path: String,
    says: String,
}

/// The table that `e2e/` takes through `pd-operator local` too.
fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("../../golden/refused.json")).expect("a list of cases")
}

/// Those that break a rule between fields, and not the schema of one.
fn rule_cases() -> impl Iterator<Item = Case> {
    let is_rule = |case: &Case| rules::all().any(|rule| rule.message == case.says);
    cases().into_iter().filter(is_rule)
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

fn mk_document(edits: &Map<String, Value>) -> Value {
    let mut document = minimal();
    for (pointer, value) in edits {
        set(&mut document, pointer, value.clone());
    }
    document
}

fn mk_deployment(edits: &Map<String, Value>) -> PdDeployment {
    serde_json::from_value(mk_document(edits)).expect("rules are about objects of the right types")
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
    let deployment = mk_deployment(&Map::new());
    assert_eq!(validate(&deployment), Ok(()));
    assert_eq!(broken_in_cel(&deployment), Vec::<String>::new());
}

#[test]
fn every_refusal_names_the_one_thing_that_is_wrong() {
    for Case { set, path, says } in cases() {
        let error = document::parse(&mk_document(&set).to_string()).expect_err(&says);
        let expected = FieldPath::new(&path).error(says);
        assert_eq!(error.to_string(), expected.to_string(), "{set:?}");
    }
}

#[test]
fn each_broken_rule_is_named_once_with_its_path() {
    for Case { set, path, says } in rule_cases() {
        let found = validate(&mk_deployment(&set)).expect_err(&says).0;
        assert_eq!(found, vec![FieldPath::new(&path).error(says)], "{set:?}");
    }
}

#[test]
fn cel_refuses_what_rust_refuses_in_the_same_words() {
    for Case { set, path: _, says } in rule_cases() {
        assert_eq!(broken_in_cel(&mk_deployment(&set)), vec![says], "{set:?}");
    }
}

#[test]
fn cel_names_the_field_that_rust_names_or_one_around_it() {
    for Case { set, path, says } in rule_cases() {
        let rule = rules::all().find(|rule| rule.message == says).expect(&says);
        if rule.field.is_empty() {
            continue;
        }
        let object = serde_json::to_value(mk_deployment(&set)).unwrap();
        let errors = kube_cel::Validator::new().validate(&open_api_schema(), &object, None);
        let field = &errors.expect_err(&says)[0].field_path;
        assert!(path.starts_with(field.as_str()), "{field} of {set:?}");
        assert!(field.len() > "spec".len(), "{field} of {set:?}");
    }
}

#[test]
fn every_rule_is_in_the_schema_and_broken_by_a_case() {
    let schema = open_api_schema().to_string();
    for rule in rules::all() {
        let expression = serde_json::to_string(rule.expression).unwrap();
        assert!(
            schema.contains(&expression),
            "not in the schema: {expression}"
        );
        assert!(
            rule_cases().any(|case| case.says == rule.message),
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
fn each_name_of_a_reserved_flag_of_sglang_is_refused_and_no_other() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/options");
    let mut versions = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        versions += 1;
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let names = || line.split(' ').map(|name| name.trim_start_matches('-'));
            let is_reserved = names().any(|name| rules::RESERVED_ARGS.contains(&name));
            for name in names() {
                let refused = rules::is_reserved_arg(name);
                assert_eq!(refused, is_reserved, "{name} of {}", path.display());
            }
        }
    }
    assert_eq!(versions, 6);
}

#[test]
fn the_cel_list_of_dtypes_is_the_constant() {
    let words = rules::engines::PDSERVE_DTYPES.map(|dtype| format!("'{dtype}'"));
    let list = format!("[{}]", words.join(", "));
    let named = rules::engines::PDSERVE_DTYPE.expression.matches(&list);
    assert_eq!(named.count(), 3, "engine, prefill and decode");
}

#[test]
fn the_cel_rule_names_the_largest_page() {
    let largest = format!("<= {}", rules::engines::PDSERVE_PAGE_MAX);
    assert!(rules::engines::PDSERVE_PAGE.expression.ends_with(&largest));
}

#[test]
fn the_cel_rule_names_the_port_of_the_metrics() {
    let port = crate::router::METRICS_PORT.to_string();
    assert!(rules::METRICS_PORT_IS_FREE.expression.contains(&port));
    assert!(rules::METRICS_PORT_IS_FREE.message.contains(&port));
}

#[test]
fn bounds_of_single_fields_are_the_schemas() {
    let edits = json!({
        "/spec/pools/prefill/tp": 0,
        "/spec/router/port": 70_000,
        "/spec/kv/pageSize": 24,
    });
    let edits = edits.as_object().expect("edits are an object");
    let found = validate(&mk_deployment(edits)).unwrap_err().to_string();
    insta::assert_snapshot!(found, @r"
    spec.kv.pageSize: 24 is not one of 1, 2, 4, 8, 16, 32, 64, 128
    spec.pools.prefill.tp: 0 is below the least allowed, 1
    spec.router.port: 70000 is above the largest allowed, 65535
    ");
}
