//! What one process answers, which a deployment must answer too.

use anyhow::Result;
use pd_e2e::binaries::smollm2;
use pd_e2e::client::Client;
use pd_e2e::fleet::FleetSpec;
use pd_e2e::load::Known;
use pd_e2e::prompts::{greedy, ids};
use pd_protocol::Role;
use serde_json::json;

/// Questions whose answers traffic knows, and their lengths in tokens.
const QUESTIONS: u64 = 8;
const PROMPT_LEN: usize = 96;
const ANSWER_LEN: u32 = 24;

/// What a unified agent answers.
pub(super) async fn learn() -> Result<(Vec<Known>, String)> {
    let mut spec = FleetSpec::new(smollm2());
    spec.agent_args = vec!["--served-model-name".to_owned(), "smollm2".to_owned()];
    let agent = spec
        .start_worker(Role::Unified, pd_e2e::address::fresh())
        .await?;
    let (client, url) = (Client::new(), format!("{}/generate", agent.url()));
    let mut known = Vec::new();
    for seed in 0..QUESTIONS {
        let request = greedy(&ids(seed, PROMPT_LEN), ANSWER_LEN);
        known.push(Known::learn(&client, &url, request).await?);
    }
    let said = chat(&agent.url()).await?;
    Ok((known, said))
}

/// A chat, streamed, from an OpenAI endpoint.
pub(crate) async fn chat(base: &str) -> Result<String> {
    chat_over(&Client::new(), base).await
}

pub(crate) async fn chat_over(client: &Client, base: &str) -> Result<String> {
    let request = json!({
        "model": "smollm2", "stream": true, "temperature": 0, "max_tokens": 24,
        "messages": [{"role": "user", "content": "Name three colours."}],
    });
    let url = format!("{base}/v1/chat/completions");
    client.stream(&url, &request).await?.said(|| ()).await
}
