//! Part `graphs`: answers have the same bits whether decode steps are replayed as graphs or launched
//! kernel by kernel, and whether a step is launched before the one before it is known.

use crate::answers::equal_bits;
use crate::checks::Checks;
use crate::site::{Site, TINY_QWEN3};
use anyhow::{Result, ensure};
use pd_e2e::client::Client;
use pd_e2e::prompts::ragged;
use serde_json::Value;

const VARIANTS: [&str; 3] = [
    "--disable-cuda-graph",
    "--disable-overlap-schedule",
    "--disable-cuda-graph --disable-overlap-schedule",
];
/// What an agent says where the driver makes no graph, and nothing is shown.
const NO_GRAPH: &str = "no graph of a step";

pub(crate) async fn run(site: &Site, checks: &mut Checks) -> Result<()> {
    for dtype in ["bfloat16", "float32"] {
        let flags = format!("--dtype {dtype} --enable-deterministic-inference");
        let expected = ask(site, &flags).await?;
        for variant in VARIANTS {
            let check = async {
                let got = ask(site, &format!("{flags} {variant}")).await?;
                let tokens = equal_bits(&got, &expected)?;
                Ok(format!("{tokens} tokens and their log probabilities"))
            };
            checks.check(format!("{dtype} {variant}"), check).await;
        }
    }
    Ok(())
}

/// Two rounds, so that steps come again; each batch shrinks as its answers end.
async fn ask(site: &Site, flags: &str) -> Result<Vec<Value>> {
    let agent = site.alone(TINY_QWEN3, flags).await?;
    let url = format!("{}/generate", agent.url());
    let mut answers = Vec::new();
    for lens in [[3, 17, 64, 90, 150, 260], [5, 18, 61, 95, 170, 250]] {
        let mut requests = ragged(&lens, 16);
        for (request, tokens) in requests.iter_mut().zip((16..).step_by(16)) {
            request["sampling_params"]["max_new_tokens"] = Value::from(tokens);
        }
        answers.extend(Client::new().post_all(&url, &requests).await?);
    }
    let log = agent.process.log();
    ensure!(!log.contains(NO_GRAPH), "{log}");
    Ok(answers)
}
