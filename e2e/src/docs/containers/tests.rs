//! Variables in the arguments of made-up containers, and containers of made-up objects.

use super::*;
use serde_json::json;

fn container(args: &[&str]) -> Container {
    let env = json!([
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "RANK", "value": "0"},
    ]);
    let object = json!({"name": "agent", "image": "pdserve:1", "args": args, "env": env});
    serde_json::from_value(object).unwrap()
}

#[test]
fn variables_are_those_of_the_container() {
    let args = ["$(POD_IP):29500", "$(RANK)$(RANK)", "$$(RANK)", "a$b", "$("];
    assert_eq!(
        container(&args).expanded_args().unwrap(),
        ["10.91.1.7:29500", "00", "$(RANK)", "a$b", "$("]
    );
    assert_eq!(
        container(&["--host", "$(NODE_IP)"]).expanded_args(),
        Err(UnknownVariable("NODE_IP".to_owned()))
    );
}

#[test]
fn containers_are_those_of_pods_and_of_templates() {
    let list = json!([{"name": "agent", "image": "pdserve:1"}]);
    let pod = json!({"spec": {"containers": list, "initContainers": list}});
    assert_eq!(containers_of(&pod).unwrap().len(), 2);
    let deployment = json!({"spec": {"template": {"spec": {"containers": list}}}});
    assert_eq!(containers_of(&deployment).unwrap().len(), 1);
    assert_eq!(containers_of(&json!({"spec": {}})).unwrap().len(), 0);
}
