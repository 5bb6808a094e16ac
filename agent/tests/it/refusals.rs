//! Bad input: each with a clear message, and the agent answers the next request as before.

use crate::agent::Agent;
use hyper::Method;
use serde_json::{Value, json};

struct Case {
    path: &'static str,
    body: &'static [u8],
    status: u16,
    says: &'static str,
    param: Option<&'static str>,
}

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";
const RESPONSES: &str = "/v1/responses";

const fn case(
    path: &'static str,
    body: &'static [u8],
    says: &'static str,
    param: Option<&'static str>,
) -> Case {
    let status = 400;
    Case {
        path,
        body,
        status,
        says,
        param,
    }
}

const CASES: &[Case] = &[
    case(CHAT, b"{\"model\": ", "not valid JSON: EOF while parsing a value at line 1", None),
    case(CHAT, b"{\"model\": \"\xff\"}", "not UTF-8: byte 11", None),
    case(CHAT, b" [1]", "a JSON list; send an object", None),
    case(CHAT, b"1", "expected an object", None),
    case(CHAT, b"{\"messages\": []}", "give at least one message", Some("messages")),
    case(
        CHAT,
        br#"{"messages": [{"role": "user", "content": 5}]}"#,
        "message content is a string, a list of parts, or null",
        Some("messages[0].content"),
    ),
    case(
        CHAT,
        br#"{"messages": [{"role": "king", "content": "a"}]}"#,
        "`king` is not a message role",
        Some("messages[0].role"),
    ),
    case(
        CHAT,
        br#"{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}"#,
        "this model reads text only",
        Some("messages[0].content[0].type"),
    ),
    case(
        CHAT,
        br#"{"messages": [{"role": "user", "content": "a"}], "top_logprobs": 2}"#,
        "`logprobs` is not true",
        Some("top_logprobs"),
    ),
    case(
        CHAT,
        br#"{"messages": [{"role": "user", "content": "a"}], "max_tokens": 0}"#,
        "max_tokens is 0",
        Some("max_tokens"),
    ),
    case(
        CHAT,
        br#"{"messages": [{"role": "user", "content": "a"}], "tools": [{}]}"#,
        "a tool has no `type`",
        Some("tools[0].type"),
    ),
    case(
        CHAT,
        br#"{"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "json_schema", "json_schema": {}}}"#,
        "`response_format` has no schema",
        Some("response_format.json_schema.schema"),
    ),
    case(TEXT, br#"{"prompt": "a", "temperature": -1}"#, "temperature is -1", Some("temperature")),
    case(TEXT, br#"{"prompt": "a", "temperature": NaN}"#, "not valid JSON", None),
    case(TEXT, br#"{"prompt": "a", "temperature": 1e39}"#, "temperature is inf", Some("temperature")),
    case(TEXT, br#"{"prompt": "a", "temperature": "hot"}"#, "expected a number", Some("temperature")),
    case(TEXT, br#"{"prompt": "a", "top_p": 1.5}"#, "top_p is 1.5", Some("top_p")),
    case(TEXT, br#"{"prompt": "a", "max_tokens": -5}"#, "`max_tokens`: invalid value: integer `-5`, expected a whole number of at least 0", Some("max_tokens")),
    case(TEXT, br#"{"prompt": "a", "stop_token_ids": [49152]}"#, "contains 49152;", Some("stop_token_ids")),
    case(TEXT, br#"{"prompt": "a", "suffix": "b"}"#, "not supported", Some("suffix")),
    case(TEXT, br#"{"prompt": "a", "tempature": 1}"#, "did you mean `temperature`?", Some("tempature")),
    case(CHAT, br#"{"messages": [{"role": "user", "content": "a"}], "regex": "[0-9"}"#, "the regular expression cannot constrain an answer", Some("regex")),
    case(CHAT, br#"{"messages": [{"role": "user", "content": "a"}], "guided_json": {"type": "thing"}}"#, "the JSON schema cannot constrain an answer", Some("guided_json")),
    case(CHAT, br#"{"messages": [{"role": "user", "content": "a"}], "tool_choice": "required"}"#, "`tools` is missing or empty", Some("tool_choice")),
    case(CHAT, br#"{"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function", "function": {"name": "f"}}]}"#, "does not take tools", Some("tools")),
    case(CHAT, br#"{"messages": [{"role": "user", "content": "a"}], "modalities": ["text", "audio"]}"#, "text only", Some("modalities")),
    case(CHAT, br#"{"messages": [{"role": "user", "content": "a"}], "continue_final_message": true, "add_generation_prompt": true}"#, "set one of them", Some("continue_final_message")),
    case(RESPONSES, b"{}", "`input` is missing or empty", Some("input")),
    case(RESPONSES, br#"{"input": 5}"#, "input is a string, or a list of items", Some("input")),
    case(RESPONSES, br#"{"input": "a", "previous_response_id": "resp_1"}"#, "send the whole conversation", Some("previous_response_id")),
    case(RESPONSES, br#"{"input": "a", "background": true}"#, "not supported", Some("background")),
    case(RESPONSES, br#"{"input": "a", "max_tokens": 3}"#, "give it as `max_output_tokens`", Some("max_tokens")),
    case(RESPONSES, br#"{"input": "a", "max_output_tokens": 0}"#, "max_output_tokens is 0", Some("max_output_tokens")),
    case(RESPONSES, br#"{"input": "a", "temperature": -1}"#, "temperature is -1", Some("temperature")),
    case(RESPONSES, br#"{"input": "a", "tools": [{"type": "web_search"}]}"#, "`web_search` are not supported", Some("tools[0].type")),
    case(RESPONSES, br#"{"input": "a", "tools": [{"type": "function", "name": "f g"}]}"#, "a function has a name", Some("tools[0].name")),
    case(RESPONSES, br#"{"input": "a", "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "thing"}}}}"#, "the JSON schema cannot constrain an answer", Some("text.format")),
    case(RESPONSES, br#"{"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}]}"#, "this model reads text only", Some("input[0].content[0].type")),
    case("/generate", br#"{"text": "a", "lora_path": "x"}"#, "no adapter is loaded", Some("lora_path")),
    case("/generate", br#"{"text": "a", "sampling_params": {"max_tokens": 4}}"#, "did you mean `max_new_tokens`?", Some("sampling_params.max_tokens")),
    case("/generate", br#"{"text": "a", "return_logprob": true, "token_ids_logprob": [5, 49152]}"#, "contains 49152;", Some("token_ids_logprob")),
    case("/generate", br#"{"text": "a", "token_ids_logprob": [[1], 2]}"#, "mixes ids and lists of ids", Some("token_ids_logprob")),
    case("/generate", br#"{"text": "a", "token_ids_logprob": [-1]}"#, "invalid value: integer `-1`", Some("token_ids_logprob[0]")),
    case(TEXT, br#"{"prompt": "a", "n": 0}"#, "`n` is 0", Some("n")),
    case(TEXT, br#"{"prompt": "a", "n": 1, "best_of": 3}"#, "best_of", Some("best_of")),
    case(TEXT, br#"{"prompt": "a", "logit_bias": {"x": 1}}"#, "not a token id", Some("logit_bias")),
    case(TEXT, br#"{"prompt": "a", "stop": [""]}"#, "empty string", Some("stop")),
    case(TEXT, br#"{"prompt": [1, "a"]}"#, "but not both", Some("prompt")),
    case(TEXT, br#"{"prompt": []}"#, "give at least one prompt", Some("prompt")),
    case(TEXT, br#"{"prompt": [4000000]}"#, "not in the vocabulary", Some("prompt")),
    case("/generate", br#"{"sampling_params": {}}"#, "`text` or `input_ids`", Some("text")),
    case(
        "/generate",
        br#"{"text": ["a", "b"], "rid": ["x"]}"#,
        "`rid` has 1 elements for 2 prompts",
        Some("rid"),
    ),
    case(
        "/generate",
        br#"{"text": "a", "sampling_params": {"regex": "a("}}"#,
        "the regular expression cannot constrain an answer",
        Some("regex"),
    ),
    Case {
        path: CHAT,
        body: br#"{"model": "other", "messages": [{"role": "user", "content": "a"}]}"#,
        status: 404,
        says: "model `other` is not served here; this worker serves `tiny`",
        param: Some("model"),
    },
    Case {
        path: "/v1/embeddings",
        body: b"{}",
        status: 404,
        says: "there is no /v1/embeddings here: models here generate text, and no embeddings, scores or classes; served are \
               /v1/chat/completions, /v1/completions, /v1/responses, /generate, /tokenize, /detokenize and /v1/models",
        param: None,
    },
];

#[tokio::test]
async fn every_bad_input_is_answered_with_what_is_wrong() {
    let agent = Agent::start(&[]).await;
    for case in CASES {
        let answer = agent
            .client
            .send(Method::POST, &agent.url(case.path), case.body)
            .await;
        let body = answer.json();
        let shown = format!("{}: {body}", String::from_utf8_lossy(case.body));
        assert_eq!(answer.status, case.status, "{shown}");
        let error = &body["error"];
        assert!(
            error["message"].as_str().unwrap().contains(case.says),
            "{shown}"
        );
        assert_eq!(error["param"].as_str(), case.param, "{shown}");
        assert_eq!(error["type"], "invalid_request_error");
    }
    agent.wait_idle().await;
    assert_eq!(
        agent
            .client
            .get(&agent.url("/health_generate"))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn an_overlong_prompt_has_the_code_that_clients_look_for() {
    let agent = Agent::start(&["--context-length", "64"]).await;
    let messages = json!([{"role": "user", "content": "word ".repeat(60)}]);
    let chat = json!({"messages": messages});
    let answer = agent.client.post(&agent.url(CHAT), &chat).await;
    assert_eq!(answer.status, 400);
    let error = answer.json()["error"].clone();
    assert_eq!(error["code"], "context_length_exceeded");
    assert_eq!(error["param"], "messages");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.starts_with(
            "This model's maximum context length is 64 tokens. However, you requested"
        ),
        "{message}"
    );
    let long_answer =
        json!({"messages": [{"role": "user", "content": "a"}], "max_completion_tokens": 64});
    let error = agent
        .client
        .post(&agent.url(CHAT), &long_answer)
        .await
        .json()["error"]
        .clone();
    assert_eq!(error["code"], "context_length_exceeded");
    assert_eq!(error["param"], "max_completion_tokens");
}

#[tokio::test]
async fn a_huge_text_is_refused_in_bytes_and_in_little_memory() {
    let agent = Agent::start(&["--max-body-bytes", "33554432"]).await;
    let before = agent.peak_memory_kib();
    let body = json!({"prompt": "a ".repeat(4_000_000)});
    let answer = agent.client.post(&agent.url(TEXT), &body).await;
    assert_eq!(answer.status, 400);
    let error = answer.json()["error"].clone();
    assert_eq!(error["code"], "context_length_exceeded");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("8000000 bytes of text"), "{message}");
    // The body and its text, and a piece at a time; tokenised whole it would be 1.6 GB.
    let grown = agent.peak_memory_kib() - before;
    assert!(grown < 100_000, "{grown} KiB");
}

#[tokio::test]
async fn a_prompt_beyond_capacity_is_refused_with_both_numbers() {
    let agent = Agent::start(&["--max-total-tokens", "256"]).await;
    let body = json!({"prompt": vec![5; 300], "max_tokens": 1});
    let answer = agent.client.post(&agent.url(TEXT), &body).await;
    assert_eq!(answer.status, 400);
    let message = answer.json()["error"]["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        message.contains("300") && message.contains("255"),
        "{message}"
    );
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused_before_it_is_read() {
    let agent = Agent::start(&["--max-body-bytes", "1000"]).await;
    let body = vec![b' '; 1001];
    let answer = agent
        .client
        .send(Method::POST, &agent.url(TEXT), body)
        .await;
    assert_eq!(answer.status, 413);
    assert_eq!(answer.json()["error"]["code"], "body_too_large");
}

#[tokio::test]
async fn a_body_is_bounded_by_the_longest_prompt_of_the_model() {
    let agent = Agent::start(&[]).await;
    let info = agent.client.get(&agent.url("/server_info")).await.json();
    assert_eq!(info["max_body_bytes"], 4 << 20);
    let body = vec![b' '; (4 << 20) + 1];
    let answer = agent
        .client
        .send(Method::POST, &agent.url(TEXT), body)
        .await;
    assert_eq!(answer.status, 413);
}

#[tokio::test]
async fn a_wrong_method_is_named() {
    let agent = Agent::start(&[]).await;
    let answer = agent.client.get(&agent.url(TEXT)).await;
    assert_eq!(answer.status, 405);
    assert_eq!(
        answer.json()["error"]["message"],
        "/v1/completions does not take GET"
    );
}

#[tokio::test]
async fn a_key_is_asked_for_but_not_by_probes() {
    let agent = Agent::start(&["--api-key", "right"]).await;
    let body: Value = json!({"prompt": "a", "max_tokens": 1});
    let url = agent.url(TEXT);
    assert_eq!(agent.client.post(&url, &body).await.status, 401);
    let wrong = agent.client.with_bearer("righ");
    assert_eq!(
        wrong.post(&url, &body).await.json()["error"]["code"],
        "invalid_api_key"
    );
    let right = agent.client.with_bearer("right");
    assert_eq!(right.post(&url, &body).await.status, 200);
    assert_eq!(agent.client.get(&agent.url("/health")).await.status, 200);
    assert_eq!(
        agent.client.get(&agent.url("/server_info")).await.status,
        401
    );
}

#[tokio::test]
async fn lists_of_a_request_have_bounds_that_are_named() {
    let agent = Agent::start(&[]).await;
    let bias: serde_json::Map<String, Value> =
        (0..1025).map(|id| (id.to_string(), json!(1))).collect();
    let many: Vec<String> = (0..65).map(|nr| nr.to_string()).collect();
    let ids: Vec<u32> = (0..65).collect();
    for (field, value, says) in [
        ("stop", json!(many), "give at most 64"),
        ("stop", json!(["a".repeat(1025)]), "give at most 1024"),
        ("stop_token_ids", json!(ids), "give at most 64"),
        ("logit_bias", json!(bias), "1024"),
        ("logprobs", json!(129), "128"),
    ] {
        let mut body = json!({"prompt": "a", "max_tokens": 1});
        body[field] = value;
        let answer = agent.client.post(&agent.url(TEXT), &body).await;
        assert_eq!(answer.status, 400, "{field}");
        let error = answer.json()["error"].clone();
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(says), "{message}");
        assert_eq!(error["param"], field);
    }
}
