//! `/v1/completions`, as OpenAI's clients see it.

use crate::agent::Agent;
use serde_json::{Value, json};

const PATH: &str = "/v1/completions";

fn ask(prompt: &Value, extra: &Value) -> Value {
    let mut body = json!({
        "model": "tiny", "prompt": prompt, "temperature": 0, "max_tokens": 8, "ignore_eos": true,
    });
    let fields = body.as_object_mut().unwrap();
    fields.extend(extra.as_object().unwrap().clone());
    body
}

async fn answer(agent: &Agent, prompt: Value, extra: Value) -> Value {
    agent
        .client
        .post(&agent.url(PATH), &ask(&prompt, &extra))
        .await
        .ok()
}

fn texts(answer: &Value) -> Vec<&str> {
    let choices = answer["choices"].as_array().unwrap().iter();
    choices
        .map(|choice| choice["text"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn prompts_come_as_text_ids_or_lists_of_either() {
    let agent = Agent::start(&[]).await;
    let one = answer(&agent, json!("the sea"), json!({})).await;
    assert_eq!(one["object"], "text_completion");
    assert_eq!(one["choices"][0]["finish_reason"], "length");
    let many = answer(&agent, json!(["the sea", "the sky"]), json!({})).await;
    assert_eq!(texts(&many)[0], texts(&one)[0]);
    assert_eq!(texts(&many).len(), 2);
    let ids = answer(&agent, json!([5, 6, 7]), json!({})).await;
    assert_eq!(ids["usage"]["prompt_tokens"], 3);
    let lists = answer(&agent, json!([[5, 6, 7], [8]]), json!({"n": 2})).await;
    assert_eq!(texts(&lists).len(), 4);
    assert_eq!(texts(&lists)[0], texts(&ids)[0]);
    assert_eq!(lists["usage"]["prompt_tokens"], 4);
    assert_eq!(lists["usage"]["completion_tokens"], 32);
}

#[tokio::test]
async fn the_default_length_is_sixteen() {
    let agent = Agent::start(&[]).await;
    let answer = answer(&agent, json!("a"), json!({"max_tokens": null})).await;
    assert_eq!(answer["usage"]["completion_tokens"], 16);
}

#[tokio::test]
async fn logprobs_lie_side_by_side() {
    let agent = Agent::start(&[]).await;
    let answer = answer(&agent, json!("the sea"), json!({"logprobs": 2})).await;
    let logprobs = &answer["choices"][0]["logprobs"];
    let tokens = logprobs["tokens"].as_array().unwrap();
    assert_eq!(tokens.len(), 8);
    assert_eq!(logprobs["token_logprobs"].as_array().unwrap().len(), 8);
    assert_eq!(logprobs["top_logprobs"].as_array().unwrap().len(), 8);
    assert_eq!(logprobs["text_offset"][0], 0);
    let first_len = tokens[0].as_str().unwrap().chars().count();
    assert_eq!(logprobs["text_offset"][1], first_len);
}

#[tokio::test]
async fn an_echoed_prompt_comes_with_its_logprobs() {
    let agent = Agent::start(&[]).await;
    let plain = answer(&agent, json!("the sea"), json!({})).await;
    let echoed = answer(
        &agent,
        json!("the sea"),
        json!({"echo": true, "logprobs": 0}),
    )
    .await;
    assert_eq!(texts(&echoed)[0], format!("the sea{}", texts(&plain)[0]));
    let prompt_tokens =
        usize::try_from(echoed["usage"]["prompt_tokens"].as_u64().unwrap()).unwrap();
    let logprobs = echoed["choices"][0]["logprobs"]["token_logprobs"]
        .as_array()
        .unwrap();
    assert_eq!(logprobs.len(), prompt_tokens + 8);
    assert_eq!(logprobs[0], Value::Null);
    assert!(logprobs[1..].iter().all(Value::is_number));
}

#[tokio::test]
async fn no_token_asked_for_is_an_echo_with_logprobs() {
    let agent = Agent::start(&[]).await;
    let scored = json!({"echo": true, "logprobs": 2, "max_tokens": 0});
    let none = answer(&agent, json!("the sea"), scored.clone()).await;
    let one = answer(
        &agent,
        json!("the sea"),
        json!({"echo": true, "logprobs": 2, "max_tokens": 1}),
    )
    .await;
    assert_eq!(texts(&none), ["the sea"]);
    assert_eq!(none["choices"][0]["finish_reason"], "length");
    let (prompt_tokens, usage) = (&one["usage"]["prompt_tokens"], &none["usage"]);
    assert_eq!(usage["completion_tokens"], 0);
    assert_eq!(
        (&usage["prompt_tokens"], &usage["total_tokens"]),
        (prompt_tokens, prompt_tokens)
    );
    for (list, values) in none["choices"][0]["logprobs"].as_object().unwrap() {
        let with_one = one["choices"][0]["logprobs"][list].as_array().unwrap();
        assert_eq!(values.as_array().unwrap(), &with_one[..with_one.len() - 1]);
    }
    let mut streamed = ask(&json!("the sea"), &scored);
    streamed["stream"] = json!(true);
    let mut stream = agent.client.stream(&agent.url(PATH), &streamed).await;
    assert_eq!(stream.all().await[0]["choices"], none["choices"]);
}

#[tokio::test]
async fn a_stream_has_the_same_texts() {
    let agent = Agent::start(&[]).await;
    let prompts = json!(["the sea", "the sky"]);
    let whole = answer(&agent, prompts.clone(), json!({})).await;
    let body = ask(
        &prompts,
        &json!({"stream": true, "stream_options": {"include_usage": true}}),
    );
    let events = agent
        .client
        .stream(&agent.url(PATH), &body)
        .await
        .all()
        .await;
    let streamed = |index: u64| -> String {
        let choices = events.iter().map(|event| &event["choices"][0]);
        let own = choices.filter(|choice| choice["index"] == index);
        own.filter_map(|choice| choice["text"].as_str()).collect()
    };
    assert_eq!(
        [streamed(0), streamed(1)],
        [texts(&whole)[0], texts(&whole)[1]]
    );
    assert_eq!(events.last().unwrap()["usage"]["completion_tokens"], 16);
}

#[tokio::test]
async fn each_event_may_carry_the_usage_so_far() {
    let agent = Agent::start(&[]).await;
    let chat = json!({"messages": [{"role": "user", "content": "the sea"}]});
    for (path, prompt) in [
        (PATH, json!({"prompt": "the sea"})),
        ("/v1/chat/completions", chat),
    ] {
        let mut body = json!({
            "temperature": 0, "max_tokens": 8, "ignore_eos": true, "stream": true,
            "stream_options": {"include_usage": true, "continuous_usage_stats": true},
        });
        let fields = body.as_object_mut().unwrap();
        fields.extend(prompt.as_object().unwrap().clone());
        let mut stream = agent.client.stream(&agent.url(path), &body).await;
        let usages: Vec<Value> = stream
            .all()
            .await
            .iter()
            .map(|e| e["usage"].clone())
            .collect();
        let counts = usages
            .iter()
            .map(|u| u["completion_tokens"].as_u64().unwrap());
        assert!(counts.is_sorted() && usages.len() > 2, "{usages:?}");
        let last = usages.last().unwrap();
        assert_eq!(last["completion_tokens"], 8);
        for usage in &usages {
            assert_eq!(usage["prompt_tokens"], last["prompt_tokens"]);
            let sum = usage["prompt_tokens"].as_u64().unwrap()
                + usage["completion_tokens"].as_u64().unwrap();
            assert_eq!(usage["total_tokens"], sum);
        }
    }
}
