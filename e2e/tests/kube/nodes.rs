//! Two full nodes: pods run, answer through a Service and take up GPUs; nodes are lost and come back;
//! nothing stays.

use crate::left_behind::snapshot;
use crate::objects::{IMAGE, PORT, eventually, mk_pod, mk_service, placement, wait_node};
use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::Api;
use kube::api::PostParams;
use pd_e2e::client::Client as HttpClient;
use pd_e2e::kube::cluster::{Cluster, Spec};
use pd_e2e::kube::image;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Instant;

const NODES: [&str; 2] = ["node-1", "node-2"];
const GPUS_PER_NODE: u32 = 2;
/// So many that a Service with four pods chooses each node: the odds against it are 2 to 31.
const QUESTIONS: usize = 32;

async fn start() -> Result<Cluster> {
    let started = Instant::now();
    let cluster = Cluster::start(Spec {
        gpus_per_node: GPUS_PER_NODE,
        ..Spec::with_nodes(2)
    })
    .await?;
    let took = started.elapsed().as_secs_f64();
    eprintln!("{took:5.1} s  two nodes are ready");
    let program = cluster.dir().join("answer");
    image::compile(include_str!("answer.c"), &program)?;
    let archive = program.with_extension("tar");
    image::write(&archive, IMAGE, &program)?;
    cluster.import(&archive)?;
    Ok(cluster)
}

/// Asks the Service from this machine, through the control plane's network.
async fn answers_here(cluster: &mut Cluster, service: Ipv4Addr) -> Result<BTreeSet<String>> {
    let port = cluster.forward(SocketAddrV4::new(service, PORT))?;
    let http = HttpClient::new();
    let ask = async || http.get(&format!("http://{port}/")).await;
    eventually("the Service answers here", async || Ok(ask().await.is_ok())).await?;
    let mut answers = BTreeSet::new();
    for _ in 0..QUESTIONS {
        answers.insert(String::from_utf8(ask().await?.body.to_vec())?);
    }
    Ok(answers)
}

/// Asks the Service from a pod; some of the pods that answer are on its own node.
async fn answers_in_pod(cluster: &Cluster, pod: &str, to: Ipv4Addr) -> Result<BTreeSet<String>> {
    let to = to.to_string();
    let ask = || cluster.kubectl(&["exec", pod, "--", "/program", &to]);
    eventually("the Service answers in a pod", async || Ok(ask().is_ok())).await?;
    let mut answers = BTreeSet::new();
    for _ in 0..QUESTIONS {
        answers.extend(ask()?.lines().last().map(str::to_owned));
    }
    Ok(answers)
}

#[tokio::test]
async fn pods_take_up_gpus_and_answer_through_a_service_over_restarts() -> Result<()> {
    let before = snapshot();
    let mut cluster = start().await?;
    let client = cluster.kube_client().await?;
    let post = PostParams::default();
    let services: Api<Service> = Api::default_namespaced(client.clone());
    let service = services.create(&post, &mk_service()).await?;
    let service = service.spec.and_then(|spec| spec.cluster_ip);
    let service: Ipv4Addr = service.context("the Service has an address")?.parse()?;

    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    for nr in 1..=4 {
        pods.create(&post, &mk_pod(&format!("answer-{nr}"))).await?;
    }
    let both = BTreeMap::from(NODES.map(|node| (node.to_owned(), 2)));
    eventually("two pods on each node are ready", async || {
        Ok(placement(&client).await?.ready == both)
    })
    .await?;
    pods.create(&post, &mk_pod("one-too-many")).await?;
    eventually("the fifth pod finds no GPU", async || {
        let refusals = placement(&client).await?.refusals;
        Ok(refusals
            .iter()
            .any(|why| why.contains("2 Insufficient nvidia.com/gpu")))
    })
    .await?;

    let nodes: BTreeSet<String> = both.into_keys().collect();
    assert_eq!(answers_here(&mut cluster, service).await?, nodes);
    assert_eq!(answers_in_pod(&cluster, "answer-1", service).await?, nodes);

    cluster.restart_etcd().await?;
    cluster.restart_apiserver().await?;
    assert_eq!(answers_in_pod(&cluster, "answer-1", service).await?, nodes);

    let stopping = Instant::now();
    cluster.stop()?;
    let took = stopping.elapsed().as_secs_f64();
    eprintln!("{took:5.1} s  everything is gone");
    assert_eq!(snapshot(), before);
    Ok(())
}

#[tokio::test]
async fn a_lost_node_is_seen_and_comes_back() -> Result<()> {
    let before = snapshot();
    let mut cluster = start().await?;
    let client = cluster.kube_client().await?;
    let [one, two] = NODES;
    cluster.cut_link(2)?;
    wait_node(&client, two, "Unknown").await?;
    cluster.mend_link(2)?;
    wait_node(&client, two, "True").await?;
    cluster.node(1)?.kill_kubelet()?;
    wait_node(&client, one, "Unknown").await?;
    cluster.node(1)?.start_kubelet()?;
    wait_node(&client, one, "True").await?;
    cluster.node(2)?.power_off()?;
    wait_node(&client, two, "Unknown").await?;
    drop(cluster);
    assert_eq!(snapshot(), before);
    Ok(())
}
