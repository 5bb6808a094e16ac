//! Keys and TLS at the door of a deployment whose routers run as pods, with Secrets as users have
//! them.

use crate::stand::{Stand, chat_over};
use anyhow::{Result, ensure};
use pd_e2e::certs::{Authority, Identity};
use pd_e2e::client::Client;
use pd_e2e::fleet::eventually;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const KEY: &str = "sk-kube-alpha";
const NEXT_KEY: &str = "sk-kube-beta";
/// The kubelet looks at mounted Secrets about once a minute, and the router once a second.
const MOUNTED_WITHIN: Duration = Duration::from_secs(180);
/// kube-proxy takes new routers into the Service a moment after the rollout is done.
const RULES_FOLLOW_WITHIN: Duration = Duration::from_secs(15);

#[tokio::test]
async fn routers_speak_tls_and_ask_for_keys() -> Result<()> {
    let stand = Stand::start(1, 2).await?;
    let result = behind_the_door(&stand).await;
    stand.end(result)
}

async fn behind_the_door(stand: &Stand) -> Result<()> {
    let authority = Authority::new(&stand.cluster.dir().join("door"))?;
    let Identity { cert, key } = authority.server("router", "router", &["127.0.0.1"])?;
    stand.kubectl(&format!(
        "create secret generic keys --from-literal=team-a={KEY}"
    ))?;
    let (cert, key) = (cert.display(), key.display());
    stand.kubectl(&format!("create secret tls door --cert={cert} --key={key}"))?;
    stand.edit(&json!({"spec": {"router": {
        "apiKeys": {"secretName": "keys"}, "tls": {"secretName": "door"},
    }}}))?;
    stand.settled(1, 1).await?;
    rolled_out(stand).await?;

    let endpoint = stand.kubectl("get pdd smollm2 -o jsonpath={.status.endpoint}")?;
    ensure!(endpoint.starts_with("https://"), "{endpoint}");
    let url = stand.url.replace("http://", "https://");
    let trusting = || Client::trusting(&authority.identity().cert);
    let client = trusting()?.with_bearer(KEY)?;
    answers(stand, &client, &url).await?;
    eprintln!("{endpoint}: {:?}", stand.said);
    ensure!(models(&trusting()?, &url).await? == 401, "no key is let in");
    let plain = models(&Client::new(), &stand.url).await;
    ensure!(plain.is_err(), "plain HTTP is answered: {plain:?}");

    let began = Instant::now();
    let patch = json!({"stringData": {"team-a": NEXT_KEY}}).to_string();
    stand
        .cluster
        .kubectl(&["patch", "secret", "keys", "-p", &patch])?;
    let next = trusting()?.with_bearer(NEXT_KEY)?;
    eventually(MOUNTED_WITHIN, || async {
        // Each router by turns: both have to know.
        for _ in 0..6 {
            let (new, old) = (models(&next, &url).await?, models(&client, &url).await?);
            ensure!(
                (new, old) == (200, 401),
                "the new key {new}, the old one {old}"
            );
        }
        Ok(())
    })
    .await?;
    let took = began.elapsed().as_secs_f64();
    eprintln!("{took:5.1} s  a changed Secret counts in both routers");

    stand.edit(&json!({"spec": {"router": {"apiKeys": Value::Null, "tls": Value::Null}}}))?;
    stand.settled(1, 1).await?;
    rolled_out(stand).await?;
    answers(stand, &Client::new(), &stand.url).await
}

/// Waits until the routers of before have ended: until then one of them may still be in the Service's
/// rules, and it speaks what it spoke.
async fn rolled_out(stand: &Stand) -> Result<()> {
    stand.rolled_out("smollm2-router").await?;
    stand
        .becomes(|| {
            let pods = stand.json("get pods -l pdserve.io/role=router")?;
            let pods = pods["items"].as_array().map_or(0, Vec::len);
            ensure!(pods == 2, "{pods} routers, with those that end");
            Ok(())
        })
        .await
}

/// As one process does; kube-proxy may be a moment behind.
async fn answers(stand: &Stand, client: &Client, url: &str) -> Result<()> {
    eventually(RULES_FOLLOW_WITHIN, || async {
        let said = chat_over(client, url).await?;
        ensure!(
            said == stand.said,
            "{said:?}; one process says {:?}",
            stand.said
        );
        Ok(())
    })
    .await
}

async fn models(client: &Client, url: &str) -> Result<u16> {
    let answer = client.get(&format!("{url}/v1/models")).await?;
    Ok(answer.status.as_u16())
}
