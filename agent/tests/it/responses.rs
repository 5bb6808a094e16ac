//! `/v1/responses`, as OpenAI's clients see it.

use crate::agent::Agent;
use crate::disaggregation::both_legs;
use hyper::Method;
use serde_json::{Value, json};

const PATH: &str = "/v1/responses";

fn ask(extra: Value) -> Value {
    let mut body = json!({
        "model": "tiny", "input": "Speak of the sea.", "temperature": 0,
        "max_output_tokens": 12, "ignore_eos": true,
    });
    let fields = body.as_object_mut().unwrap();
    fields.extend(extra.as_object().unwrap().clone());
    body
}

/// The events of an answer, each of which is named by its `type` and counted.
async fn stream(agent: &Agent, mut body: Value) -> Vec<Value> {
    body["stream"] = json!(true);
    let mut stream = agent.client.stream(&agent.url(PATH), &body).await;
    let mut events: Vec<Value> = Vec::new();
    while let Some((name, data)) = stream.next_named().await {
        let event: Value = serde_json::from_str(&data).expect("no event is [DONE]");
        assert_eq!(name.as_deref(), event["type"].as_str());
        assert_eq!(event["sequence_number"], events.len());
        events.push(event);
    }
    events
}

/// The events' types, with those that repeat once.
fn names(events: &[Value]) -> Vec<&str> {
    let names = events.iter().map(|event| event["type"].as_str().unwrap());
    let mut names: Vec<&str> = names
        .map(|name| name.trim_start_matches("response."))
        .collect();
    names.dedup();
    names
}

fn deltas(events: &[Value], kind: &str) -> String {
    let own = events.iter().filter(|event| event["type"] == kind);
    own.map(|event| event["delta"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn an_answer_is_that_of_the_chat_in_openais_shape() {
    let agent = Agent::start(&[]).await;
    let asked = json!({"instructions": "Be brief.", "metadata": {"a": "b"}, "store": true});
    let answer = agent.client.post(&agent.url(PATH), &ask(asked)).await.ok();
    assert_eq!(answer["object"], "response");
    assert!(answer["id"].as_str().unwrap().starts_with("resp_"));
    assert!(answer["created_at"].as_u64().unwrap() > 0);
    assert_eq!(answer["status"], "incomplete");
    let cut = json!({"reason": "max_output_tokens"});
    assert_eq!(answer["incomplete_details"], cut);
    assert_eq!(answer["error"], Value::Null);
    assert_eq!(answer["instructions"], "Be brief.");
    assert_eq!(answer["metadata"], json!({"a": "b"}));
    assert_eq!(answer["store"], false);
    assert_eq!(answer["temperature"], json!(0.0));
    assert_eq!(answer["max_output_tokens"], 12);
    let item = &answer["output"][0];
    assert_eq!(
        (&item["type"], &item["role"], &item["status"]),
        (&json!("message"), &json!("assistant"), &json!("incomplete"))
    );
    let chat = json!({
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Speak of the sea."},
        ],
        "temperature": 0, "max_tokens": 12, "ignore_eos": true,
    });
    let url = agent.url("/v1/chat/completions");
    let chat = agent.client.post(&url, &chat).await.ok();
    let text = &chat["choices"][0]["message"]["content"];
    assert_eq!(&item["content"][0]["text"], text);
    let usage = &answer["usage"];
    assert_eq!(usage["input_tokens"], chat["usage"]["prompt_tokens"]);
    assert_eq!(usage["output_tokens"], 12);
    assert_eq!(usage["total_tokens"], chat["usage"]["total_tokens"]);
    assert!(usage["input_tokens_details"]["cached_tokens"].is_u64());
    assert_eq!(usage["output_tokens_details"]["reasoning_tokens"], 0);
}

#[tokio::test]
async fn a_stream_nests_its_events_and_ends_with_the_whole_answer() {
    let agent = Agent::start(&[]).await;
    let asked = json!({"include": ["message.output_text.logprobs"], "top_logprobs": 2});
    let whole = agent
        .client
        .post(&agent.url(PATH), &ask(asked.clone()))
        .await
        .ok();
    let events = stream(&agent, ask(asked)).await;
    let expected = [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "incomplete",
    ];
    assert_eq!(names(&events), expected);
    let part = &whole["output"][0]["content"][0];
    assert_eq!(
        deltas(&events, "response.output_text.delta"),
        part["text"].as_str().unwrap()
    );
    let tokens = part["logprobs"].as_array().unwrap();
    assert_eq!(tokens.len(), 12);
    assert!(
        tokens
            .iter()
            .all(|token| token["top_logprobs"].as_array().unwrap().len() == 2)
    );
    let streamed = events
        .iter()
        .filter(|event| event["type"] == "response.output_text.delta");
    let streamed = streamed.flat_map(|event| event["logprobs"].as_array().unwrap());
    assert_eq!(streamed.cloned().collect::<Vec<Value>>(), *tokens);
    let last = &events.last().unwrap()["response"];
    assert_eq!(&last["output"][0]["content"][0], part);
    assert_eq!(
        last["usage"]["output_tokens"],
        whole["usage"]["output_tokens"]
    );
    assert_eq!(last["id"], events[0]["response"]["id"]);
}

#[tokio::test]
async fn answers_are_json_of_a_schema() {
    let agent = Agent::start(&[]).await;
    let schema = json!({
        "type": "object", "properties": {"tide": {"enum": ["ebb", "flow"]}},
        "required": ["tide"], "additionalProperties": false,
    });
    let format = json!({"type": "json_schema", "name": "sea", "schema": schema, "strict": true});
    let asked = json!({"text": {"format": format}, "max_output_tokens": 400, "ignore_eos": false});
    let answer = agent.client.post(&agent.url(PATH), &ask(asked)).await.ok();
    assert_eq!(answer["status"], "completed", "{answer}");
    assert_eq!(answer["text"]["format"], format);
    let text = answer["output"][0]["content"][0]["text"].as_str().unwrap();
    let sea: Value = serde_json::from_str(text).unwrap();
    assert!(["ebb", "flow"].contains(&sea["tide"].as_str().unwrap()));
}

/// A chat template that writes tools and takes their calls as Qwen's do.
const TEMPLATE: &str = "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}\
    {% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}\
    {% for call in m.tool_calls or [] %}{{ call.function | tojson }}{% endfor %}<|im_end|>\n{% endfor %}\
    {# <tool_call>{\"name\": …}</tool_call> #}<|im_start|>assistant\n";

fn with_tools(extra: Value) -> Value {
    let parameters = json!({"type": "object", "properties": {"harbour": {"enum": ["Brest", "Cork"]}}, "required": ["harbour"]});
    let tools =
        json!([{"type": "function", "name": "tide", "parameters": parameters, "strict": null}]);
    let mut body = ask(json!({
        "tools": tools, "max_output_tokens": 400, "ignore_eos": false, "temperature": 1.0, "seed": 3,
        "parallel_tool_calls": false, "tool_choice": {"type": "function", "name": "tide"},
    }));
    let fields = body.as_object_mut().unwrap();
    fields.extend(extra.as_object().unwrap().clone());
    body
}

/// An item without its ids, which are drawn.
fn without_ids(item: &Value) -> Value {
    let mut item = item.clone();
    item["id"].take();
    item["call_id"].take();
    item
}

#[tokio::test]
async fn a_call_is_an_item_whole_streamed_and_by_a_pair() {
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
    let url = unified.url(PATH);
    let whole = unified.client.post(&url, &with_tools(json!({}))).await.ok();
    let call = &whole["output"][0];
    assert_eq!(call["type"], "function_call", "{whole}");
    assert_eq!(
        (&call["name"], &call["status"]),
        (&json!("tide"), &json!("completed"))
    );
    assert!(call["call_id"].as_str().unwrap().starts_with("call_"));
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert!(["Brest", "Cork"].contains(&arguments["harbour"].as_str().unwrap()));
    let events = stream(&unified, with_tools(json!({}))).await;
    let expected = [
        "created",
        "in_progress",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ];
    assert_eq!(names(&events), expected);
    let streamed = deltas(&events, "response.function_call_arguments.delta");
    assert_eq!(streamed, call["arguments"].as_str().unwrap());
    let room = json!({
        "bootstrap_host": "127.0.0.1", "bootstrap_port": prefill.bootstrap_port, "bootstrap_room": 5,
    });
    let (first, answer) = both_legs(&prefill, &decode, PATH, &with_tools(room)).await;
    assert_eq!(first["usage"]["output_tokens"], 1);
    assert_eq!(without_ids(&answer["output"][0]), without_ids(call));

    let output =
        json!({"type": "function_call_output", "call_id": call["call_id"], "output": "At noon."});
    let history = json!([{"role": "user", "content": "When?"}, call, output]);
    let asked =
        with_tools(json!({"input": history, "tool_choice": "auto", "max_output_tokens": 8}));
    let answer = unified.client.post(&url, &asked).await.ok();
    let function = json!({"name": "tide", "arguments": call["arguments"]});
    let messages = json!([
        {"role": "user", "content": "When?"},
        {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "a", "content": "At noon."},
    ]);
    let function = json!({"name": "tide", "parameters": asked["tools"][0]["parameters"]});
    let tools = json!([{"type": "function", "function": function}]);
    let chat = json!({"messages": messages, "tools": tools, "max_tokens": 1});
    let url = unified.url("/v1/chat/completions");
    let chat = unified.client.post(&url, &chat).await.ok();
    assert_eq!(
        answer["usage"]["input_tokens"],
        chat["usage"]["prompt_tokens"]
    );
}

/// One whose answers begin in reasoning, which the history shows again.
const THINKING: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n\
    {% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}<|im_end|>\n\
    {% endfor %}<|im_start|>assistant\n{% if enable_thinking %}<think>\n{% endif %}";

#[tokio::test]
async fn reasoning_is_an_item_that_may_be_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    let template = folder.path().join("thinking.jinja");
    std::fs::write(&template, THINKING).unwrap();
    let agent = Agent::start(&["--chat-template", template.to_str().unwrap()]).await;
    let asked = json!({"reasoning": {"effort": "low", "summary": "auto"}});
    let url = agent.url(PATH);
    let answer = agent.client.post(&url, &ask(asked.clone())).await.ok();
    let item = &answer["output"][0];
    assert_eq!(
        (&item["type"], &item["summary"]),
        (&json!("reasoning"), &json!([]))
    );
    assert_eq!(item["content"][0]["type"], "reasoning_text");
    let details = &answer["usage"]["output_tokens_details"];
    assert_eq!(details["reasoning_tokens"], 12);
    assert_eq!(
        answer["reasoning"],
        json!({"effort": "low", "summary": null})
    );
    let events = stream(&agent, ask(asked)).await;
    let expected = [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "incomplete",
    ];
    assert_eq!(names(&events), expected);
    let text = item["content"][0]["text"].as_str().unwrap();
    assert_eq!(deltas(&events, "response.reasoning_text.delta"), text);

    let said = json!({"role": "assistant", "content": "So."});
    let input = |items: &[&Value]| ask(json!({"input": items, "max_output_tokens": 1}));
    let with = agent.client.post(&url, &input(&[item, &said])).await.ok();
    let without = agent.client.post(&url, &input(&[&said])).await.ok();
    let tokens = |answer: &Value| answer["usage"]["input_tokens"].as_u64().unwrap();
    assert!(tokens(&with) > tokens(&without) + 8);
}

#[tokio::test]
async fn nothing_is_stored() {
    let agent = Agent::start(&[]).await;
    for method in [Method::GET, Method::DELETE] {
        let url = agent.url("/v1/responses/resp_1");
        let answer = agent.client.send(method, &url, "").await;
        assert_eq!(answer.status, 404);
        let error = answer.json()["error"].clone();
        assert_eq!(error["code"], "response_not_found");
        assert!(
            error["message"]
                .as_str()
                .unwrap()
                .contains("none is stored")
        );
    }
}
