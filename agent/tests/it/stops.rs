//! `stop_regex`: where it ends answers, whole and streamed, on every route.

use crate::agent::Agent;
use crate::disaggregation::{both_legs, start};
use serde_json::{Value, json};

const ROUTES: [&str; 3] = ["/generate", "/v1/completions", "/v1/chat/completions"];

/// A request for 24 tokens on `path`, with further fields of sampling.
fn body(path: &str, stops: Value, stream: bool) -> Value {
    let mut sampling = json!({"temperature": 0, "ignore_eos": true});
    let fields = sampling.as_object_mut().unwrap();
    fields.extend(stops.as_object().unwrap().clone());
    if path == "/generate" {
        fields.insert("max_new_tokens".to_owned(), json!(24));
        return json!({"text": "the sea", "sampling_params": sampling, "stream": stream});
    }
    fields.insert("max_tokens".to_owned(), json!(24));
    fields.insert("stream".to_owned(), json!(stream));
    let (name, prompt) = match path {
        "/v1/completions" => ("prompt", json!("the sea")),
        _ => ("messages", json!([{"role": "user", "content": "the sea"}])),
    };
    fields.insert(name.to_owned(), prompt);
    sampling
}

/// The text, and what ended it.
async fn whole(agent: &Agent, path: &str, stops: Value) -> (String, Value) {
    let request = body(path, stops, false);
    let answer = agent.client.post(&agent.url(path), &request).await.ok();
    let choice = &answer["choices"][0];
    let text = [
        &answer["text"],
        &choice["text"],
        &choice["message"]["content"],
    ];
    let text = text.iter().find_map(|text| text.as_str()).unwrap();
    let reason = &answer["meta_info"]["finish_reason"];
    let matched = if reason.is_null() {
        &choice["matched_stop"]
    } else {
        &reason["matched"]
    };
    (text.to_owned(), matched.clone())
}

/// The text after each event.
async fn streamed(agent: &Agent, path: &str, stops: Value) -> Vec<String> {
    let request = body(path, stops, true);
    let mut events = agent.client.stream(&agent.url(path), &request).await;
    let mut text = String::new();
    let so_far = |event: Value| {
        let choice = &event["choices"][0];
        match event["text"].as_str() {
            Some(whole) => whole.clone_into(&mut text),
            None => text.push_str(
                choice["text"]
                    .as_str()
                    .or(choice["delta"]["content"].as_str())
                    .unwrap_or(""),
            ),
        }
        text.clone()
    };
    events.all().await.into_iter().map(so_far).collect()
}

/// An expression of the character alone.
fn of(c: char) -> String {
    format!("\\x{{{:x}}}", u32::from(c))
}

#[tokio::test]
async fn an_answer_ends_behind_the_match_which_stays() {
    let agent = Agent::start(&[]).await;
    for path in ROUTES {
        let (plain, _) = whole(&agent, path, json!({})).await;
        let mut ends = 0;
        for (at, c) in plain.char_indices().skip(2) {
            let end = at + c.len_utf8();
            if plain[..at].contains(c) || c == char::REPLACEMENT_CHARACTER {
                continue;
            }
            ends += 1;
            let stops = json!({"stop_regex": ["no such text", of(c)]});
            let (text, matched) = whole(&agent, path, stops.clone()).await;
            assert_eq!(
                (text.as_str(), &matched),
                (&plain[..end], &json!(of(c))),
                "{path}"
            );
            let seen = streamed(&agent, path, stops).await;
            assert_eq!(seen.last().unwrap(), &text);
            assert!(
                seen.iter().all(|so_far| text.starts_with(so_far)),
                "{seen:?}"
            );
        }
        assert!(ends > 2, "{plain}");
    }
}

#[tokio::test]
async fn what_is_complete_first_ends_the_answer_and_a_string_is_trimmed() {
    let agent = Agent::start(&[]).await;
    let path = "/generate";
    let (plain, _) = whole(&agent, path, json!({})).await;
    let chars: Vec<char> = plain.chars().collect();
    let string: String = chars[3..6].iter().collect();
    let until = |chars: &[char]| chars.iter().map(|&c| of(c)).collect::<String>();
    let stops = json!({"stop": string, "stop_regex": format!("(?s)^.*{}", until(&chars[..8]))});
    let (text, matched) = whole(&agent, path, stops).await;
    assert_eq!(text, plain[..plain.find(&string).unwrap()]);
    assert_eq!(matched, json!(string));
    let regex = format!("^{}", until(&chars[..4]));
    let (text, matched) = whole(&agent, path, json!({"stop": string, "stop_regex": regex})).await;
    assert_eq!(text, chars[..4].iter().collect::<String>());
    assert_eq!(matched, json!(regex));
}

#[tokio::test]
async fn expressions_that_cannot_end_answers_are_refused() {
    let agent = Agent::start(&[]).await;
    for path in ROUTES {
        for (stops, says) in [
            (
                json!("a("),
                "stop_regex contains `a(`, which is wrong at byte 1: unclosed group",
            ),
            (json!(["b", "c*"]), "`c*`, which an empty text matches"),
            (json!("\\w{100}"), "takes more than 256 KiB as an automaton"),
            (json!(vec!["x"; 33]), "has 33 expressions; give at most 32"),
        ] {
            let request = body(path, json!({"stop_regex": stops}), false);
            let refused = agent.client.post(&agent.url(path), &request).await;
            assert_eq!(refused.status, 400);
            let error = &refused.json()["error"];
            assert_eq!(error["param"], "stop_regex");
            assert!(error["message"].as_str().unwrap().contains(says), "{error}");
        }
    }
    let (all, matched) = whole(&agent, ROUTES[0], json!({"stop_regex": []})).await;
    assert!(!all.is_empty() && matched.is_null());
}

#[tokio::test]
async fn a_pair_ends_an_answer_where_one_worker_does() {
    let (prefill, decode) = tokio::join!(start("prefill"), start("decode"));
    let path = "/generate";
    let mut room = 40;
    let mut ask = async |stops: Value| {
        room += 1;
        let mut body = body(path, stops, false);
        let fields = json!({
            "bootstrap_host": "127.0.0.1", "bootstrap_port": prefill.bootstrap_port, "bootstrap_room": room,
        });
        let body_fields = body.as_object_mut().unwrap();
        body_fields.extend(fields.as_object().unwrap().clone());
        both_legs(&prefill, &decode, path, &body).await.1
    };
    let plain = ask(json!({})).await["text"].as_str().unwrap().to_owned();
    // The first ends with the token that prefill draws.
    for place in [0, 7] {
        let c = plain.chars().nth(place).unwrap();
        let end = plain.find(c).unwrap() + c.len_utf8();
        let answer = ask(json!({"stop_regex": of(c)})).await;
        assert_eq!(answer["text"], plain[..end]);
        let reason = json!({"type": "stop", "matched": of(c)});
        assert_eq!(answer["meta_info"]["finish_reason"], reason);
    }
}
