//! Facts about pods that belong together: replicas that span nodes, and gangs.

use super::*;
use crate::controller::build::gang::Gang;
use pd_crds::scheduling::TopologySpec;
use serde_json::json;

fn mk_spanning(nodes: i32, host_network: bool) -> pool::Pool {
    let mut deployment = mk_example("qwen3-2p2d");
    let pool = &mut deployment.spec.pools.prefill;
    (pool.tp, pool.nodes) = (16, nodes);
    let spec = serde_json::json!({"hostNetwork": host_network});
    pool.pod_template = Some(pd_crds::pool::PodTemplate {
        metadata: None,
        spec: Some(spec),
    });
    let config = BuildConfig {
        may_raise_privileges: true,
        ..mk_config()
    };
    pool::build_pool(&deployment, PoolRole::Prefill, &config).unwrap()
}

#[track_caller]
fn assert_flag(pod: &Pod, flag: &str, value: &str) {
    let found = args(pod).windows(2).filter(|pair| pair[0] == flag);
    let found: Vec<&str> = found.map(|pair| pair[1].as_str()).collect();
    assert_eq!(found, [value], "{flag}");
}

#[test]
fn a_replica_of_two_nodes_is_a_leader_and_a_follower_that_meet_by_the_leaders_name() {
    let pool = mk_spanning(2, false);
    let mut leader = pool.pod(SLOT, WorkerPorts::WELL_KNOWN);
    assert_eq!(
        leader.metadata.name.as_deref(),
        Some("qwen3-8b-prefill-1-2")
    );
    assert_flag(&leader, "--dist-init-addr", "$(POD_IP):29500");
    assert_flag(&leader, "--node-rank", "0");
    assert!(!labels::is_follower(leader.labels()));
    assert_eq!(leader.annotations()[labels::NODES], "2");

    let spec = leader.spec.as_ref().unwrap();
    assert_eq!(spec.hostname.as_deref(), Some("qwen3-8b-prefill-1-2"));
    assert_eq!(spec.subdomain.as_deref(), Some("qwen3-8b-workers"));

    leader.metadata.uid = Some("u".to_owned());
    let follower = pool.follower(&leader.metadata, 1, WorkerPorts::WELL_KNOWN);
    assert_eq!(
        follower.metadata.name.as_deref(),
        Some("qwen3-8b-prefill-1-2-1")
    );
    assert_eq!(follower.owner_references()[0].uid, "u");
    assert!(labels::is_follower(follower.labels()));
    for (flag, value) in [
        (
            "--dist-init-addr",
            "qwen3-8b-prefill-1-2.qwen3-8b-workers:29500",
        ),
        ("--nnodes", "2"),
        ("--node-rank", "1"),
        ("--tp-size", "16"),
    ] {
        assert_flag(&follower, flag, value);
    }
    assert!(!follower.annotations().contains_key(labels::BOOTSTRAP_PORT));
    let spec = follower.spec.as_ref().unwrap();
    assert_eq!(spec.readiness_gates.as_deref(), Some(&[][..]));
}

#[test]
fn a_replica_of_one_node_is_its_leader_and_knows_of_no_others() {
    let pool = mk_spanning(1, false);
    let pod = pool.pod(SLOT, WorkerPorts::WELL_KNOWN);
    assert!(!args(&pod).iter().any(|arg| arg == "--nnodes"));
    assert!(!pod.annotations().contains_key(labels::NODES));
    assert_eq!(pod.labels()[labels::NODE_RANK], "0");
    assert_eq!(pod.spec.unwrap().subdomain, None);
}

#[test]
fn leaders_have_names_where_a_pool_has_replicas_that_span_nodes() {
    let mut deployment = mk_example("qwen3-2p2d");
    assert_eq!(group::build_names(&deployment), None);
    deployment.spec.pools.decode.nodes = 2;
    let service = group::build_names(&deployment).expect("a Service");
    let spec = service.spec.expect("a spec");
    assert_eq!(service.metadata.name.as_deref(), Some("qwen3-8b-workers"));
    assert_eq!(spec.cluster_ip.as_deref(), Some("None"));
    assert_eq!(spec.publish_not_ready_addresses, Some(true));
    assert_eq!(spec.selector.expect("a selector")[labels::NODE_RANK], "0");
}

#[test]
fn pods_of_a_gang_say_so_all_of_them() {
    let pool = mk_spanning(2, false);
    let gang = Gang {
        name: "qwen3-8b-x".to_owned(),
        size: 3,
    };
    let leader = pool.pod_of(SLOT, WorkerPorts::WELL_KNOWN, Some(&gang));
    let follower = pool.follower(&leader.metadata, 1, WorkerPorts::WELL_KNOWN);
    for pod in [&leader, &follower] {
        assert_eq!(Gang::of(&pod.metadata).as_ref(), Some(&gang));
        assert_eq!(pod.labels()[labels::REPLICA], leader.name_any());
    }
    let alone = pool.pod(SLOT, WorkerPorts::WELL_KNOWN);
    assert_eq!(Gang::of(&alone.metadata), None);
}

#[test]
fn a_replica_keeps_to_a_domain_and_an_exclusive_one_keeps_others_out() {
    let mut deployment = mk_example("qwen3-2p2d");
    let mut affinity = |exclusive| {
        deployment.spec.pools.decode.topology = Some(TopologySpec {
            key: "example.com/rack".to_owned(),
            exclusive,
        });
        let pool = pool::build_pool(&deployment, PoolRole::Decode, &mk_config()).unwrap();
        let pod = json!(pool.pod(SLOT, WorkerPorts::WELL_KNOWN));
        pod["spec"]["affinity"].clone()
    };
    let of_replica = |operator: &str| {
        json!([{
            "key": "pdserve.io/replica", "operator": operator,
            "values": ["qwen3-8b-decode-1-2"],
        }])
    };
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let together = json!({"podAffinity": {required: [{
        "labelSelector": {"matchExpressions": of_replica("In")},
        "topologyKey": "example.com/rack",
    }]}});
    assert_eq!(affinity(false), together);
    let alone = &affinity(true)["podAntiAffinity"][required][0];
    assert_eq!(alone["topologyKey"], "example.com/rack");
    assert_eq!(
        alone["labelSelector"],
        json!({
            "matchLabels": {"pdserve.io/exclusive": "true"},
            "matchExpressions": of_replica("NotIn"),
        })
    );
}

#[test]
fn a_pod_on_its_nodes_network_has_its_own_ports_wherever_they_are_named() {
    let pool = mk_spanning(2, true);
    assert!(pool.shares_host_network() && !mk_spanning(2, false).shares_host_network());
    let pod = pool.pod(SLOT, WorkerPorts::block(21004));
    for (flag, value) in [
        ("--port", "21004"),
        ("--admin-port", "21005"),
        ("--disaggregation-bootstrap-port", "21006"),
        ("--dist-init-addr", "$(POD_IP):21007"),
    ] {
        assert_flag(&pod, flag, value);
    }
    assert_eq!(pod.annotations()[labels::BOOTSTRAP_PORT], "21006");
    assert_eq!(
        WorkerPorts::of(pod.annotations()),
        WorkerPorts::block(21004)
    );
    let ports = pod.spec.unwrap().containers.remove(0).ports.unwrap();
    let ports: Vec<_> = ports.iter().map(|port| port.container_port).collect();
    assert_eq!(ports, [21004, 21006, 21005]);
}

#[test]
fn where_pods_have_ipv6_addresses_a_leader_is_met_in_brackets() {
    let mut deployment = mk_example("deepseek-16gpu");
    deployment.spec.pools.decode.replicas = Some(1);
    let mut config = mk_config();
    config.site.ipv6 = true;
    let pool = pool::build_pool(&deployment, PoolRole::Decode, &config).unwrap();
    let leader = pool.pod(SLOT, WorkerPorts::WELL_KNOWN);
    assert_flag(&leader, "--dist-init-addr", "[$(POD_IP)]:29500");
}

#[test]
fn on_its_nodes_network_a_follower_resolves_names_and_finds_its_leaders_ports() {
    let pool = mk_spanning(2, true);
    let leader = pool.pod(SLOT, WorkerPorts::block(21004));
    let follower = pool.follower(&leader.metadata, 1, WorkerPorts::block(21100));
    assert_flag(&follower, "--port", "21100");
    assert_flag(
        &follower,
        "--dist-init-addr",
        "qwen3-8b-prefill-1-2.qwen3-8b-workers:21007",
    );
    let policy = follower.spec.unwrap().dns_policy;
    assert_eq!(policy.as_deref(), Some("ClusterFirstWithHostNet"));
}
