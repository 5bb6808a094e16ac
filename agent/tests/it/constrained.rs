//! Answers that a grammar constrains, by the fields of three APIs, over a checkpoint whose weights are random.

use crate::agent::Agent;
use crate::disaggregation::{both_legs, start};
use serde_json::{Value, json};

pub(crate) const CHAT: &str = "/v1/chat/completions";

/// A request whose answers differ by their seed.
pub(crate) fn chat(seed: u64, extra: Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "user", "content": "Speak of the sea."}],
        "temperature": 1.0, "seed": seed, "max_tokens": 400,
    });
    let fields = body.as_object_mut().unwrap();
    fields.extend(extra.as_object().unwrap().clone());
    body
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": {"enum": ["ebb", "flow"]},
            "depth": {"type": "integer", "minimum": 1, "maximum": 40},
            "calm": {"type": "boolean"},
        },
        "required": ["name", "depth", "calm"],
        "additionalProperties": false,
    })
}

fn by_schema() -> Value {
    let named = json!({"name": "sea", "strict": true, "schema": schema()});
    json!({"response_format": {"type": "json_schema", "json_schema": named}})
}

#[track_caller]
fn assert_is_of_schema(choice: &Value) {
    assert_eq!(choice["finish_reason"], "stop", "{choice}");
    let text = choice["message"]["content"].as_str().unwrap();
    let sea: Value = serde_json::from_str(text).unwrap();
    let names: Vec<&String> = sea.as_object().unwrap().keys().collect();
    assert_eq!(names, ["name", "depth", "calm"], "{text}");
    assert!(["ebb", "flow"].contains(&sea["name"].as_str().unwrap()));
    assert!((1..=40).contains(&sea["depth"].as_i64().unwrap()), "{text}");
    assert!(sea["calm"].is_boolean());
}

#[tokio::test]
async fn chats_are_json_of_a_schema_whole_and_streamed() {
    let agent = Agent::start(&[]).await;
    for seed in 0..8 {
        let body = chat(seed, by_schema());
        let whole = agent.client.post(&agent.url(CHAT), &body).await.ok();
        assert_is_of_schema(&whole["choices"][0]);
        let body = chat(
            seed,
            json!({"stream": true, "response_format": body["response_format"]}),
        );
        let events = agent
            .client
            .stream(&agent.url(CHAT), &body)
            .await
            .all()
            .await;
        let deltas = events
            .iter()
            .map(|event| &event["choices"][0]["delta"]["content"]);
        let text: String = deltas.filter_map(Value::as_str).collect();
        assert_eq!(whole["choices"][0]["message"]["content"], text);
    }
}

#[tokio::test]
async fn choices_of_one_request_are_all_constrained() {
    let agent = Agent::start(&[]).await;
    let mut body = chat(3, by_schema());
    body["n"] = json!(4);
    let answer = agent.client.post(&agent.url(CHAT), &body).await.ok();
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 4);
    choices.iter().for_each(assert_is_of_schema);
    assert!(
        choices
            .iter()
            .any(|choice| choice["message"] != choices[0]["message"])
    );
}

#[tokio::test]
async fn every_api_has_its_fields() {
    let agent = Agent::start(&[]).await;
    let ask = |path: &'static str, body: Value| {
        let (client, url) = (agent.client.clone(), agent.url(path));
        async move { client.post(&url, &body).await.ok() }
    };
    let regex = json!({"regex": "[ab]{3}-[0-9]{2}", "max_new_tokens": 40});
    let generated = ask(
        "/generate",
        json!({"text": "the sea", "sampling_params": regex}),
    )
    .await;
    let text = generated["text"].as_str().unwrap();
    let (letters, digits) = text.split_once('-').unwrap();
    assert_eq!((letters.len(), digits.len()), (3, 2), "{text}");
    assert!(letters.bytes().all(|b| b"ab".contains(&b)), "{text}");
    assert!(digits.bytes().all(|b| b.is_ascii_digit()), "{text}");
    let choice =
        json!({"prompt": "The tide is", "guided_choice": ["high", "low"], "max_tokens": 40});
    let completed = ask("/v1/completions", choice).await;
    let text = completed["choices"][0]["text"].as_str().unwrap();
    assert!(["high", "low"].contains(&text), "{text}");
    let ebnf = json!({"ebnf": "root ::= \"(\" root \")\" | \"x\"", "max_new_tokens": 200, "sampling_seed": 4});
    let generated = ask(
        "/generate",
        json!({"text": "the sea", "sampling_params": ebnf}),
    )
    .await;
    let text = generated["text"].as_str().unwrap();
    let depth = text.len() / 2;
    assert_eq!(text, format!("{}x{}", "(".repeat(depth), ")".repeat(depth)));
    let object = ask(
        CHAT,
        chat(
            1,
            json!({"response_format": {"type": "json_object"}, "max_tokens": 900}),
        ),
    )
    .await;
    let choice = &object["choices"][0];
    let text = choice["message"]["content"].as_str().unwrap();
    assert!(text.starts_with('{'), "{text}");
    if choice["finish_reason"] == "stop" {
        let read: Value = serde_json::from_str(text).unwrap();
        assert!(read.is_object());
    }
}

#[tokio::test]
async fn what_cannot_be_enforced_is_refused_with_its_place() {
    let agent = Agent::start(&[]).await;
    let refusal = |extra: Value| {
        let (client, url) = (agent.client.clone(), agent.url(CHAT));
        async move {
            let answer = client.post(&url, &chat(1, extra)).await;
            assert_eq!(answer.status, 400, "{}", answer.json());
            answer.json()["error"].clone()
        }
    };
    let of_schema = |schema: Value| json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}});
    let unenforced =
        json!({"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true}}});
    let error = refusal(of_schema(unenforced)).await;
    assert_eq!(error["param"], "response_format");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("uniqueItems"), "{message}");
    let endless = refusal(of_schema(json!({"$ref": "#"}))).await;
    assert_eq!(endless["param"], "response_format");
    let needs_itself =
        json!({"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]});
    let endless = refusal(of_schema(needs_itself)).await;
    assert!(
        endless["message"]
            .as_str()
            .unwrap()
            .contains("none of its values ends"),
        "{endless}"
    );
    let outside = refusal(of_schema(json!({"$ref": "http://127.0.0.1:9/schema"}))).await;
    assert!(
        outside["message"].as_str().unwrap().contains("$ref"),
        "{outside}"
    );
    let regex = refusal(json!({"regex": "a("})).await;
    assert_eq!(regex["param"], "regex");
    let both = refusal(json!({"regex": "a", "guided_choice": ["a"]})).await;
    assert_eq!(both["param"], "guided_choice");
}

#[tokio::test]
async fn a_pair_answers_by_a_schema_as_one_worker_does() {
    let (unified, prefill, decode) =
        tokio::join!(Agent::start(&[]), start("prefill"), start("decode"));
    for seed in [7, 8] {
        let body = chat(seed, by_schema());
        let alone = unified.client.post(&unified.url(CHAT), &body).await.ok();
        let mut body = body;
        body["bootstrap_host"] = json!("127.0.0.1");
        body["bootstrap_port"] = json!(prefill.bootstrap_port);
        body["bootstrap_room"] = json!(seed);
        let (_, answer) = both_legs(&prefill, &decode, CHAT, &body).await;
        assert_is_of_schema(&answer["choices"][0]);
        assert_eq!(answer["choices"], alone["choices"]);
    }
}

/// A chat template that writes tools and takes their calls as Qwen's do.
const TEMPLATE: &str = "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}\
    {% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
    {# <tool_call>{\"name\": …}</tool_call> #}<|im_start|>assistant\n";

fn tools() -> Value {
    let tide = json!({"type": "object", "properties": {"harbour": {"enum": ["Brest", "Cork"]}}, "required": ["harbour"]});
    json!([
        {"type": "function", "function": {"name": "tide", "parameters": tide}},
        {"type": "function", "function": {"name": "clock"}},
    ])
}

#[track_caller]
fn assert_calls(choice: &Value) {
    assert_eq!(choice["finish_reason"], "tool_calls", "{choice}");
    let message = &choice["message"];
    assert_eq!(message["content"], Value::Null, "{choice}");
    let calls = message["tool_calls"].as_array().unwrap();
    assert!(!calls.is_empty());
    for call in calls {
        assert!(call["id"].as_str().unwrap().starts_with("call_"));
        let arguments = call["function"]["arguments"].as_str().unwrap();
        let arguments: Value = serde_json::from_str(arguments).unwrap();
        match call["function"]["name"].as_str().unwrap() {
            "tide" => assert!(["Brest", "Cork"].contains(&arguments["harbour"].as_str().unwrap())),
            name => assert_eq!((name, &arguments), ("clock", &json!({}))),
        }
    }
}

/// The calls of a choice without their ids, which are drawn.
pub(crate) fn without_ids(mut choice: Value) -> Value {
    for call in choice["message"]["tool_calls"].as_array_mut().unwrap() {
        call["id"].take();
    }
    choice
}

/// The message that events add up to.
pub(crate) fn joined(events: &[Value]) -> Value {
    let mut calls: Vec<Value> = Vec::new();
    for event in events {
        let delta = &event["choices"][0]["delta"]["tool_calls"][0];
        let Some(index) = delta["index"].as_u64() else {
            continue;
        };
        let arguments = delta["function"]["arguments"].as_str().unwrap();
        match calls.get_mut(usize::try_from(index).unwrap()) {
            None => calls.push(json!({"name": delta["function"]["name"], "arguments": arguments})),
            Some(call) => {
                let so_far = call["arguments"].as_str().unwrap().to_owned();
                call["arguments"] = json!(so_far + arguments);
            }
        }
    }
    json!(calls)
}

#[tokio::test]
async fn a_required_call_is_made_whole_streamed_and_by_a_pair() {
    let folder = tempfile::tempdir().unwrap();
    let template = folder.path().join("tools.jinja");
    std::fs::write(&template, TEMPLATE).unwrap();
    let template = ["--chat-template", template.to_str().unwrap()];
    let half = |mode| {
        let ports = ["--disaggregation-bootstrap-port", "0"];
        [&template[..], &["--disaggregation-mode", mode], &ports].concat()
    };
    let (prefill, decode) = (half("prefill"), half("decode"));
    let (unified, prefill, decode) = tokio::join!(
        Agent::start(&template),
        Agent::start(&prefill),
        Agent::start(&decode)
    );
    for seed in 0..6 {
        // Nothing but chance ends a list of calls here.
        let ask =
            json!({"tools": tools(), "tool_choice": "required", "parallel_tool_calls": false});
        let mut body = chat(seed, ask);
        let whole = unified.client.post(&unified.url(CHAT), &body).await.ok();
        let choice = &whole["choices"][0];
        assert_calls(choice);
        let mut streamed = body.clone();
        streamed["stream"] = json!(true);
        let events = unified
            .client
            .stream(&unified.url(CHAT), &streamed)
            .await
            .all()
            .await;
        let calls = choice["message"]["tool_calls"].as_array().unwrap();
        let functions: Vec<&Value> = calls.iter().map(|call| &call["function"]).collect();
        assert_eq!(joined(&events), json!(functions));
        body["bootstrap_host"] = json!("127.0.0.1");
        body["bootstrap_port"] = json!(prefill.bootstrap_port);
        body["bootstrap_room"] = json!(seed + 1);
        let (_, answer) = both_legs(&prefill, &decode, CHAT, &body).await;
        assert_eq!(
            without_ids(answer["choices"][0].clone()),
            without_ids(choice.clone())
        );
    }
    let named = json!({"type": "function", "function": {"name": "clock"}});
    let many = json!({"tools": tools(), "tool_choice": named});
    let answer = unified
        .client
        .post(&unified.url(CHAT), &chat(1, many))
        .await
        .ok();
    let calls = answer["choices"][0]["message"]["tool_calls"].as_array();
    let calls = calls.unwrap();
    assert!(calls.len() > 1);
    assert!(calls.iter().all(|call| call["function"]["name"] == "clock"));
}
