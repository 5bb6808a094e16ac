//! The objects of the examples, as files, and facts about revisions.

mod cluster;
mod engines;
mod groups;

use super::component::Component;
use super::slot::Slot;
use super::*;
use crate::controller::dereference::{Dereferenced, HostModel};
use crate::controller::validate::for_this_machine;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt;
use pd_crds::PdDeployment;
use pd_crds::PoolRole;
use pd_crds::document::parse;
use pd_crds::security::PeerTrust;
use pd_crds::tracing::TracingSpec;
use pd_protocol::labels;
use pd_protocol::ports::WorkerPorts;

const SLOT: Slot = Slot {
    ordinal: 1,
    incarnation: 2,
};

fn mk_example(name: &str) -> PdDeployment {
    let path = format!("{}/../examples/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    parse(&std::fs::read_to_string(path).expect("examples lie in examples/")).expect("valid")
}

fn mk_local(edit: impl FnOnce(&mut PdDeployment)) -> Valid {
    let mut deployment = mk_example("smollm2");
    edit(&mut deployment);
    let source = deployment
        .spec
        .model
        .source
        .host_path
        .as_mut()
        .expect("a hostPath");
    source.path = "/models/smollm2.gguf".to_owned();
    let host_model = Some(HostModel {
        path: "/models/smollm2.gguf".into(),
        exists: true,
    });
    for_this_machine(Dereferenced {
        deployment,
        host_model,
    })
    .expect("valid")
}

fn mk_config() -> BuildConfig {
    BuildConfig {
        image: "pdserve:test".to_owned(),
        ..BuildConfig::default()
    }
}

#[test]
fn objects_of_the_local_example() {
    let resources = build(&mk_local(|_| {}), &mk_config()).unwrap();
    insta::assert_yaml_snapshot!(
        "smollm2-prefill",
        resources.prefill.pod(SLOT, WorkerPorts::WELL_KNOWN)
    );
    insta::assert_yaml_snapshot!(
        "smollm2-decode",
        resources.decode.pod(SLOT, WorkerPorts::WELL_KNOWN)
    );
    insta::assert_yaml_snapshot!("smollm2-router", resources.router);
    insta::assert_yaml_snapshot!("smollm2-service", resources.service);
}

#[test]
fn a_worker_of_the_gpu_example() {
    let deployment = mk_example("qwen3-2p2d");
    let pool = pool::build_pool(&deployment, PoolRole::Decode, &mk_config()).unwrap();
    assert_eq!(pool.replicas, 2);
    insta::assert_yaml_snapshot!("qwen3-2p2d-decode", pool.pod(SLOT, WorkerPorts::WELL_KNOWN));
}

#[test]
fn a_model_in_an_image_is_mounted_as_an_image_volume() {
    let deployment = mk_example("qwen3-autoscaled");
    let pool = pool::build_pool(&deployment, PoolRole::Prefill, &mk_config()).unwrap();
    let spec = pool.pod(SLOT, WorkerPorts::WELL_KNOWN).spec.unwrap();
    let image = spec.volumes.unwrap()[0].image.clone().unwrap();
    assert_eq!(
        image.reference.as_deref(),
        Some("registry.example.com/models/qwen3-8b:v1")
    );
    let args = spec.containers[0].args.clone().unwrap();
    assert_eq!(args[..2], ["--model-path", "/model"]);
}

#[test]
fn routers_mount_their_keys_and_certificate() {
    let deployment = mk_example("smollm2-https");
    let router = router::build_router(&deployment, &mk_config()).unwrap();
    insta::assert_yaml_snapshot!("smollm2-https-router", router);
    let service = service::build_service(&deployment);
    insta::assert_yaml_snapshot!("smollm2-https-service", service);
    assert_eq!(
        service::endpoint(&deployment, "ml"),
        "https://smollm2-https.ml.svc:8443/v1"
    );
}

#[test]
fn a_pools_own_flag_replaces_the_engines() {
    let arg = |value: &str| pd_crds::engine::EngineArg {
        name: "max-running-requests".to_owned(),
        value: Some(value.to_owned()),
    };
    let valid = mk_local(|deployment| {
        deployment.spec.engine.args = vec![arg("8")];
        deployment.spec.pools.decode.args = vec![arg("64")];
    });
    let resources = build(&valid, &mk_config()).unwrap();
    let value = |pool: &pool::Pool| {
        let args = pool
            .pod(SLOT, WorkerPorts::WELL_KNOWN)
            .spec
            .unwrap()
            .containers
            .remove(0)
            .args
            .unwrap();
        let at = args
            .iter()
            .position(|arg| arg == "--max-running-requests")
            .unwrap();
        args[at + 1].clone()
    };
    assert_eq!(
        (value(&resources.prefill), value(&resources.decode)),
        ("8".into(), "64".into())
    );
}

#[test]
fn sizes_and_handling_change_no_revision() {
    let before = mk_local(|_| {}).deployment().spec.clone();
    let mut after = before.clone();
    after.pools.prefill.replicas = Some(5);
    after.router.replicas = Some(3);
    after.router.service.kind = pd_crds::service::ServiceType::LoadBalancer;
    after.slo.ttft_ms = Some(1);
    after.rollout.max_surge = 9;
    after.drain.timeout_seconds = 1;
    for component in [Component::Router, Component::Prefill, Component::Decode] {
        assert_eq!(
            revision::revision(&before, component),
            revision::revision(&after, component),
            "{component:?}"
        );
    }
}

#[test]
fn a_pools_flag_changes_the_revision_of_that_pool_alone() {
    let before = mk_local(|_| {}).deployment().spec.clone();
    let mut after = before.clone();
    after.pools.decode.tp = 2;
    let changed =
        |component| revision::revision(&before, component) != revision::revision(&after, component);
    assert!(changed(Component::Decode));
    assert!(!changed(Component::Prefill) && !changed(Component::Router));
}

#[test]
fn a_slots_name_fits_a_label_for_the_longest_deployment_name() {
    let slot = Slot {
        ordinal: 999,
        incarnation: 99_999,
    };
    let name = slot.pod_name(&format!("{}-prefill", "a".repeat(40)));
    assert!(name.len() <= 63, "{}", name.len());
}

fn policies(admins: &network::Admins) -> [NetworkPolicy; 2] {
    let config = BuildConfig {
        admins: Some(admins.clone()),
        ..mk_config()
    };
    let built = shared::build_shared(Some("ml"), &config).policies;
    built.try_into().expect("one of routers, one of workers")
}

#[test]
fn what_a_namespace_shares_names_no_deployment_and_no_owner() {
    let config = BuildConfig {
        admins: Some(network::Admins::default()),
        ..mk_config()
    };
    let shared::Shared { account, policies } = shared::build_shared(Some("ml"), &config);
    let account::Account { account, binding } = account;
    let all = [account.metadata, binding.metadata];
    let all = all
        .into_iter()
        .chain(policies.into_iter().map(|it| it.metadata));
    for metadata in all {
        assert_eq!(metadata.owner_references, None, "{metadata:?}");
        let labels = metadata.labels.unwrap();
        assert_eq!(labels[labels::SHARED], "true");
        assert_eq!(labels[labels::MANAGED_BY.0], labels::MANAGED_BY.1);
        assert!(!labels.contains_key(labels::DEPLOYMENT));
    }
}

#[test]
fn policies_let_the_namespaces_deployments_in_and_the_operator_to_its_port() {
    let admins = network::Admins {
        operator_namespace: Some("pdserve-system".to_owned()),
        blocks: vec!["10.0.0.0/28".to_owned()],
        metrics_namespaces: vec!["monitoring".to_owned()],
    };
    let [routers, workers] = policies(&admins);
    insta::assert_yaml_snapshot!("router-policy", routers);
    insta::assert_yaml_snapshot!("worker-policy", workers);
}

#[test]
fn workers_of_plain_peers_are_reached_by_their_own_deployments_pods_alone() {
    let config = BuildConfig {
        admins: Some(network::Admins {
            operator_namespace: Some("pdserve-system".to_owned()),
            blocks: Vec::new(),
            metrics_namespaces: vec!["monitoring".to_owned()],
        }),
        ..mk_config()
    };
    let valid = mk_local(|deployment| deployment.spec.security.peers = PeerTrust::Plain);
    let built = build(&valid, &config).unwrap();
    let pod = built.prefill.pod(SLOT, WorkerPorts::WELL_KNOWN);
    assert_eq!(pod.labels()[labels::OWN_POLICY], "true");
    insta::assert_yaml_snapshot!("own-policy", built.policy.expect("policies are made"));
    let pod = build(&mk_local(|_| ()), &config).unwrap().prefill;
    let pod = pod.pod(SLOT, WorkerPorts::WELL_KNOWN);
    assert!(!pod.labels().contains_key(labels::OWN_POLICY));
}

#[test]
fn without_admins_no_peer_reaches_a_routers_admin_port() {
    let [routers, _] = policies(&network::Admins::default());
    let rules = routers.spec.and_then(|spec| spec.ingress).expect("rules");
    assert_eq!(
        rules.len(),
        1,
        "clients alone: a rule without a peer lets everyone in"
    );
}

#[test]
fn a_suspended_deployment_wants_no_worker_and_keeps_its_pools_size() {
    let valid = mk_local(|deployment| deployment.spec.suspend = true);
    let pool = build(&valid, &mk_config()).unwrap().decode;
    let spec = &valid.deployment().spec;
    assert_eq!(pool.desired(spec, pool.replicas).replicas, 0);
    assert_eq!(pool.replicas, 1);
}

fn args(pod: &Pod) -> &[String] {
    let spec = pod.spec.as_ref().expect("a spec");
    spec.containers[0].args.as_deref().expect("arguments")
}

#[test]
fn the_number_of_nodes_makes_a_revision_but_one_is_what_it_was() {
    let mut spec = mk_example("qwen3-2p2d").spec;
    let revision = |spec: &_| revision::revision(spec, Component::Decode);
    let before = revision(&spec);
    spec.pools.decode.tp = 4;
    let ranks = revision(&spec);
    spec.pools.decode.nodes = 2;
    assert_ne!(revision(&spec), ranks);
    spec.pools.decode.nodes = 1;
    assert_eq!(revision(&spec), ranks);
    assert_ne!(before, ranks);
}

#[test]
fn spans_go_where_the_spec_says_from_all_that_send_them() {
    let mut deployment = mk_example("qwen3-2p2d");
    let revision = |of: &PdDeployment, component| revision::revision(&of.spec, component);
    let before = Component::ALL.map(|component| revision(&deployment, component));
    deployment.spec.tracing = Some(TracingSpec {
        otlp_endpoint: "http://otel-collector:4318".to_owned(),
        sampling_rate_per_million: Some(2500),
    });
    let traced = [
        (
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "http://otel-collector:4318",
        ),
        ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.0025"),
    ];
    let variables = |deployment: &PdDeployment| {
        let worker = pool::build_pool(deployment, PoolRole::Decode, &mk_config()).unwrap();
        let worker = worker.pod(SLOT, WorkerPorts::WELL_KNOWN).spec.unwrap();
        let router = router::build_router(deployment, &mk_config()).unwrap();
        let router = router.spec.unwrap().template.spec.unwrap();
        [worker, router].map(|mut pod| {
            let env = pod.containers.remove(0).env.unwrap().into_iter();
            let env = env.filter(|variable| variable.name.starts_with("OTEL_"));
            env.map(|variable| (variable.name, variable.value.unwrap()))
                .collect::<Vec<_>>()
        })
    };
    let traced = traced.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(variables(&deployment), [traced.to_vec(), traced.to_vec()]);
    for (component, before) in Component::ALL.into_iter().zip(before) {
        assert_ne!(revision(&deployment, component), before);
    }

    let mut others = mk_example("qwen3-32b-sglang");
    let before = revision(&others, Component::Decode);
    others.spec.tracing = Some(TracingSpec {
        otlp_endpoint: "http://otel-collector:4318".to_owned(),
        sampling_rate_per_million: None,
    });
    assert_eq!(variables(&others), [vec![], traced[..1].to_vec()]);
    assert_eq!(revision(&others, Component::Decode), before);
}
