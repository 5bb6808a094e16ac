//! The autoscaler by what real engines say of themselves: long prompts make prefill grow, then long answers decode.

use anyhow::{Context, Result, ensure};
use pd_e2e::client::Client;
use pd_e2e::engines::{Engine, MODEL};
use pd_e2e::local::Local;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// A pool has grown by then, of engines that share two cores.
const GROWS_WITHIN: Duration = Duration::from_secs(240);
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Requests that are asked for again and again by so many clients.
#[derive(Clone, Copy)]
struct Load {
    clients: usize,
    prompt_words: usize,
    max_tokens: u32,
}

/// Together they are fewer tokens than a decode worker has room for: the context of an engine is 2,048 and more.
const LONG_PROMPTS: Load = Load {
    clients: 6,
    prompt_words: 250,
    max_tokens: 4,
};
/// Long for their prompts; SGLang counts an answer when it ends, after a minute on cores that two engines' workers share.
const LONG_ANSWERS: Load = Load {
    clients: 8,
    prompt_words: 8,
    max_tokens: 64,
};

pub(crate) async fn run(engine: &Engine) -> Result<()> {
    let name = engine.name;
    let mut deployment = engine.deployment()?;
    let spec = &mut deployment["spec"];
    for role in ["prefill", "decode"] {
        let pool = &mut spec["pools"][role];
        pool["replicas"].take();
        (pool["minReplicas"], pool["maxReplicas"]) = (json!(1), json!(2));
    }
    spec["slo"] = json!({"ttftMs": 1500, "tpotMs": 40});
    spec["autoscaling"] = json!({
        "mode": "Auto", "scaleUpWindowSeconds": 5, "scaleDownWindowSeconds": 900,
    });
    let folder = tempfile::tempdir()?;
    let env: Vec<(&str, &str)> = engine.env().collect();
    let text = deployment.to_string();
    let local = Local::start_with(folder.path(), &text, &env, engine.starts_within).await?;
    let grown = async {
        let calm = sizes(&local).await?;
        ensure!(calm == (1, 1), "{calm:?} before any load");
        grows(
            name,
            &local,
            "long prompts",
            &LONG_PROMPTS,
            |(prefill, _)| prefill == 2,
        )
        .await?;
        let (_, decode) = sizes(&local).await?;
        ensure!(decode == 1, "decode has grown under long prompts");
        grows(
            name,
            &local,
            "long answers",
            &LONG_ANSWERS,
            |(_, decode)| decode == 2,
        )
        .await
    };
    let grown = grown.await;
    grown.with_context(|| local.operator.log())?;
    local.stop().await
}

/// Applies a load until the pools have a size.
async fn grows(
    engine: &str,
    local: &Local,
    what: &str,
    load: &Load,
    holds: fn((usize, usize)) -> bool,
) -> Result<()> {
    let (began, mut said) = (Instant::now(), String::new());
    let mut clients = JoinSet::new();
    for nr in 0..load.clients {
        let (url, load) = (format!("{}/v1/chat/completions", local.base), *load);
        clients.spawn(async move { ask_again_and_again(&url, &load, nr).await });
    }
    loop {
        let size = sizes(local).await?;
        let newest = local
            .decisions()
            .await?
            .first()
            .cloned()
            .unwrap_or_default();
        let newest = newest["message"].as_str().unwrap_or_default().to_owned();
        if newest != said {
            let at = began.elapsed().as_secs_f64();
            eprintln!(
                "{engine}: {what}: {at:.0} s: P {} D {}: {newest}",
                size.0, size.1
            );
            said = newest;
        }
        if holds(size) {
            return Ok(());
        }
        ensure!(
            began.elapsed() < GROWS_WITHIN,
            "{what}: {size:?} after {GROWS_WITHIN:?}"
        );
        if let Some(ended) = clients.try_join_next() {
            let error = ended?;
            return Err(error.context(format!("{what}: a request failed")));
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Ends with the first request that fails.
async fn ask_again_and_again(url: &str, load: &Load, client: usize) -> anyhow::Error {
    let mut nr: usize = 0;
    loop {
        nr += 1;
        // No two prompts begin alike, so that no cache has them.
        let words = (0..load.prompt_words)
            .map(|word| format!("{}", (client * 7919 + nr * 104_729 + word * 31) % 1000));
        let words: Vec<String> = words.collect();
        let request = json!({
            "model": MODEL,
            "messages": [{"role": "user", "content": format!("{client}-{nr}: {}", words.join(" "))}],
            "max_tokens": load.max_tokens,
            "ignore_eos": true,
        });
        match Client::new().post(url, &request).await {
            Ok(answer) if answer.status == 200 => {}
            Ok(answer) => return anyhow::anyhow!("{}: {}", answer.status, answer.text()),
            Err(error) => return error,
        }
    }
}

/// Workers of prefill and of decode, ready or not.
async fn sizes(local: &Local) -> Result<(usize, usize)> {
    let pods = local.pods().await?;
    let count = |role: &str| {
        pods.iter()
            .filter(|pod: &&Value| pod["component"] == role)
            .count()
    };
    Ok((count("prefill"), count("decode")))
}
