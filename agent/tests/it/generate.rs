//! `/generate`, as SGLang's clients see it.

use crate::agent::Agent;
use serde_json::{Value, json};

const PATH: &str = "/generate";

async fn answer(agent: &Agent, body: Value) -> Value {
    agent.client.post(&agent.url(PATH), &body).await.ok()
}

fn greedy(tokens: u32) -> Value {
    json!({"temperature": 0, "max_new_tokens": tokens, "ignore_eos": true})
}

#[tokio::test]
async fn an_answer_has_sglangs_shape() {
    let agent = Agent::start(&[]).await;
    let body = json!({"text": "the sea", "sampling_params": greedy(6), "rid": "mine"});
    let answer = answer(&agent, body).await;
    assert!(answer["text"].is_string());
    assert_eq!(answer["output_ids"].as_array().unwrap().len(), 6);
    let meta = &answer["meta_info"];
    assert_eq!(meta["id"], "mine");
    assert_eq!(
        meta["finish_reason"],
        json!({"type": "length", "length": 6})
    );
    assert_eq!(meta["completion_tokens"], 6);
    assert!(meta["prompt_tokens"].as_u64().unwrap() > 0);
    assert!(meta["cached_tokens"].is_u64());
    assert!(meta["e2e_latency"].as_f64().unwrap() > 0.0);
    assert_eq!(meta["weight_version"], "default");
    assert!(meta.get("output_token_logprobs").is_none());
}

#[tokio::test]
async fn a_prompt_is_scored_without_an_answer() {
    let agent = Agent::start(&[]).await;
    let body = json!({
        "input_ids": [5, 6, 7, 8], "sampling_params": greedy(0), "return_logprob": true,
        "logprob_start_len": 0,
    });
    let answer = answer(&agent, body).await;
    let meta = &answer["meta_info"];
    assert_eq!(
        (&answer["text"], &answer["output_ids"]),
        (&json!(""), &json!([]))
    );
    assert_eq!(
        meta["finish_reason"],
        json!({"type": "length", "length": 0})
    );
    assert_eq!(meta["input_token_logprobs"].as_array().unwrap().len(), 4);
    assert_eq!(meta["output_token_logprobs"], json!([]));
}

#[tokio::test]
async fn logprobs_are_tuples_of_prompt_and_answer() {
    let agent = Agent::start(&[]).await;
    let body = json!({
        "input_ids": [5, 6, 7, 8], "sampling_params": greedy(3), "return_logprob": true,
        "logprob_start_len": 0, "top_logprobs_num": 2, "return_text_in_logprobs": true,
    });
    let answer = answer(&agent, body).await;
    let meta = &answer["meta_info"];
    let input = meta["input_token_logprobs"].as_array().unwrap();
    let ids: Vec<_> = input
        .iter()
        .map(|tuple| tuple[1].as_u64().unwrap())
        .collect();
    assert_eq!(ids, [5, 6, 7, 8]);
    assert_eq!(input[0][0], Value::Null);
    assert!(input[1][0].is_number());
    let output = meta["output_token_logprobs"].as_array().unwrap();
    let ids: Vec<_> = output.iter().map(|tuple| tuple[1].clone()).collect();
    assert_eq!(&Value::from(ids), &answer["output_ids"]);
    assert!(output.iter().all(|tuple| tuple[2].is_string()));
    assert_eq!(meta["output_top_logprobs"][0].as_array().unwrap().len(), 2);
    assert_eq!(meta["input_top_logprobs"][0], Value::Null);
}

#[tokio::test]
async fn named_tokens_have_tuples_at_each_position() {
    let agent = Agent::start(&[]).await;
    let body = json!({
        "input_ids": [[5, 6, 7, 8], [9, 5]], "sampling_params": greedy(3), "return_logprob": true,
        "logprob_start_len": 0, "return_text_in_logprobs": true,
        "token_ids_logprob": [[7, 40, 7], []],
    });
    let answers = answer(&agent, body).await;
    let meta = &answers[0]["meta_info"];
    let list = |name: &str| meta[name].as_array().unwrap().clone();
    let (input, output) = (
        list("input_token_ids_logprobs"),
        list("output_token_ids_logprobs"),
    );
    assert_eq!((input.len(), output.len()), (4, 3));
    assert_eq!(input[0], Value::Null);
    for tuples in input[1..].iter().chain(&output) {
        let tuples = tuples.as_array().unwrap();
        let ids: Vec<_> = tuples.iter().map(|tuple| tuple[1].clone()).collect();
        assert_eq!(ids, [7, 40, 7]);
        assert!(
            tuples
                .iter()
                .all(|tuple| tuple[0].as_f64().unwrap() < 0.0 && tuple[2].is_string())
        );
        assert_eq!(tuples[0], tuples[2]);
    }
    // Of the prompt's third token, which is one of them.
    assert_eq!(input[2][0], list("input_token_logprobs")[2]);
    assert!(
        answers[1]["meta_info"]
            .get("output_token_ids_logprobs")
            .is_none()
    );
    let unasked = json!({"text": "a", "sampling_params": greedy(1), "token_ids_logprob": [7]});
    let unasked = answer(&agent, unasked).await;
    assert!(
        unasked["meta_info"]
            .get("output_token_ids_logprobs")
            .is_none()
    );
}

#[tokio::test]
async fn a_batch_is_answered_in_order_with_settings_of_its_own() {
    let agent = Agent::start(&[]).await;
    let body = json!({
        "text": ["the sea", "the sky"],
        "sampling_params": [greedy(2), greedy(4)],
        "rid": ["a", "b"],
    });
    let answers = answer(&agent, body).await;
    assert_eq!(answers[0]["meta_info"]["completion_tokens"], 2);
    assert_eq!(answers[1]["meta_info"]["completion_tokens"], 4);
    assert_eq!(answers[1]["meta_info"]["id"], "b");
    let alone = json!({"text": "the sky", "sampling_params": greedy(4)});
    assert_eq!(
        answer(&agent, alone).await["output_ids"],
        answers[1]["output_ids"]
    );
}

#[tokio::test]
async fn events_hold_the_whole_answer_so_far() {
    let agent = Agent::start(&[]).await;
    let body = json!({"text": "the sea", "sampling_params": greedy(6), "stream": true});
    let events = agent
        .client
        .stream(&agent.url(PATH), &body)
        .await
        .all()
        .await;
    let whole = answer(
        &agent,
        json!({"text": "the sea", "sampling_params": greedy(6)}),
    )
    .await;
    let last = events.last().unwrap();
    assert_eq!(last["text"], whole["text"]);
    assert_eq!(last["output_ids"], whole["output_ids"]);
    assert_eq!(last["meta_info"]["finish_reason"]["type"], "length");
    assert_eq!(events[0]["meta_info"]["finish_reason"], Value::Null);
    for pair in events.windows(2) {
        let (before, after) = (pair[0]["text"].as_str(), pair[1]["text"].as_str());
        assert!(after.unwrap().starts_with(before.unwrap()));
    }
}

#[tokio::test]
async fn a_stop_id_is_matched_and_not_in_the_text() {
    let agent = Agent::start(&[]).await;
    let whole = answer(
        &agent,
        json!({"text": "the sea", "sampling_params": greedy(6)}),
    )
    .await;
    let third = whole["output_ids"][2].as_u64().unwrap();
    let mut sampling = greedy(6);
    sampling["stop_token_ids"] = json!([third]);
    let stopped = answer(
        &agent,
        json!({"text": "the sea", "sampling_params": sampling}),
    )
    .await;
    let reason = &stopped["meta_info"]["finish_reason"];
    assert_eq!(reason, &json!({"type": "stop", "matched": third}));
    assert!(
        whole["text"]
            .as_str()
            .unwrap()
            .starts_with(stopped["text"].as_str().unwrap())
    );
}

#[tokio::test]
async fn a_prompt_asked_twice_is_found_in_the_cache_until_flushed() {
    let agent = Agent::start(&[]).await;
    let ids: Vec<u32> = (0..200).map(|i| 5 + i % 200).collect();
    let body = json!({"input_ids": ids, "sampling_params": greedy(2)});
    let cached = |answer: &Value| answer["meta_info"]["cached_tokens"].as_u64().unwrap();
    assert_eq!(cached(&answer(&agent, body.clone()).await), 0);
    assert!(cached(&answer(&agent, body.clone()).await) >= 128);
    agent.wait_idle().await;
    assert_eq!(
        agent.client.get(&agent.url("/flush_cache")).await.status,
        200
    );
    assert_eq!(cached(&answer(&agent, body).await), 0);
}
