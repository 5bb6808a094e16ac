//! Disaggregated = unified, bit for bit, over processes: token ids, text and logprobs.

use anyhow::{Context, Result, ensure};
use pd_e2e::client::Client;
use pd_e2e::fleet::{Fleet, FleetSpec, words};
use pd_e2e::metrics::Metrics;
use pd_e2e::prompts::{echoed, essence, ragged};
use pd_e2e::{address, binaries};
use pd_protocol::Role;
use serde_json::{Value, json};

/// Asks a unified agent with its own chunking, one request at a time, and the fleet all at once; gives back the fleet.
/// `agent` are flags of the fleet's agents alone.
async fn same_answers(
    mut spec: FleetSpec,
    agent: &str,
    chunk: u32,
    requests: &[Value],
) -> Result<Fleet> {
    let reference = spec.start_worker(Role::Unified, address::fresh()).await?;
    let client = Client::new();
    let mut expected = Vec::new();
    for request in requests {
        let one = std::slice::from_ref(request);
        let url = format!("{}/generate", reference.url());
        expected.extend(client.post_all(&url, one).await?);
    }
    drop(reference);

    spec.agent_args.extend(words(agent));
    spec.prefill_args = words(&format!("--chunked-prefill-size {chunk}"));
    let fleet = spec.start().await?;
    // Twice: the second round finds its prefixes in prefill's cache.
    for round in ["cold", "cached"] {
        let answers = client.post_all(&fleet.url("/generate"), requests).await?;
        for (i, (answer, expected)) in answers.iter().zip(&expected).enumerate() {
            let (answer, expected) = (essence(answer), essence(expected));
            ensure!(
                answer == expected,
                "{agent} chunk {chunk}, {round}, request {i} differs:\n {answer}\n {expected}\n{}",
                fleet.logs()
            );
        }
    }
    Ok(fleet)
}

fn tiny(model: &str) -> FleetSpec {
    FleetSpec::new(binaries::tiny_model(model))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tiny_llama_over_every_transport_and_page_size() -> Result<()> {
    let requests = ragged(&[1, 5, 16, 17, 64, 65, 130, 200, 333], 24);
    for (transport, page_size, chunk) in [
        ("shm", 16, 64),
        ("tcp", 16, 64),
        ("shm", 1, 32),
        ("tcp", 64, 128),
        ("tcp", 1, 512),
    ] {
        let agent =
            format!("--disaggregation-transfer-backend {transport} --page-size {page_size}");
        same_answers(tiny("tiny-llama"), &agent, chunk, &requests).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tiny_qwen3_over_every_transport() -> Result<()> {
    let requests = ragged(&[3, 33, 100, 257], 24);
    for transport in ["shm", "tcp"] {
        let agent = format!("--disaggregation-transfer-backend {transport} --page-size 16");
        same_answers(tiny("tiny-qwen3"), &agent, 64, &requests).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_and_values_in_e4m3_over_shm_and_tcp() -> Result<()> {
    let requests = ragged(&[3, 33, 100, 257], 24);
    for (model, transport) in [("tiny-qwen3", "shm"), ("tiny-deepseek-v3", "tcp")] {
        let mut spec = tiny(model);
        spec.agent_args = words("--kv-cache-dtype fp8_e4m3");
        let agent = format!("--disaggregation-transfer-backend {transport} --page-size 4");
        same_answers(spec, &agent, 64, &requests).await?;
    }
    Ok(())
}

/// Recurrent state moves with the last chunk, and begins at cached prefixes in the second round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tiny_qwen3_5_moe_over_every_transport() -> Result<()> {
    let requests = ragged(&[3, 33, 150, 257], 24);
    for transport in ["shm", "tcp"] {
        let agent = format!("--disaggregation-transfer-backend {transport} --page-size 16");
        same_answers(tiny("tiny-qwen3-5-moe"), &agent, 64, &requests).await?;
    }
    Ok(())
}

/// Drafts of the request, of a model that is wrong at times and of the model's own layer. The entries of that layer
/// come from prefill.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drafts_change_no_answer() -> Result<()> {
    let requests = ragged(&[3, 33, 150, 257], 24);
    let standalone = format!(
        "STANDALONE --speculative-draft-model-path {}",
        binaries::tiny_model("tiny-qwen3").display()
    );
    for (model, algorithm) in [
        ("tiny-llama", "NGRAM"),
        ("tiny-llama", &standalone),
        ("tiny-qwen3-5-moe", "NEXTN"),
        ("tiny-deepseek-v3", "NEXTN"),
    ] {
        let agent = format!("--speculative-algorithm {algorithm} --speculative-num-steps 3");
        let fleet = same_answers(tiny(model), &agent, 64, &requests).await?;
        let decode = fleet.workers.iter().find(|one| one.role == Role::Decode);
        let decode = decode.context("the fleet has a decode worker")?;
        let metrics = Metrics::scrape(&fleet.client, &decode.url()).await?;
        let drafts = metrics.sum("pdserve_spec_draft_tokens_total", &[]);
        ensure!(drafts > 0.0, "{agent} drafted nothing");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn smollm2_over_shm_and_tcp() -> Result<()> {
    let requests = ragged(&[20, 150, 700], 32);
    for transport in ["shm", "tcp"] {
        let agent = format!("--disaggregation-transfer-backend {transport} --page-size 16");
        same_answers(FleetSpec::new(binaries::smollm2()), &agent, 256, &requests).await?;
    }
    Ok(())
}

/// Choices and usage of a completion, in one piece and as events of each choice.
async fn completion(client: &Client, url: &str, request: &Value) -> Result<[Value; 2]> {
    let plain = client.post(url, request).await?;
    ensure!(
        plain.status == 200,
        "{url} answered {}: {}",
        plain.status,
        plain.text()
    );
    let plain = plain.json()?;
    let mut request = request.clone();
    request["stream"] = json!(true);
    request["stream_options"] = json!({"include_usage": true});
    let events = client.stream(url, &request).await?.rest().await?;
    let choices = events
        .iter()
        .filter_map(|event| event["choices"].as_array());
    let mut choices: Vec<&Value> = choices.flatten().collect();
    // Choices run side by side; the order within each counts.
    choices.sort_by_key(|choice| choice["index"].as_u64());
    let usage = events.last().map(|event| &event["usage"]);
    Ok([
        json!({"choices": plain["choices"], "usage": plain["usage"]}),
        json!({"choices": choices, "usage": usage}),
    ])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn echoed_prompts_and_their_logprobs() -> Result<()> {
    let mut spec = FleetSpec::new(binaries::tiny_model("tiny-llama"));
    spec.agent_args = words("--page-size 16");
    let alone = spec.start_worker(Role::Unified, address::fresh()).await?;
    let alone_url = format!("{}/v1/completions", alone.url());
    spec.prefill_args = words("--chunked-prefill-size 64");
    let fleet = spec.start().await?;
    for request in echoed() {
        let expected = completion(&fleet.client, &alone_url, &request).await?;
        let answers = completion(&fleet.client, &fleet.url("/v1/completions"), &request).await?;
        ensure!(
            answers == expected,
            "{request} differs:\n {answers:?}\n {expected:?}\n{}",
            fleet.logs()
        );
        let lists = &answers[0]["choices"][0]["logprobs"];
        ensure!(lists["token_logprobs"][0].is_null(), "{lists}");
        let first = &answers[1]["choices"][0]["logprobs"];
        ensure!(first["tokens"][0] == lists["tokens"][0], "{first}");
    }
    Ok(())
}
