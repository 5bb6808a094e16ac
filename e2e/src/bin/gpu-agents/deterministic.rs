//! Part `deterministic`: with `--enable-deterministic-inference` an answer has the same bits alone, in
//! company, and in other chunks.

use crate::answers::equal_bits;
use crate::checks::Checks;
use crate::site::{Site, TINY_DEEPSEEK_V3, TINY_GEMMA3, TINY_LLAMA, TINY_QWEN3_5_MOE};
use anyhow::Result;
use pd_e2e::client::Client;
use pd_e2e::fleet::Worker;
use pd_e2e::prompts::{ids, ragged, sampled};
use serde_json::{Value, json};

const TRIED: [(&str, &str); 5] = [
    (TINY_LLAMA, "bfloat16"),
    (TINY_LLAMA, "float32"),
    (TINY_GEMMA3, "bfloat16"),
    (TINY_QWEN3_5_MOE, "bfloat16"),
    (TINY_DEEPSEEK_V3, "bfloat16"),
];
/// Others that compute at the same time.
const COMPANY: u64 = 32;
const CHUNK: u32 = 256;
const OTHER_CHUNKS: [u32; 3] = [32, 96, 1024];

/// Prompts are computed each time, not found in the cache.
fn flags(dtype: &str, chunk: u32) -> String {
    format!(
        "--dtype {dtype} --enable-deterministic-inference --disable-radix-cache \
         --max-running-requests 64 --chunked-prefill-size {chunk}"
    )
}

/// What is watched: some with the log probabilities of their prompts.
fn watched() -> Vec<Value> {
    let mut requests = ragged(&[1, 17, 64, 65, 130, 257, 400, 700], 24);
    for request in requests.iter_mut().step_by(3) {
        request["logprob_start_len"] = json!(0);
    }
    requests
}

fn company() -> Vec<Value> {
    let len = |seed: u64| usize::try_from(5 + seed * 29 % 300).expect("below 305");
    let others = (0..COMPANY).map(|seed| sampled(&ids(7000 + seed, len(seed)), 40, seed));
    others.collect()
}

pub(crate) async fn run(site: &Site, checks: &mut Checks) -> Result<()> {
    for (model, dtype) in TRIED {
        let name = format!("{model} {dtype}");
        let one_by_one = async {
            let agent = site.alone(model, &flags(dtype, CHUNK)).await?;
            let mut answers = Vec::new();
            for request in watched() {
                answers.extend(ask(&agent, &[request]).await?);
            }
            Ok((agent, answers))
        };
        let alone = checks.expected(format!("{name}, alone"), one_by_one).await;
        let Some((agent, expected)) = alone else {
            continue;
        };
        let in_company = async {
            let (company, watched) = (company(), watched());
            let (others, got) = tokio::try_join!(ask(&agent, &company), ask(&agent, &watched))?;
            let tokens = equal_bits(&got, &expected)?;
            Ok(format!(
                "{tokens} tokens and their log probabilities beside {} others",
                others.len()
            ))
        };
        checks
            .check(format!("{name}, in company"), in_company)
            .await;
        for chunk in OTHER_CHUNKS {
            let in_chunks = async {
                let agent = site.alone(model, &flags(dtype, chunk)).await?;
                let tokens = equal_bits(&ask(&agent, &watched()).await?, &expected)?;
                Ok(format!("{tokens} tokens and their log probabilities"))
            };
            let name = format!("{name}, chunks of {chunk} instead of {CHUNK}");
            checks.check(name, in_chunks).await;
        }
    }
    Ok(())
}

async fn ask(agent: &Worker, requests: &[Value]) -> Result<Vec<Value>> {
    let url = format!("{}/generate", agent.url());
    Client::new().post_all(&url, requests).await
}
