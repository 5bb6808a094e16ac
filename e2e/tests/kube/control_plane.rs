//! The control plane alone: it serves our API, records who wrote what, survives the loss of its parts,
//! and is gone afterwards.

use crate::left_behind::snapshot;
use crate::objects::{mk_account, mk_config_map};
use anyhow::Result;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::Api;
use kube::api::PostParams;
use pd_e2e::binaries::workspace;
use pd_e2e::kube::cluster::{Cluster, Spec};
use std::time::Instant;

/// File → the name of the object in it.
const EXAMPLES: [(&str, &str); 9] = [
    ("smollm2", "smollm2"),
    ("smollm2-https", "smollm2-https"),
    ("smollm2-sglang", "smollm2-sglang"),
    ("smollm2-vllm", "smollm2-vllm"),
    ("deepseek-16gpu", "deepseek-v3"),
    ("qwen3-32b-sglang", "qwen3-32b-sglang"),
    ("qwen3-32b-vllm", "qwen3-32b-vllm"),
    ("qwen3-2p2d", "qwen3-8b"),
    ("qwen3-autoscaled", "qwen3-autoscaled"),
];

async fn start() -> Result<Cluster> {
    let started = Instant::now();
    let cluster = Cluster::start(Spec::control_plane()).await?;
    let took = started.elapsed().as_secs_f64();
    eprintln!("{took:5.1} s  the control plane is ready");
    Ok(cluster)
}

#[tokio::test]
async fn the_apiserver_takes_the_crd_and_every_example() -> Result<()> {
    let cluster = start().await?;
    let apply = |file: String| {
        let path = workspace().join(file).display().to_string();
        cluster.kubectl(&["apply", "--server-side", "-f", &path])
    };
    let crd = "crd/pddeployments.pdserve.io";
    apply("crds/yaml/pddeployments.yaml".to_owned())?;
    cluster.kubectl(&["wait", "--for=condition=Established", crd, "--timeout=60s"])?;
    for (file, name) in EXAMPLES {
        let output = apply(format!("examples/{file}.yaml"))?;
        let expected = format!("pddeployment.pdserve.io/{name} serverside-applied");
        assert!(output.contains(&expected), "{output}");
    }
    let listed = cluster.kubectl(&["get", "pddeployments", "-o", "name"])?;
    assert_eq!(listed.lines().count(), EXAMPLES.len(), "{listed}");
    cluster.stop()
}

#[tokio::test]
async fn writes_are_counted_by_the_account_that_sent_them() -> Result<()> {
    let cluster = start().await?;
    let admin = cluster.kube_client().await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(admin, "default");
    let post = PostParams::default();
    accounts.create(&post, &mk_account("writer")).await?;
    for words in [
        "create role maps --verb=create,get --resource=configmaps",
        "create rolebinding maps --role=maps --serviceaccount=default:writer",
    ] {
        cluster.kubectl(&words.split(' ').collect::<Vec<_>>())?;
    }

    let client = cluster.as_service_account("default", "writer").await?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let elsewhere: Api<ConfigMap> = Api::namespaced(client, "kube-system");
    let mark = cluster.audit_log().mark();
    maps.create(&post, &mk_config_map("a")).await?;
    maps.get("a").await?;
    let map = mk_config_map("a");
    maps.create(&post, &map)
        .await
        .expect_err("it is there already");
    elsewhere
        .create(&post, &map)
        .await
        .expect_err("its role ends at its namespace");

    let user = "system:serviceaccount:default:writer";
    let writes = cluster.audit_log().writes_since(mark)?;
    let own: Vec<_> = writes.iter().filter(|write| write.user == user).collect();
    let seen: Vec<_> = own
        .iter()
        .map(|w| (w.verb.as_str(), w.resource.as_str(), w.code))
        .collect();
    let expected = [201, 409, 403].map(|code| ("create", "configmaps", code));
    assert_eq!(seen, expected, "{own:?}");
    cluster.stop()
}

#[tokio::test]
async fn objects_outlive_a_killed_etcd_and_a_killed_apiserver() -> Result<()> {
    let mut cluster = start().await?;
    let client = cluster.kube_client().await?;
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    maps.create(&PostParams::default(), &mk_config_map("kept"))
        .await?;
    cluster.restart_etcd().await?;
    maps.get("kept").await?;
    cluster.restart_apiserver().await?;
    maps.get("kept").await?;
    cluster.stop()
}

#[tokio::test]
async fn a_stopped_and_a_dropped_cluster_leave_nothing() -> Result<()> {
    let before = snapshot();
    start().await?.stop()?;
    assert_eq!(snapshot(), before);
    drop(start().await?);
    assert_eq!(snapshot(), before);
    Ok(())
}
