//! Facts about overrides.

use super::*;

fn mk_base() -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "p", "labels": {"a": "1"}},
        "spec": {
            "containers": [{
                "name": "agent",
                "image": "ours",
                "args": ["--ours"],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            }],
        },
    }))
    .expect("a Pod")
}

fn mk_template(value: Value) -> PodTemplate {
    serde_json::from_value(value).expect("a template")
}

fn merged(template: Value) -> Result<Value, String> {
    let path = FieldPath::new("spec.pools.decode.podTemplate");
    merge_template(&mk_base(), Some(&mk_template(template)), &path, false)
        .map(|pod| json!(pod))
        .map_err(|errors| errors.to_string())
}

#[test]
fn named_items_merge_and_other_lists_replace() {
    let pod = merged(json!({"spec": {"containers": [
        {"name": "agent", "args": ["--theirs"], "env": [{"name": "B", "value": "3"}]},
        {"name": "sidecar", "image": "theirs"},
    ]}}))
    .unwrap();
    let agent = &pod["spec"]["containers"][0];
    assert_eq!(agent["image"], "ours");
    assert_eq!(agent["args"], json!(["--theirs"]));
    assert_eq!(
        agent["env"],
        json!([{"name": "A", "value": "1"}, {"name": "B", "value": "3"}])
    );
    assert_eq!(pod["spec"]["containers"][1]["name"], "sidecar");
}

#[test]
fn labels_and_scheduling_are_added() {
    let pod = merged(json!({
        "metadata": {"labels": {"team": "b"}},
        "spec": {"nodeSelector": {"gpu": "h100"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]},
    }))
    .unwrap();
    assert_eq!(pod["metadata"]["labels"], json!({"a": "1", "team": "b"}));
    assert_eq!(pod["spec"]["tolerations"][0]["key"], "gpu");
}

#[test]
fn a_field_that_no_pod_has_is_named() {
    let found = merged(
        json!({"spec": {"nodeSelecter": {"gpu": "h100"}, "containers": [
            {"name": "agent", "imge": "x"},
        ]}}),
    );
    assert_eq!(
        found.unwrap_err(),
        "spec.pools.decode.podTemplate.spec.containers[0].imge: is not a field of a Pod\n\
         spec.pools.decode.podTemplate.spec.nodeSelecter.gpu: is not a field of a Pod"
    );
}

#[test]
fn a_value_of_the_wrong_type_is_refused() {
    let found = merged(json!({"spec": {"hostNetwork": "yes"}})).unwrap_err();
    assert!(
        found.starts_with("spec.pools.decode.podTemplate: does not make a Pod: "),
        "{found}"
    );
}

#[test]
fn the_operators_own_names_cannot_be_taken() {
    let found = merged(json!({
        "metadata": {"name": "mine", "labels": {"pdserve.io/role": "router"}},
    }))
    .unwrap_err();
    insta::assert_snapshot!(found, @r"
    spec.pools.decode.podTemplate.metadata.labels[pdserve.io/role]: names below pdserve.io/ are the operator's
    spec.pools.decode.podTemplate.metadata.name: only labels and annotations can be added
    ");
}

#[test]
fn privileges_are_raised_only_where_that_is_allowed() {
    let template = mk_template(json!({"spec": {"hostNetwork": true}}));
    let path = FieldPath::new("spec.router.podTemplate");
    let refused = merge_template(&mk_base(), Some(&template), &path, false).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "spec.router.podTemplate.spec.hostNetwork: raises the pod's privileges; leave it out, or \
         have it allowed: helm value overrides.privileged"
    );
    let allowed = merge_template(&mk_base(), Some(&template), &path, true).unwrap();
    assert_eq!(allowed.spec.and_then(|spec| spec.host_network), Some(true));
}

/// What a table of ours did not merge, and Kubernetes' patch keys do.
#[test]
fn lists_merge_by_the_keys_of_kubernetes_schema() {
    let base: Pod = serde_json::from_value(json!({
        "metadata": {},
        "spec": {
            "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}],
            "schedulingGates": [{"name": "ours"}],
            "resourceClaims": [{"name": "ours"}],
            "containers": [{
                "name": "agent",
                "volumeDevices": [{"devicePath": "/dev/a", "name": "ours"}],
            }],
            "ephemeralContainers": [{"name": "debug", "image": "ours"}],
        },
    }))
    .unwrap();
    let template = mk_template(json!({"spec": {
        "hostAliases": [{"ip": "10.0.0.2", "hostnames": ["b"]}],
        "schedulingGates": [{"name": "theirs"}],
        "resourceClaims": [{"name": "theirs"}],
        "containers": [{
            "name": "agent",
            "volumeDevices": [{"devicePath": "/dev/b", "name": "theirs"}],
        }],
        "ephemeralContainers": [{"name": "debug", "command": ["sh"]}],
    }}));
    let path = FieldPath::new("spec.router.podTemplate");
    let merged = json!(merge_template(&base, Some(&template), &path, true).unwrap());
    let len = |pointer: &str| {
        merged
            .pointer(pointer)
            .and_then(Value::as_array)
            .map(Vec::len)
    };
    // Before: theirs alone.
    for list in ["hostAliases", "schedulingGates", "resourceClaims"] {
        assert_eq!(len(&format!("/spec/{list}")), Some(2), "{list}");
    }
    assert_eq!(len("/spec/containers/0/volumeDevices"), Some(2));
    let debug = &merged["spec"]["ephemeralContainers"][0];
    assert_eq!(
        (&debug["image"], &debug["command"]),
        (&json!("ours"), &json!(["sh"]))
    );
}

#[test]
fn an_item_that_lacks_what_its_kind_requires_is_named() {
    // Before: what it lacks came from ours with the same key.
    let mounts = json!([{"mountPath": "/models", "readOnly": true}]);
    let found =
        merged(json!({"spec": {"containers": [{"name": "agent", "volumeMounts": mounts}]}}));
    assert_eq!(
        found.unwrap_err(),
        "spec.pools.decode.podTemplate.spec.containers[0].volumeMounts[0].name: is required here"
    );
}
