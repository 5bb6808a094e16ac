//! Part `golden`: greedy answers of the device beside those of the CPU backend in float32, which are
//! transformers' own (`agent/engine/golden`).

use crate::answers::{close_logprobs, equal_tokens, half_close_logprobs, largest_logprob};
use crate::checks::Checks;
use crate::site::{Device, Site, TINY_DEEPSEEK_V3, TINY_GEMMA3, TINY_GPT_OSS};
use crate::site::{TINY_LLAMA, TINY_QWEN3, TINY_QWEN3_5_MOE};
use anyhow::Result;
use pd_e2e::address;
use pd_e2e::client::Client;
use pd_e2e::fleet::FleetSpec;
use pd_e2e::prompts::{constrained, greedy, ids};
use pd_protocol::Role;
use serde_json::{Value, json};

/// What a device may do otherwise than CPUs in float32.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Dense,
    /// Of integer codes, which CPUs multiply with activations of sixteen bits.
    Codes,
    /// With experts or recurrent states: in bfloat16 a token goes to other experts now and then, and
    /// states carry on what is rounded.
    Routed,
}

const MODELS: [(&str, Kind); 17] = [
    (TINY_LLAMA, Kind::Dense),
    ("tiny-qwen2", Kind::Dense),
    (TINY_QWEN3, Kind::Dense),
    (TINY_GEMMA3, Kind::Dense),
    ("tiny-mistral-full-fp8", Kind::Dense),
    ("tiny-gguf/llama-q4_0.gguf", Kind::Codes),
    ("tiny-gguf/llama-k.gguf", Kind::Codes),
    ("tiny-gguf/qwen3-q8_0.gguf", Kind::Codes),
    ("tiny-qwen3-moe", Kind::Routed),
    ("tiny-qwen3-moe-fp8", Kind::Routed),
    ("tiny-qwen3-5", Kind::Routed),
    (TINY_QWEN3_5_MOE, Kind::Routed),
    ("tiny-qwen3-next", Kind::Routed),
    (TINY_GPT_OSS, Kind::Routed),
    ("tiny-deepseek-v2", Kind::Routed),
    (TINY_DEEPSEEK_V3, Kind::Routed),
    ("tiny-deepseek-v3-fp8", Kind::Routed),
];
/// Float32 on both sides; only the order of sums differs.
const FLOAT32_BOUND: f64 = 1e-3;
/// Of the largest log probability: the shares of the largest logit that the engine's golden models are
/// held to with integer codes, and in bfloat16.
const CODES_SHARE: f64 = 5e-4;
const BFLOAT16_SHARE: f64 = 5e-2;
const PROMPTS: &str = "input_token_logprobs";
const ANSWERS: &str = "output_token_logprobs";
const NEW_TOKENS: u32 = 32;

/// Prompts of one token and more, in one chunk and in several, with their own log probabilities; two
/// answers are held by grammars.
fn requests() -> Vec<Value> {
    let lens = [1, 7, 16, 33, 64, 100, 257, 600];
    let free = (0..)
        .zip(lens)
        .map(|(seed, len)| greedy(&ids(seed, len), NEW_TOKENS));
    let held = constrained(&[9, 1, 70], NEW_TOKENS).into_iter().step_by(2);
    let mut requests: Vec<Value> = free.chain(held).collect();
    for request in &mut requests {
        request["logprob_start_len"] = json!(0);
    }
    requests
}

pub(crate) async fn run(site: &Site, checks: &mut Checks) -> Result<()> {
    for (model, kind) in MODELS {
        let on_cpus = site.spec_on(Device::Cpu, model, "--dtype float32");
        let name = format!("{model} on CPUs");
        let Some(expected) = checks.expected(name, ask(&on_cpus)).await else {
            continue;
        };
        let float32 = async {
            let got = ask(&site.spec(model, "--dtype float32")).await?;
            kind.check_float32(&got, &expected)
        };
        checks.check(format!("{model} in float32"), float32).await;
        let bfloat16 = async {
            let got = ask(&site.spec(model, "--dtype bfloat16")).await?;
            kind.check_bfloat16(&got, &expected)
        };
        checks.check(format!("{model} in bfloat16"), bfloat16).await;
    }
    Ok(())
}

// === impl Kind ===

impl Kind {
    fn check_float32(self, got: &[Value], expected: &[Value]) -> Result<String> {
        let bound = match self {
            Self::Dense | Self::Routed => FLOAT32_BOUND,
            Self::Codes => CODES_SHARE * largest_logprob(expected, PROMPTS)?,
        };
        let tokens = equal_tokens(got, expected)?;
        let output = close_logprobs(got, expected, ANSWERS, bound)?;
        let input = close_logprobs(got, expected, PROMPTS, bound)?;
        Ok(format!(
            "{tokens} tokens equal; log probabilities off by {:.1e}, bound {bound:.1e}",
            output.max(input)
        ))
    }

    fn check_bfloat16(self, got: &[Value], expected: &[Value]) -> Result<String> {
        let bound = BFLOAT16_SHARE * largest_logprob(expected, PROMPTS)?;
        let (off, which) = match self {
            Self::Dense | Self::Codes => {
                let off = close_logprobs(got, expected, PROMPTS, bound)?;
                (off, "prompts'")
            }
            Self::Routed => {
                let off = half_close_logprobs(got, expected, PROMPTS, bound)?;
                (off, "half of the prompts'")
            }
        };
        Ok(format!(
            "{which} log probabilities off by {off:.1e}, bound {bound:.1e}"
        ))
    }
}

async fn ask(spec: &FleetSpec) -> Result<Vec<Value>> {
    let agent = spec.start_worker(Role::Unified, address::fresh()).await?;
    let url = format!("{}/generate", agent.url());
    Client::new().post_all(&url, &requests()).await
}
