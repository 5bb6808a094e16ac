//! Part `pair`: prefill and decode agents on one device, a router before them, beside one agent.

use crate::answers::{equal_bits, equal_tokens};
use crate::checks::Checks;
use crate::site::{Site, TINY_DEEPSEEK_V3, TINY_GEMMA3, TINY_GPT_OSS};
use crate::site::{TINY_LLAMA, TINY_QWEN3, TINY_QWEN3_5_MOE};
use anyhow::{Result, anyhow, ensure};
use pd_e2e::client::Client;
use pd_e2e::fleet::{Fleet, words};
use pd_e2e::metrics::Metrics;
use pd_e2e::prompts::{constrained, ragged};
use pd_e2e::quiet::quiet;
use pd_protocol::Role;
use serde_json::{Value, json};

const REQUESTS: usize = 50;
const NEW_TOKENS: u32 = 24;
const DRAFTING: &str = "--speculative-algorithm NEXTN --speculative-num-steps 3";

struct Case {
    model: &'static str,
    flags: &'static str,
    transport: &'static str,
    /// Of a deterministic device; tokens alone otherwise, for it cuts a query's keys by the batch.
    every_bit: bool,
    /// By the model's own layer; the one agent has no drafts.
    drafts: bool,
}

const FLOAT32: Case = Case {
    model: TINY_LLAMA,
    flags: "--dtype float32",
    transport: "shm",
    every_bit: false,
    drafts: false,
};
const BFLOAT16: Case = Case {
    model: TINY_QWEN3,
    flags: "--dtype bfloat16 --enable-deterministic-inference",
    transport: "shm",
    every_bit: true,
    drafts: false,
};

pub(crate) async fn run(site: &Site, checks: &mut Checks) -> Result<()> {
    let of = |model| Case { model, ..BFLOAT16 };
    let over_tcp = |model| Case {
        transport: "tcp",
        ..of(model)
    };
    let drafting = |model| Case {
        drafts: true,
        ..of(model)
    };
    let in_e4m3 = Case {
        flags: "--dtype bfloat16 --enable-deterministic-inference --kv-cache-dtype fp8_e4m3",
        ..BFLOAT16
    };
    for case in [
        FLOAT32,
        BFLOAT16,
        over_tcp(TINY_QWEN3),
        in_e4m3,
        of(TINY_GEMMA3),
        of(TINY_GPT_OSS),
        of(TINY_QWEN3_5_MOE),
        over_tcp(TINY_QWEN3_5_MOE),
        drafting(TINY_QWEN3_5_MOE),
        of(TINY_DEEPSEEK_V3),
        drafting(TINY_DEEPSEEK_V3),
    ] {
        let drafts = if case.drafts { ", drafting" } else { "" };
        let name = format!(
            "{} {} over {}{drafts}",
            case.model, case.flags, case.transport
        );
        checks.check(name, same_as_one_agent(site, &case)).await;
    }
    Ok(())
}

async fn same_as_one_agent(site: &Site, case: &Case) -> Result<String> {
    // Lengths around pages, blocks of keys and chunks; up to 391.
    let lens: Vec<usize> = (0..REQUESTS).map(|i| 1 + i * 37 % 400).collect();
    let mut requests = ragged(&lens, NEW_TOKENS);
    requests.extend(constrained(&[2, 40, 130, 300], NEW_TOKENS));
    if case.drafts {
        // Answers of two tokens, so that drafts are now right and now wrong.
        for request in &mut requests {
            request["sampling_params"]["logit_bias"] = json!({"5": 50, "6": 50});
        }
    }
    let client = Client::new();
    let alone = site.alone(case.model, case.flags).await?;
    let expected = client
        .post_all(&format!("{}/generate", alone.url()), &requests)
        .await?;
    drop(alone);

    let flags = format!(
        "{} --disaggregation-transfer-backend {} {}",
        case.flags,
        case.transport,
        if case.drafts { DRAFTING } else { "" }
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
        let drafted = if case.drafts {
            drafted(&client, &fleet).await?
        } else {
            String::new()
        };
        Ok(format!(
            "{} requests, {tokens} tokens equal, KV over {}{drafted}",
            requests.len(),
            case.transport
        ))
    };
    let ended: Result<String> = beside.await;
    ended.map_err(|why| anyhow!("{why:#}\n{}", fleet.logs()))
}

/// What decode drafted; some was right.
async fn drafted(client: &Client, fleet: &Fleet) -> Result<String> {
    let metrics = Metrics::scrape(client, &fleet.worker(Role::Decode).url()).await?;
    let [drafts, accepted] = ["draft", "accepted"]
        .map(|which| metrics.sum(&format!("pdserve_spec_{which}_tokens_total"), &[]));
    ensure!(
        accepted > 0.5,
        "{accepted} of {drafts} drafts were accepted"
    );
    Ok(format!(", {accepted} of {drafts} drafts accepted"))
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
