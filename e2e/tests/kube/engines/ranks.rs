//! A replica of the real SGLang over two pods on two nodes: they meet by name, serve, are replaced whole when a node is lost, and
//! leave in order.

use super::{SETTLED_WITHIN, settled, template};
use crate::stand::{Site, Stand, holds};
use anyhow::{Context, Result, ensure};
use pd_e2e::client::Client;
use pd_e2e::engines::{self, Engine};
use pd_e2e::fleet::eventually;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Where everything is that is not to be lost.
const SAFE: &str = "node-1";
/// Long enough for its workers to be asked to leave meanwhile.
const LONG: u32 = 120;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sglang_over_two_pods_serves_loses_a_node_and_leaves_in_order() -> Result<()> {
    if std::env::var_os("PDSERVE_ENGINES").is_none() {
        eprintln!("NOT RUN: PDSERVE_ENGINES names no folder of `make e2e-engines`");
        return Ok(());
    }
    let site = Site {
        settings: vec![
            "overrides.privileged=true".to_owned(),
            format!("nodeSelector.kubernetes\\.io/hostname={SAFE}"),
        ],
        names: true,
        ..Site::default()
    };
    let mut stand = Stand::installed(&site).await?;
    let result = lives(&mut stand).await;
    stand.end(result)
}

async fn lives(stand: &mut Stand) -> Result<()> {
    let began = Instant::now();
    stand.apply(&deployment()?)?;
    settled(stand, 1).await?;
    stand.find_service()?;
    eprintln!(
        "{:.0} s from apply to Ready\n{}",
        began.elapsed().as_secs_f64(),
        stand.kubectl("get pdd,pods -o wide")?
    );
    let before = members(stand)?;
    ensure!(
        before.iter().any(|member| member.node != SAFE) && before.len() == 2,
        "{before:?}"
    );
    let said = answer(&stand.url, 24, || ()).await?;
    eprintln!("it says {said:?}");
    ensure!(said.len() > 20, "{said:?}");

    let began = Instant::now();
    stand.cluster.node(2)?.power_off()?;
    let whole = eventually(SETTLED_WITHIN, || {
        std::future::ready(is_replaced(stand, &before))
    });
    whole.await.with_context(|| stand.story())?;
    eprintln!(
        "{:.0} s from the loss of node-2 to a replica in its place\n{}",
        began.elapsed().as_secs_f64(),
        stand.kubectl("get pdd,pods -o wide")?
    );
    let again = answer(&stand.url, 24, || ()).await?;
    ensure!(again == said, "{again:?} instead of {said:?}");

    let url = stand.url.clone();
    let (begins, begun) = oneshot::channel();
    let begins = move || {
        // Where it is not awaited any more, the proof has failed already.
        let _unheard = begins.send(());
    };
    let stream = tokio::spawn(async move { answer(&url, LONG, begins).await });
    begun.await.context("the stream did not begin")?;
    stand.kubectl("delete pdd smollm2 --wait=false")?;
    leaves_in_order(stand).await?;
    let long = stream.await??;
    ensure!(long.starts_with(&said[..20]), "{long:?}");
    eprintln!("an answer that was under way ended whole; the follower left after its leader");
    Ok(())
}

/// A pod of prefill's replica that is on a node that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    name: String,
    uid: String,
    node: String,
    leaves: bool,
    serves: bool,
}

fn members(stand: &Stand) -> Result<Vec<Member>> {
    let pods = stand.json("get pods -l pdserve.io/role=prefill")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let pods = pods["items"].as_array().into_iter().flatten();
    let members = pods.map(|pod| Member {
        name: text(&pod["metadata"]["name"]),
        uid: text(&pod["metadata"]["uid"]),
        node: text(&pod["spec"]["nodeName"]),
        leaves: !pod["metadata"]["deletionTimestamp"].is_null(),
        serves: holds(&pod["status"], "pdserve.io/routable"),
    });
    Ok(members.collect())
}

/// Two pods on the node that is left, of which none was there before, serve.
fn is_replaced(stand: &Stand, before: &[Member]) -> Result<()> {
    let mut now = members(stand)?;
    now.retain(|member| !member.leaves && member.node == SAFE);
    let is_old = |member: &Member| before.iter().any(|old| old.uid == member.uid);
    ensure!(now.len() == 2 && !now.iter().any(is_old), "{now:?}");
    ensure!(now.iter().any(|member| member.serves), "{now:?}");
    let status = stand.json("get pdd smollm2")?["status"].clone();
    ensure!(holds(&status, "Ready"), "{status}");
    Ok(())
}

/// Waits until both are gone; until the leader is, its follower stays.
async fn leaves_in_order(stand: &Stand) -> Result<()> {
    let deadline = Instant::now() + SETTLED_WITHIN;
    loop {
        let mut now = members(stand)?;
        now.retain(|member| member.node == SAFE);
        if now.is_empty() {
            return Ok(());
        }
        let is_follower = |member: &&Member| member.name.ends_with("-1-1");
        let has_leader = now.iter().any(|member| !is_follower(&member));
        let follower = now.iter().find(is_follower);
        let follower_leaves = follower.is_none_or(|follower| follower.leaves);
        ensure!(
            !(has_leader && follower_leaves),
            "the follower leaves before its leader is gone: {now:?}"
        );
        ensure!(Instant::now() < deadline, "still there: {now:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// A greedy answer of so many tokens, streamed to its end.
async fn answer(base: &str, tokens: u32, begins: impl FnOnce()) -> Result<String> {
    let request = json!({
        "model": "smollm2", "stream": true, "temperature": 0, "max_tokens": tokens, "ignore_eos": true,
        "messages": [{"role": "user", "content": "Count from 1 on."}],
    });
    let url = format!("{base}/v1/chat/completions");
    Client::new()
        .stream(&url, &request)
        .await?
        .said(begins)
        .await
}

/// Prefill over two pods, which keep apart where they can, and decode in one, each of two ranks.
fn deployment() -> Result<Value> {
    let engine = Engine::sglang()?;
    let mut object = engine.deployment()?;
    object["metadata"]["name"] = json!("smollm2");
    let spec = &mut object["spec"];
    spec["model"]["source"] = json!({"hostPath": {"path": engines::model()?}});
    let args = spec["engine"]["args"].as_array_mut();
    let args = args.context("arguments of the engine")?;
    args.push(json!({"name": "dtype", "value": "float32"}));
    spec["engine"]["image"] = json!(format!("pdserve:{}", env!("CARGO_PKG_VERSION")));
    spec["router"] = json!({"replicas": 1});
    spec["drain"] = json!({"timeoutSeconds": 120});
    let here = json!({"kubernetes.io/hostname": SAFE});
    spec["router"]["podTemplate"] = json!({"spec": {"nodeSelector": here}});
    for (role, nodes) in [("prefill", 2), ("decode", 1)] {
        let pool = &mut spec["pools"][role];
        (pool["tp"], pool["nodes"]) = (json!(2), json!(nodes));
        // A core for each rank.
        pool["podTemplate"] = template(&engine, "sglang", "0|1")?;
        let template = &mut pool["podTemplate"]["spec"];
        let env = template["containers"][0]["env"].as_array_mut();
        let env = env.context("an environment")?;
        env.push(json!({"name": "GLOO_SOCKET_IFNAME", "value": "eth0"}));
        if role == "decode" {
            template["nodeSelector"] = here.clone();
            continue;
        }
        template["affinity"] = json!({"podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"pdserve.io/role": "prefill"}},
            }}],
        }});
    }
    Ok(object)
}
