//! Asks a question through the OpenAI API and prints the answer as it streams.

use anyhow::{Context, Result};
use pd_e2e::client::Client;
use serde_json::{Value, json};
use std::io::Write;
use std::time::Instant;

pub(crate) struct Question {
    pub(crate) text: String,
    pub(crate) max_tokens: u32,
}

pub(crate) struct AnswerTrace {
    /// Name under which the model is served.
    pub(crate) model: String,
    pub(crate) token_ids: Vec<u64>,
    /// Headers that name the room and the workers; empty from a unified agent.
    pub(crate) headers: hyper::HeaderMap,
}

// === impl Question ===

impl Question {
    /// # Errors
    /// When the endpoint refuses the question or the stream breaks.
    pub(crate) async fn ask(&self, base: &str) -> Result<AnswerTrace> {
        let client = Client::new();
        let models = client.get(&format!("{base}/v1/models")).await?.json()?;
        let model = models["data"][0]["id"]
            .as_str()
            .context("the endpoint serves no model")?;
        let body = json!({
            "model": model,
            "messages": [{"role": "user", "content": self.text}],
            "temperature": 0,
            "max_tokens": self.max_tokens,
            "stream": true,
            "stream_options": {"include_usage": true},
            "return_token_ids": true,
        });
        println!("user: {}", self.text);
        print!("{model}: ");
        let started = Instant::now();
        let mut stream = client
            .stream(&format!("{base}/v1/chat/completions"), &body)
            .await?;
        let mut first_token_ms = None;
        let mut token_ids = Vec::new();
        while let Some(data) = stream.next().await? {
            if data == "[DONE]" {
                break;
            }
            let event: Value = serde_json::from_str(&data).context("an event is JSON")?;
            if let Some(message) = event["error"]["message"].as_str() {
                anyhow::bail!("the stream ended with an error: {message}");
            }
            let choice = &event["choices"][0];
            if let Some(ids) = choice["token_ids"].as_array() {
                token_ids.extend(ids.iter().filter_map(Value::as_u64));
            }
            if let Some(text) = choice["delta"]["content"]
                .as_str()
                .filter(|t| !t.is_empty())
            {
                first_token_ms.get_or_insert_with(|| started.elapsed().as_secs_f64() * 1e3);
                print!("{text}");
                std::io::stdout().flush()?;
            }
        }
        let total_ms = started.elapsed().as_secs_f64() * 1e3;
        println!(
            "\n[{} tokens; first after {:.0} ms, last after {total_ms:.0} ms]",
            token_ids.len(),
            first_token_ms.unwrap_or(total_ms)
        );
        anyhow::ensure!(!token_ids.is_empty(), "the answer carried no token ids");
        Ok(AnswerTrace {
            model: model.to_owned(),
            token_ids,
            headers: stream.headers.clone(),
        })
    }
}
