//! The peer keys of a deployment are replaced under load: kubelets bring each step in their own time, and an operator
//! dies in the middle.

use crate::stand::Stand;
use anyhow::{Context, Result, ensure};
use hyper::Method;
use k8s_openapi::api::core::v1::Secret;
use parking_lot::Mutex;
use pd_e2e::fleet::eventually;
use pd_e2e::peer::Peer;
use pd_identity::Keyring;
use pd_protocol::ports::WorkerPorts;
use serde_json::Value;
use std::fs;
use std::time::{Duration, Instant};

/// The longest request of the traffic, on two busy cores.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);
/// Three steps, a kubelet's time each, and an election.
const ROTATED_WITHIN: Duration = Duration::from_secs(300);
const SECRET: &str = "get secret smollm2-peer-keys";

#[tokio::test]
async fn peer_keys_are_replaced_without_a_lost_request() -> Result<()> {
    let mut stand = Stand::start(1, 2).await?;
    let result = rotates(&mut stand).await;
    stand.end(result)
}

async fn rotates(stand: &mut Stand) -> Result<()> {
    let old = stored_keys(stand)?;
    let old_file = stand.cluster.dir().join("old-keys");
    fs::write(&old_file, &old)?;
    let was_asked = asks_workers(stand, &old_file).await;
    ensure!(
        was_asked == [true, true],
        "the key opens no worker: {was_asked:?}"
    );
    let pods = stand.worker_uids()?;
    let (began, traffic) = (Instant::now(), stand.traffic());
    tokio::time::sleep(Duration::from_secs(2)).await;
    stand.kubectl("annotate pdd smollm2 pdserve.io/rotate-peer-keys=first")?;
    let seen = follow(stand, key_ids(&old)?, began).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let tally = traffic.stop(REQUEST_LIMIT).await?;
    let (seen, failed) = (seen?, tally.failures.len());
    eprintln!(
        "{:5.1} s  rotation, an operator killed in it: {} answered, {failed} failed",
        began.elapsed().as_secs_f64(),
        tally.answered
    );
    ensure!(tally.answered > 0 && failed == 0, "{:#?}", tally.failures);
    let lengths: Vec<usize> = seen.iter().map(Vec::len).collect();
    ensure!(lengths == [1, 2, 2, 1], "{seen:?}");
    let turned: Vec<&String> = seen[1].iter().rev().collect();
    ensure!(seen[2].iter().eq(turned), "{seen:?}");
    ensure!(seen[3][0] == seen[2][0] && seen[0] != seen[3], "{seen:?}");
    ensure!(stand.worker_uids()? == pods, "a worker was replaced");

    let new_file = stand.cluster.dir().join("new-keys");
    fs::write(&new_file, stored_keys(stand)?)?;
    let (with_old, with_new) = (
        asks_workers(stand, &old_file).await,
        asks_workers(stand, &new_file).await,
    );
    eprintln!(
        "         workers answer one with the old key: {with_old:?}, with the new one: {with_new:?}"
    );
    ensure!(with_old == [false, false] && with_new == [true, true]);
    let events =
        stand.kubectl("get events --field-selector reason=PeerKeyRotation --no-headers")?;
    eprintln!("{events}");
    Ok(())
}

/// Waits until the rotation is done, and kills the operator that leads after the first step. What the Secret held, one
/// state after another.
async fn follow(stand: &Stand, first: Vec<String>, began: Instant) -> Result<Vec<Vec<String>>> {
    let (seen, shown) = (Mutex::new(vec![first]), Mutex::new(String::new()));
    let say = |text: &str| eprintln!("{:5.1} s  {text}", began.elapsed().as_secs_f64());
    let look = || {
        let now = key_ids(&stored_keys(stand)?)?;
        let mut seen = seen.lock();
        if seen.last() != Some(&now) {
            say(&format!("the Secret holds {}", now.join(", ")));
            seen.push(now);
            if seen.len() == 2 {
                let leader = stand.leader()?;
                stand.kill_pod(&leader)?;
                say(&format!("kill -9 of {leader}"));
            }
        }
        let condition = rotation_condition(&stand.json("get pdd smollm2")?);
        let message = condition["message"].as_str().unwrap_or_default();
        let said = format!("{}: {message}", condition["reason"]);
        let mut shown = shown.lock();
        if *shown != said {
            say(&said);
            *shown = said;
        }
        ensure!(condition["status"] == "True", "{condition}");
        Ok(())
    };
    let done = eventually(ROTATED_WITHIN, || std::future::ready(look())).await;
    done.with_context(|| stand.story())?;
    Ok(seen.into_inner())
}

fn rotation_condition(object: &Value) -> Value {
    let conditions = object["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    let mut of_keys = conditions.filter(|is| is["type"] == "PeerKeysRotated");
    of_keys.next().cloned().unwrap_or_default()
}

/// The text of the keys.
fn stored_keys(stand: &Stand) -> Result<Vec<u8>> {
    let secret: Secret = serde_json::from_value(stand.json(SECRET)?)?;
    let keys = secret.data.and_then(|mut data| data.remove("keys"));
    Ok(keys.context("the Secret has no keys")?.0)
}

fn key_ids(text: &[u8]) -> Result<Vec<String>> {
    let ids = Keyring::parse("keys", text)?.key_ids();
    Ok(ids.iter().map(|(id, _)| id.to_string()).collect())
}

/// Whether a worker of each role answers a process with the keys of a file.
async fn asks_workers(stand: &mut Stand, key_file: &std::path::Path) -> Vec<bool> {
    let mut answered = Vec::new();
    for role in ["prefill", "decode"] {
        let asked = ask_worker(stand, role, key_file).await;
        if let Err(error) = &asked {
            eprintln!("         {role}: {error:#}");
        }
        answered.push(asked.is_ok());
    }
    answered
}

async fn ask_worker(stand: &mut Stand, role: &str, key_file: &std::path::Path) -> Result<()> {
    let ip = stand.kubectl(&format!(
        "get pods -l pdserve.io/role={role} -o jsonpath={{.items[0].status.podIP}}"
    ))?;
    let port = WorkerPorts::WELL_KNOWN.http;
    let at = stand.cluster.forward(format!("{ip}:{port}").parse()?)?;
    let peer = Peer::with_keys(key_file)?;
    let answer = peer
        .send(Method::GET, &format!("https://{at}/v1/models"), "")
        .await?;
    ensure!(answer.status == 200, "status {}", answer.status);
    Ok(())
}
