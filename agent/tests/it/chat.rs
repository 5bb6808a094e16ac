//! `/v1/chat/completions`, as OpenAI's clients see it.

use crate::agent::Agent;
use serde_json::{Value, json};

const PATH: &str = "/v1/chat/completions";

fn ask(extra: Value) -> Value {
    let mut body = json!({
        "model": "tiny",
        "messages": [{"role": "user", "content": "Speak of the sea."}],
        "temperature": 0,
        "max_tokens": 12,
        "ignore_eos": true,
    });
    let fields = body.as_object_mut().unwrap();
    fields.extend(extra.as_object().unwrap().clone());
    body
}

#[tokio::test]
async fn an_answer_has_openais_shape() {
    let agent = Agent::start(&[]).await;
    let answer = agent
        .client
        .post(&agent.url(PATH), &ask(json!({})))
        .await
        .ok();
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["model"], "tiny");
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert!(answer["created"].as_u64().unwrap() > 0);
    let choice = &answer["choices"][0];
    assert_eq!(choice["index"], 0);
    assert_eq!(choice["message"]["role"], "assistant");
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(choice["logprobs"], Value::Null);
    let usage = &answer["usage"];
    assert_eq!(usage["completion_tokens"], 12);
    let total = usage["prompt_tokens"].as_u64().unwrap() + 12;
    assert_eq!(usage["total_tokens"], total);
    assert!(usage["prompt_tokens_details"]["cached_tokens"].is_u64());
    assert_eq!(answer["metadata"]["weight_version"], "default");
}

#[tokio::test]
async fn a_stream_has_the_same_text_and_ends_with_usage() {
    let agent = Agent::start(&[]).await;
    let whole = agent
        .client
        .post(&agent.url(PATH), &ask(json!({})))
        .await
        .ok();
    let body = ask(json!({"stream": true, "stream_options": {"include_usage": true}}));
    let events = agent
        .client
        .stream(&agent.url(PATH), &body)
        .await
        .all()
        .await;
    let text: String = events
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(
        text,
        whole["choices"][0]["message"]["content"].as_str().unwrap()
    );
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    assert!(
        events
            .iter()
            .all(|event| event["object"] == "chat.completion.chunk")
    );
    assert!(events.iter().all(|event| event["id"] == events[0]["id"]));
    let last = events.last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["completion_tokens"], 12);
    let ends = events
        .iter()
        .filter(|event| event["choices"][0]["finish_reason"] == "length");
    assert_eq!(ends.count(), 1);
}

#[tokio::test]
async fn logprobs_are_returned_for_every_token_of_the_text() {
    let agent = Agent::start(&[]).await;
    let body = ask(json!({"logprobs": true, "top_logprobs": 3}));
    let answer = agent.client.post(&agent.url(PATH), &body).await.ok();
    let tokens = answer["choices"][0]["logprobs"]["content"]
        .as_array()
        .unwrap();
    assert_eq!(tokens.len(), 12);
    let mut bytes = Vec::new();
    for token in tokens {
        let top = token["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        assert_eq!(
            top[0]["token"], token["token"],
            "greedy takes the likeliest"
        );
        assert_eq!(top[0]["logprob"], token["logprob"]);
        assert!(token["logprob"].as_f64().unwrap() <= 0.0);
        let own = token["bytes"].as_array().unwrap().iter();
        bytes.extend(own.map(|byte| u8::try_from(byte.as_u64().unwrap()).unwrap()));
    }
    let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
    assert_eq!(String::from_utf8_lossy(&bytes), text);
    let streamed = ask(json!({"logprobs": true, "top_logprobs": 3, "stream": true}));
    let events = agent
        .client
        .stream(&agent.url(PATH), &streamed)
        .await
        .all()
        .await;
    let streamed = events
        .iter()
        .filter_map(|e| e["choices"][0]["logprobs"]["content"].as_array());
    let streamed: Vec<Value> = streamed.flatten().cloned().collect();
    assert_eq!(&streamed, tokens);
}

#[tokio::test]
async fn choices_differ_and_a_seed_repeats_them() {
    let agent = Agent::start(&[]).await;
    let body = ask(json!({"n": 3, "temperature": 1.5, "seed": 7}));
    let texts = |answer: &Value| -> Vec<Value> {
        let choices = answer["choices"].as_array().unwrap().iter();
        choices
            .map(|choice| choice["message"]["content"].clone())
            .collect()
    };
    let first = agent.client.post(&agent.url(PATH), &body).await.ok();
    let again = agent.client.post(&agent.url(PATH), &body).await.ok();
    assert_eq!(texts(&first).len(), 3);
    assert_ne!(texts(&first)[0], texts(&first)[1]);
    assert_eq!(texts(&first), texts(&again));
    assert_eq!(first["usage"]["completion_tokens"], 36);
    let indices: Vec<_> = first["choices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| &c["index"])
        .collect();
    assert_eq!(indices, [0, 1, 2]);
}

#[tokio::test]
async fn a_stop_string_ends_the_answer_and_is_not_in_it() {
    let agent = Agent::start(&[]).await;
    let whole = agent
        .client
        .post(&agent.url(PATH), &ask(json!({})))
        .await
        .ok();
    let text = whole["choices"][0]["message"]["content"]
        .as_str()
        .unwrap()
        .to_owned();
    let middle: Vec<char> = text.chars().collect();
    let stop: String = middle[middle.len() / 2..middle.len() / 2 + 2]
        .iter()
        .collect();
    let expected = text.split(&stop).next().unwrap();
    let body = ask(json!({"stop": [stop]}));
    let stopped = agent.client.post(&agent.url(PATH), &body).await.ok();
    let choice = &stopped["choices"][0];
    assert_eq!(choice["message"]["content"], expected);
    assert_eq!(choice["finish_reason"], "stop");
    assert_eq!(choice["matched_stop"], stop);
    let streamed = ask(json!({"stop": stop, "stream": true}));
    let events = agent
        .client
        .stream(&agent.url(PATH), &streamed)
        .await
        .all()
        .await;
    let streamed: String = events
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(streamed, expected);
}

#[tokio::test]
async fn parts_of_a_message_are_one_text() {
    let agent = Agent::start(&[]).await;
    let parts = json!([{"type": "text", "text": "Speak"}, {"type": "text", "text": "of the sea."}]);
    let body = ask(json!({"messages": [{"role": "user", "content": parts}]}));
    let answer = agent.client.post(&agent.url(PATH), &body).await.ok();
    let whole = agent
        .client
        .post(&agent.url(PATH), &ask(json!({})))
        .await
        .ok();
    assert_eq!(answer["choices"], whole["choices"]);
}

#[tokio::test]
async fn any_model_and_fields_that_ask_for_nothing_are_served() {
    let agent = Agent::start(&[]).await;
    let plain = agent.client.post(&agent.url(PATH), &ask(json!({}))).await;
    let with_more = ask(json!({
        "model": "default", "tools": [], "tool_choice": "none", "functions": null,
        "response_format": {"type": "text"}, "n": 1, "lora_path": null, "user": "ada",
        "parallel_tool_calls": true, "service_tier": "auto", "metadata": {"a": "b"},
    }));
    let answer = agent.client.post(&agent.url(PATH), &with_more).await.ok();
    assert_eq!(answer["choices"], plain.ok()["choices"]);
    assert_eq!(answer["model"], "tiny");
}

#[tokio::test]
async fn a_continued_message_is_part_of_the_prompt() {
    let agent = Agent::start(&[]).await;
    let messages = json!([
        {"role": "user", "content": "Speak of the sea."},
        {"role": "assistant", "content": "The sea is"},
    ]);
    let body = ask(json!({"messages": messages, "continue_final_message": true}));
    let continued = agent.client.post(&agent.url(PATH), &body).await.ok();
    let prompt = "<|im_start|>user\nSpeak of the sea.<|im_end|>\n<|im_start|>assistant\nThe sea is";
    let text = json!({"prompt": prompt, "temperature": 0, "max_tokens": 1});
    let text = agent
        .client
        .post(&agent.url("/v1/completions"), &text)
        .await
        .ok();
    assert_eq!(
        continued["usage"]["prompt_tokens"],
        text["usage"]["prompt_tokens"]
    );
}
