//! Facts about `/server_info`.

use super::*;

#[test]
fn a_model_goes_by_its_served_names_or_else_its_path() {
    let named = WorkerInfo::parse(br#"{"served_model_name":["b","a"],"model_path":"/m"}"#);
    assert_eq!(named.unwrap().models, ["a", "b"]);
    let plain = WorkerInfo::parse(br#"{"served_model_name":null,"model_path":"/m"}"#);
    assert_eq!(plain.unwrap().models, ["/m"]);
}

#[test]
fn what_it_runs_at_once_is_the_sum_of_its_ranks_or_else_its_flag() {
    let running = |json: &str| {
        let info = WorkerInfo::parse(json.as_bytes()).unwrap();
        info.max_running_requests
    };
    assert_eq!(running(r#"{"max_running_requests":32}"#), Some(32));
    assert_eq!(running(r#"{"max_running_requests":null}"#), None);
    assert_eq!(running(r#"{"max_running_requests":-1}"#), None);
    let rank = r#"{"effective_max_running_requests_per_dp":48}"#;
    let ranks = format!(r#"{{"max_running_requests":null,"internal_states":[{rank},{rank}]}}"#);
    assert_eq!(running(&ranks), Some(96));
    assert_eq!(running(r#"{"internal_states":[{}]}"#), None);
}

#[test]
fn sglangs_spelling_of_the_bootstrap_port_is_read() {
    let json = br#"{"disaggregation_mode":"prefill","disaggregation_bootstrap_port":8999}"#;
    let info = WorkerInfo::parse(json).unwrap();
    assert_eq!(info.bootstrap_port, Some(8999));
    assert_eq!(info.role, Some(Role::Prefill));
}

#[test]
fn a_list_of_models_names_them_and_the_shortest_length() {
    let json = br#"{"object":"list","data":[{"id":"m","max_model_len":8192},{"id":"lora","max_model_len":4096}]}"#;
    let info = WorkerInfo::parse(json).unwrap();
    assert_eq!(info.models, ["lora", "m"]);
    assert_eq!(info.context_length, Some(4096));
    assert_eq!(info.handover, Handover::Bootstrap);
    let empty = WorkerInfo::parse(br#"{"object":"list","data":[]}"#);
    assert!(empty.unwrap().models.is_empty());
}

#[test]
fn who_owns_vllms_models_hands_kv_over_by_parameters() {
    let json = br#"{"object":"list","data":[{"id":"m","object":"model","owned_by":"vllm","max_model_len":2048}]}"#;
    let info = WorkerInfo::parse(json).unwrap();
    assert_eq!(info.handover, Handover::TransferParams);
}
