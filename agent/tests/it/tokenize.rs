//! `/tokenize` and `/detokenize`, as clients of SGLang and of vLLM see them.

use crate::agent::Agent;
use serde_json::{Value, json};

async fn ask(agent: &Agent, path: &str, body: Value) -> Value {
    agent.client.post(&agent.url(path), &body).await.ok()
}

fn ids(of: &Value) -> Vec<u64> {
    let ids = of.as_array().unwrap().iter();
    ids.map(|id| id.as_u64().unwrap()).collect()
}

#[tokio::test]
async fn a_prompt_has_the_tokens_that_a_completion_is_computed_from() {
    let agent = Agent::start(&[]).await;
    let answer = ask(
        &agent,
        "/tokenize",
        json!({"model": "tiny", "prompt": "the sea"}),
    )
    .await;
    let tokens = ids(&answer["tokens"]);
    assert_eq!(answer["count"], tokens.len());
    let models = agent.client.get(&agent.url("/v1/models")).await.ok();
    assert_eq!(answer["max_model_len"], models["data"][0]["max_model_len"]);
    assert_eq!(answer["token_strs"], Value::Null);
    let body = |prompt: Value| json!({"prompt": prompt, "temperature": 0, "max_tokens": 4, "ignore_eos": true});
    let by_text = ask(&agent, "/v1/completions", body(json!("the sea"))).await;
    let by_ids = ask(&agent, "/v1/completions", body(json!(tokens))).await;
    assert_eq!(by_text["usage"]["prompt_tokens"], tokens.len());
    assert_eq!(by_text["choices"], by_ids["choices"]);
}

#[tokio::test]
async fn several_prompts_are_answered_side_by_side() {
    let agent = Agent::start(&[]).await;
    let one = ask(&agent, "/v1/tokenize", json!({"prompt": "the sea"})).await;
    let body = json!({"prompt": ["the sea", ""], "return_token_strs": true});
    let many = ask(&agent, "/v1/tokenize", body).await;
    assert_eq!(many["tokens"][0], one["tokens"]);
    assert_eq!(many["count"][0], one["count"]);
    let strs = many["token_strs"][0].as_array().unwrap();
    assert_eq!(strs.len(), ids(&one["tokens"]).len());
    let none = ask(&agent, "/tokenize", json!({"prompt": []})).await;
    assert_eq!((&none["tokens"], &none["count"]), (&json!([]), &json!([])));
}

#[tokio::test]
async fn a_chat_has_the_tokens_that_its_answer_is_computed_from() {
    let agent = Agent::start(&[]).await;
    let messages = json!([{"role": "user", "content": "the sea"}]);
    let counted = async |extra: Value| {
        let mut body = json!({"messages": messages});
        let fields = body.as_object_mut().unwrap();
        fields.extend(extra.as_object().unwrap().clone());
        ids(&ask(&agent, "/tokenize", body).await["tokens"])
    };
    let tokens = counted(json!({})).await;
    let body = json!({"messages": messages, "max_tokens": 1, "temperature": 0});
    let chat = ask(&agent, "/v1/chat/completions", body).await;
    assert_eq!(chat["usage"]["prompt_tokens"], tokens.len());
    let closed = counted(json!({"add_generation_prompt": false})).await;
    assert!(closed.len() < tokens.len() && tokens.starts_with(&closed));
    let begun = counted(json!({"add_special_tokens": true})).await;
    assert!(begun.len() >= tokens.len() && begun.ends_with(&tokens));
}

#[tokio::test]
async fn tokens_become_the_text_that_they_were() {
    let agent = Agent::start(&[]).await;
    for text in ["the sea", "", "naïve 漢字 🙂 <|im_end|>"] {
        let body = json!({"prompt": text, "add_special_tokens": false});
        let tokens = ask(&agent, "/tokenize", body).await["tokens"].clone();
        let answer = ask(&agent, "/detokenize", json!({"tokens": tokens})).await;
        assert_eq!(answer["prompt"], text);
        let body = json!({"tokens": [tokens, []], "skip_special_tokens": false});
        let answer = ask(&agent, "/v1/detokenize", body).await;
        assert_eq!(answer["text"], json!([text, ""]));
        assert_eq!(answer["prompt"], answer["text"]);
    }
    let empty = ask(&agent, "/detokenize", json!({"tokens": []})).await;
    assert_eq!(empty, json!({"prompt": "", "text": ""}));
}

#[tokio::test]
async fn special_tokens_have_text_in_the_field_of_vllm_alone() {
    let agent = Agent::start(&[]).await;
    let answer = ask(
        &agent,
        "/tokenize",
        json!({"messages": [{"role": "user", "content": "a"}]}),
    )
    .await;
    let chat = ask(&agent, "/detokenize", json!({"tokens": answer["tokens"]})).await;
    let (prompt, text) = (
        chat["prompt"].as_str().unwrap(),
        chat["text"].as_str().unwrap(),
    );
    assert!(prompt.len() > text.len(), "{prompt:?} {text:?}");
}

#[tokio::test]
async fn a_text_beyond_the_context_is_counted() {
    let agent = Agent::start(&[]).await;
    let text = "the sea ".repeat(30_000);
    let answer = ask(
        &agent,
        "/tokenize",
        json!({"prompt": text, "add_special_tokens": false}),
    )
    .await;
    assert!(answer["count"].as_u64().unwrap() > answer["max_model_len"].as_u64().unwrap());
    let tokens = answer["tokens"].clone();
    let answer = ask(&agent, "/detokenize", json!({"tokens": tokens})).await;
    assert_eq!(answer["text"], text);
}

#[tokio::test]
async fn what_cannot_be_tokenised_is_refused_by_name() {
    let agent = Agent::start(&[]).await;
    let too_many = json!({"tokens": vec![1; 150_000]});
    for (path, body, status, param) in [
        ("/tokenize", json!({}), 400, "prompt"),
        (
            "/tokenize",
            json!({"prompt": "a", "messages": []}),
            400,
            "prompt",
        ),
        ("/tokenize", json!({"messages": []}), 400, "messages"),
        ("/tokenize", json!({"prompt": 3}), 400, "prompt"),
        (
            "/tokenize",
            json!({"prompt": "a", "promt": "b"}),
            400,
            "promt",
        ),
        (
            "/tokenize",
            json!({"prompt": "a", "model": "other"}),
            404,
            "model",
        ),
        ("/detokenize", json!({}), 400, "tokens"),
        ("/detokenize", json!({"tokens": "a"}), 400, "tokens"),
        ("/detokenize", json!({"tokens": [4_000_000]}), 400, "tokens"),
        ("/detokenize", json!({"tokens": [-1]}), 400, "tokens[0]"),
        ("/detokenize", too_many, 400, "tokens"),
    ] {
        let refused = agent.client.post(&agent.url(path), &body).await;
        assert_eq!(refused.status, status, "{body}");
        assert_eq!(refused.json()["error"]["param"], param, "{body}");
    }
}
