//! Part `pair`: prefill and decode agents on one device, a router before them, beside one agent.

use crate::answers::{equal_bits, equal_tokens};
use crate::checks::Checks;
use crate::site::{Site, TINY_LLAMA, TINY_QWEN3};
use anyhow::{Result, anyhow, ensure};
use pd_e2e::client::Client;
use pd_e2e::fleet::{Fleet, words};
use pd_e2e::prompts::ragged;
use pd_e2e::quiet::quiet;
use pd_protocol::Role;
use serde_json::Value;

const REQUESTS: usize = 50;
const NEW_TOKENS: u32 = 24;

struct Case {
    model: &'static str,
    flags: &'static str,
    transport: &'static str,
    /// Of a deterministic device; tokens alone otherwise, for it cuts a query's keys by the batch.
    every_bit: bool,
}

const FLOAT32: Case = Case {
    model: TINY_LLAMA,
    flags: "--dtype float32",
    transport: "shm",
    every_bit: false,
};
const BFLOAT16: Case = Case {
    model: TINY_QWEN3,
    flags: "--dtype bfloat16 --enable-deterministic-inference",
    transport: "shm",
    every_bit: true,
};

pub(crate) async fn run(site: &Site, checks: &mut Checks) -> Result<()> {
    let over_tcp = Case {
        transport: "tcp",
        ..BFLOAT16
    };
    for case in [FLOAT32, BFLOAT16, over_tcp] {
        let name = format!("{} {} over {}", case.model, case.flags, case.transport);
        checks.check(name, same_as_one_agent(site, &case)).await;
    }
    Ok(())
}

async fn same_as_one_agent(site: &Site, case: &Case) -> Result<String> {
    // Lengths around pages, blocks of keys and chunks; up to 391.
    let lens: Vec<usize> = (0..REQUESTS).map(|i| 1 + i * 37 % 400).collect();
    let requests = ragged(&lens, NEW_TOKENS);
    let client = Client::new();
    let alone = site.alone(case.model, case.flags).await?;
    let expected = client
        .post_all(&format!("{}/generate", alone.url()), &requests)
        .await?;
    drop(alone);

    let flags = format!(
        "{} --disaggregation-transfer-backend {}",
        case.flags, case.transport
    );
    let mut spec = site.spec(case.model, &flags);
    spec.prefill_args = words("--chunked-prefill-size 128");
    let fleet = spec.start().await?;
    let beside = async {
        let got = client.post_all(&fleet.url("/generate"), &requests).await?;
        let tokens = if case.every_bit {
            equal_bits(&got, &expected)?
        } else {
            equal_tokens(&got, &expected)?
        };
        used_transport(&client, &fleet, case.transport).await?;
        for worker in &fleet.workers {
            quiet(&client, &worker.url()).await?;
        }
        Ok(format!(
            "{REQUESTS} requests, {tokens} tokens equal, KV over {}",
            case.transport
        ))
    };
    let ended: Result<String> = beside.await;
    ended.map_err(|why| anyhow!("{why:#}\n{}", fleet.logs()))
}

/// Decode's own word on how it reaches prefill.
async fn used_transport(client: &Client, fleet: &Fleet, wanted: &str) -> Result<()> {
    let url = format!("{}/server_info", fleet.worker(Role::Decode).url());
    let info = client.get(&url).await?.json()?;
    let links = &info["disaggregation_links"];
    let is_wanted = |link: &Value| link["transport"] == wanted;
    let all = links
        .as_object()
        .is_some_and(|links| !links.is_empty() && links.values().all(is_wanted));
    ensure!(all, "decode's links are {links} instead of {wanted}");
    Ok(())
}
