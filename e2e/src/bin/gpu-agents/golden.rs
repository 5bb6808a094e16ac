//! Part `golden`: greedy answers of the device beside those of the CPU backend in float32, which are
//! transformers' own (`agent/engine/golden`).

use crate::answers::{close_logprobs, equal_tokens, largest_logprob};
use crate::checks::Checks;
use crate::site::{Device, Site, TINY_LLAMA, TINY_QWEN3};
use anyhow::Result;
use pd_e2e::address;
use pd_e2e::client::Client;
use pd_e2e::fleet::FleetSpec;
use pd_e2e::prompts::{greedy, ids};
use pd_protocol::Role;
use serde_json::{Value, json};

/// Quantised weights stay packed on every device.
const MODELS: [&str; 5] = [
    TINY_LLAMA,
    TINY_QWEN3,
    "tiny-gguf/llama-q4_0.gguf",
    "tiny-gguf/llama-k.gguf",
    "tiny-gguf/qwen3-q8_0.gguf",
];
/// Float32 on both sides; only the order of sums differs.
const FLOAT32_BOUND: f64 = 1e-3;
/// Of the largest log probability: the share of the largest logit that the engine's golden models are
/// held to in bfloat16.
const BFLOAT16_SHARE: f64 = 5e-2;
const PROMPTS: &str = "input_token_logprobs";
const ANSWERS: &str = "output_token_logprobs";
const NEW_TOKENS: u32 = 32;

/// Prompts of one token and more, in one chunk and in several, with their own log probabilities.
fn requests() -> Vec<Value> {
    let lens = [1, 7, 16, 33, 64, 100, 257, 600];
    let prompts = (0..).zip(lens).map(|(seed, len)| {
        let mut request = greedy(&ids(seed, len), NEW_TOKENS);
        request["logprob_start_len"] = json!(0);
        request
    });
    prompts.collect()
}

pub(crate) async fn run(site: &Site, checks: &mut Checks) -> Result<()> {
    for model in MODELS {
        let expected = ask(&site.spec_on(Device::Cpu, model, "--dtype float32")).await?;
        let float32 = async {
            let got = ask(&site.spec(model, "--dtype float32")).await?;
            let tokens = equal_tokens(&got, &expected)?;
            let output = close_logprobs(&got, &expected, ANSWERS, FLOAT32_BOUND)?;
            let input = close_logprobs(&got, &expected, PROMPTS, FLOAT32_BOUND)?;
            Ok(format!(
                "{tokens} tokens equal; log probabilities off by {:.1e}, bound {FLOAT32_BOUND:e}",
                output.max(input)
            ))
        };
        checks.check(format!("{model} in float32"), float32).await;
        let bfloat16 = async {
            let got = ask(&site.spec(model, "--dtype bfloat16")).await?;
            let bound = BFLOAT16_SHARE * largest_logprob(&expected, PROMPTS)?;
            let off = close_logprobs(&got, &expected, PROMPTS, bound)?;
            Ok(format!(
                "prompts' log probabilities off by {off:.1e}, bound {bound:.1e}"
            ))
        };
        checks.check(format!("{model} in bfloat16"), bfloat16).await;
    }
    Ok(())
}

async fn ask(spec: &FleetSpec) -> Result<Vec<Value>> {
    let agent = spec.start_worker(Role::Unified, address::fresh()).await?;
    let url = format!("{}/generate", agent.url());
    Client::new().post_all(&url, &requests()).await
}
