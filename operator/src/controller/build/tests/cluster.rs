//! What pods, the router's Deployment and the Service get in a cluster alone, and of what users ask for.

use super::*;
use k8s_openapi::api::core::v1::PodSpec;
use pd_crds::PoolRole;
use pd_crds::engine::{EngineArg, EngineKind};
use pd_crds::model::HuggingFaceSource;
use pd_crds::service::ServiceType;
use serde_json::json;

fn mk_cluster() -> BuildConfig {
    BuildConfig {
        discovery: true,
        ..mk_config()
    }
}

fn worker(deployment: &PdDeployment, config: &BuildConfig) -> Pod {
    let pool = pool::build_pool(deployment, PoolRole::Decode, config).unwrap();
    pool.pod(SLOT, WorkerPorts::WELL_KNOWN)
}

fn worker_spec(deployment: &PdDeployment) -> PodSpec {
    worker(deployment, &mk_cluster()).spec.expect("a spec")
}

fn router_spec(deployment: &PdDeployment) -> PodSpec {
    let router = router::build_router(deployment, &mk_cluster()).unwrap();
    router.spec.unwrap().template.spec.expect("a spec")
}

fn mk_arg(name: &str, value: &str) -> EngineArg {
    EngineArg {
        name: name.to_owned(),
        value: Some(value.to_owned()),
    }
}

#[test]
fn a_gpu_that_was_asked_for_is_used_unless_the_user_says_otherwise() {
    let devices = |edit: fn(&mut PdDeployment)| {
        let mut deployment = mk_example("qwen3-2p2d");
        edit(&mut deployment);
        let pod = worker(&deployment, &mk_cluster());
        let found = args(&pod).windows(2).filter(|pair| pair[0] == "--device");
        found.map(|pair| pair[1].clone()).collect::<Vec<_>>()
    };
    assert_eq!(devices(|_| {}), ["cuda"]);
    assert_eq!(
        devices(|it| it.spec.engine.args.push(mk_arg("device", "cpu"))),
        ["cpu"]
    );
    let none = |it: &mut PdDeployment| it.spec.pools.decode.resources = None;
    assert_eq!(devices(none), Vec::<String>::new());
    let other = |it: &mut PdDeployment| it.spec.engine.kind = EngineKind::Sglang;
    assert_eq!(devices(other), Vec::<String>::new());
}

#[test]
fn how_a_model_is_fetched_replaces_no_worker() {
    let revision_of = |edit: fn(&mut HuggingFaceSource)| {
        let mut deployment = mk_example("qwen3-2p2d");
        let source = deployment.spec.model.source.hugging_face.as_mut();
        edit(source.expect("the example is fetched"));
        revision::of_pools(&deployment.spec)
    };
    let as_it_is = revision_of(|_| {});
    let mirror: fn(&mut HuggingFaceSource) = |it| it.endpoint = Some("http://mirror".to_owned());
    let cleans: fn(&mut HuggingFaceSource) = |it| {
        let claim = it.cache.as_mut().and_then(|cache| cache.pvc.as_mut());
        claim.expect("a claim").remove_unused_after_days = Some(30);
    };
    for edit in [mirror, cleans] {
        assert_eq!(revision_of(edit), as_it_is);
    }
    let other: fn(&mut HuggingFaceSource) = |it| it.revision = Some("v2".to_owned());
    assert_ne!(revision_of(other), as_it_is);
}

#[test]
fn only_a_container_with_a_gpu_has_a_root_that_hooks_can_write() {
    let read_only = |spec: PodSpec| {
        let context = spec.containers[0].security_context.clone();
        context.and_then(|it| it.read_only_root_filesystem)
    };
    let deployment = mk_example("qwen3-2p2d");
    assert_eq!(read_only(worker_spec(&deployment)), Some(false));
    assert_eq!(read_only(router_spec(&deployment)), Some(true));
    let without = mk_example("smollm2");
    assert_eq!(read_only(worker_spec(&without)), Some(true));
}

#[test]
fn our_image_goes_to_nodes_of_its_architecture_and_a_users_anywhere() {
    let mut deployment = mk_example("smollm2");
    let own = worker_spec(&deployment).node_selector.expect("a selector");
    let named: Vec<&String> = own.keys().collect();
    assert_eq!(named, ["kubernetes.io/arch"]);
    assert!(router_spec(&deployment).node_selector.is_some());
    deployment.spec.engine.image = Some("mine".to_owned());
    deployment.spec.router.image = Some("mine".to_owned());
    assert_eq!(worker_spec(&deployment).node_selector, None);
    assert_eq!(router_spec(&deployment).node_selector, None);
}

#[test]
fn several_of_a_kind_spread_over_nodes_where_there_is_room() {
    let deployment = mk_example("qwen3-2p2d");
    for (spec, role, max_skew) in [
        (worker_spec(&deployment), "decode", 8),
        (router_spec(&deployment), "router", 1),
    ] {
        let [constraint] = spec.topology_spread_constraints.as_deref().unwrap() else {
            panic!("{role} has one constraint");
        };
        assert_eq!(constraint.when_unsatisfiable, "ScheduleAnyway");
        assert_eq!(constraint.max_skew, max_skew);
        assert_eq!(constraint.topology_key, "kubernetes.io/hostname");
        let selector = constraint.label_selector.as_ref().unwrap();
        assert_eq!(selector.match_labels.as_ref().unwrap()[labels::ROLE], role);
    }
    // The scheduler's work for nothing.
    let alone = mk_example("smollm2");
    assert_eq!(worker_spec(&alone).topology_spread_constraints, None);
}

#[test]
fn a_router_is_sure_of_a_little_and_may_take_the_sum_of_its_bounds_unless_the_user_says_what() {
    let mut deployment = mk_example("smollm2");
    let resources = |deployment: &PdDeployment| {
        let spec = router_spec(deployment);
        json!(spec.containers[0].resources)
    };
    let own =
        json!({"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "1408Mi"}});
    assert_eq!(resources(&deployment), own);
    let users = json!({"limits": {"memory": "1Gi"}});
    deployment.spec.router.resources = serde_json::from_value(users.clone()).unwrap();
    assert_eq!(resources(&deployment), users);
}

#[test]
fn a_routers_limits_are_its_flags() {
    let mut deployment = mk_example("smollm2");
    let flags = |deployment: &PdDeployment| {
        let router = router::build_router(deployment, &mk_cluster()).unwrap();
        let spec = router.spec.unwrap().template.spec.unwrap();
        let args = spec.containers[0].args.clone().unwrap_or_default();
        let value = |flag: &str| {
            let at = args.iter().position(|arg| arg == flag).expect(flag);
            args[at + 1].clone()
        };
        [
            value("--max-concurrent-requests"),
            value("--queue-size"),
            value("--queue-timeout-secs"),
            value("--no-worker-timeout-secs"),
            value("--request-timeout-secs"),
            value("--max-payload-size"),
        ]
    };
    assert_eq!(
        flags(&deployment),
        ["auto", "1000", "60", "10", "1800", "33554432"]
    );
    let limits = json!({
        "maxConcurrentRequests": 8, "queueSize": 0, "queueTimeoutSeconds": 1,
        "noWorkerTimeoutSeconds": 0, "requestTimeoutSeconds": 7, "maxPayloadBytes": 2048,
    });
    deployment.spec.router.limits = serde_json::from_value(limits).unwrap();
    assert_eq!(flags(&deployment), ["8", "0", "1", "0", "7", "2048"]);
}

#[test]
fn limits_left_alone_make_no_other_revision_of_routers_or_workers() {
    let of_before = mk_example("smollm2").spec;
    let mut spelled_out = of_before.clone();
    spelled_out.router.limits = serde_json::from_value(json!({})).unwrap();
    let of = |spec: &_| Component::ALL.map(|component| revision::revision(spec, component));
    assert_eq!(of(&of_before), of(&spelled_out));
}

#[test]
fn a_number_of_routers_that_another_owner_sets_is_not_applied() {
    let mut deployment = mk_example("smollm2");
    let replicas = |deployment: &PdDeployment| {
        let router = router::build_router(deployment, &mk_cluster()).unwrap();
        router.spec.unwrap().replicas
    };
    assert_eq!(replicas(&deployment), None);
    deployment.spec.router.replicas = Some(1);
    assert_eq!(replicas(&deployment), Some(1));
}

#[test]
fn secrets_to_pull_with_are_every_pods_and_an_account_the_workers() {
    let mut deployment = mk_example("smollm2");
    let before = [Component::Router, Component::Decode]
        .map(|component| revision::revision(&deployment.spec, component));
    deployment.spec.image_pull_secrets = serde_json::from_value(json!([{"name": "pull"}])).unwrap();
    deployment.spec.engine.service_account_name = Some("models".to_owned());
    let (worker, router) = (worker_spec(&deployment), router_spec(&deployment));
    for spec in [&worker, &router] {
        assert_eq!(json!(spec.image_pull_secrets), json!([{"name": "pull"}]));
    }
    assert_eq!(worker.service_account_name.as_deref(), Some("models"));
    assert_eq!(worker.automount_service_account_token, Some(false));
    assert_eq!(
        router.service_account_name.as_deref(),
        Some("pdserve-routers")
    );
    for (component, before) in [Component::Router, Component::Decode]
        .into_iter()
        .zip(before)
    {
        assert_ne!(revision::revision(&deployment.spec, component), before);
    }
}

#[test]
fn a_service_is_what_the_user_asks_for() {
    let mut deployment = mk_example("smollm2");
    let service = &mut deployment.spec.router.service;
    service.kind = ServiceType::LoadBalancer;
    service.load_balancer_class = Some("internal".to_owned());
    service.annotations = [("cloud.example/scheme".to_owned(), "internal".to_owned())].into();
    service.labels = [("team".to_owned(), "ml".to_owned())].into();
    let built = json!(service::build_service(&deployment));
    assert_eq!(built["spec"]["type"], "LoadBalancer");
    assert_eq!(built["spec"]["loadBalancerClass"], "internal");
    assert_eq!(
        built["metadata"]["annotations"],
        json!({"cloud.example/scheme": "internal"})
    );
    assert_eq!(built["metadata"]["labels"]["team"], "ml");
    assert_eq!(built["metadata"]["labels"][labels::ROLE], "router");
}

#[test]
fn workers_of_a_node_share_a_folder_of_their_deployment_where_it_asks_for_one() {
    let mut deployment = mk_example("smollm2");
    deployment.metadata.namespace = Some("ml".to_owned());
    let mut config = mk_cluster();
    config.site.shared_memory = Some("/run/pdserve".into());
    let shares = |deployment: &PdDeployment, config: &BuildConfig| {
        let pod = worker(deployment, config);
        let has_flag = args(&pod)
            .iter()
            .any(|arg| arg == "--disaggregation-shm-dir");
        (has_flag, pod.spec.unwrap())
    };
    let (flag, spec) = shares(&deployment, &config);
    assert!(!flag && spec.init_containers.is_none());

    let before = revision::revision(&deployment.spec, Component::Decode);
    deployment.spec.kv.node_shared_memory = true;
    assert_ne!(
        revision::revision(&deployment.spec, Component::Decode),
        before
    );
    let (flag, spec) = shares(&deployment, &config);
    assert!(flag);
    let spec = json!(spec);
    let mut volumes = spec["volumes"].as_array().unwrap().iter();
    let volume = volumes.find(|it| it["name"] == "node-shared-memory");
    let volume = volume.unwrap();
    assert_eq!(volume["hostPath"]["path"], "/run/pdserve/ml/smollm2");
    for container in ["containers", "initContainers"] {
        let mounts = spec[container][0]["volumeMounts"].as_array().unwrap();
        let mount = mounts.iter().find(|it| it["name"] == volume["name"]);
        assert_eq!(mount.unwrap()["mountPath"], "/run/pdserve", "{container}");
    }
    let opener = &spec["initContainers"][0];
    assert_eq!(opener["securityContext"]["runAsUser"], 0);
    assert_eq!(
        opener["securityContext"]["capabilities"],
        json!({"drop": ["ALL"]})
    );
    assert_eq!(
        spec["containers"][0]["securityContext"]["runAsNonRoot"],
        true
    );
}
