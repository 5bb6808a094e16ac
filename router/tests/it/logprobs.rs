//! The prompt's log probabilities come from prefill and stand in decode's answer.

use crate::harness::Pair;
use crate::mock::Answer;

const ASKED: &str = r#"{"text":"a","return_logprob":true}"#;

#[tokio::test]
async fn a_plain_answer_is_merged() {
    let pair = Pair::start("").await;
    let prefill = r#"{"meta_info":{"input_token_logprobs":[[-0.10,1,null]]}}"#;
    let decode = r#"{"text":"b","meta_info":{"input_token_logprobs":[],"e":1.0}}"#;
    pair.prefill.answer(Answer::Json(prefill.to_owned()));
    pair.decode.answer(Answer::Json(decode.to_owned()));
    let reply = pair.running.client.post("/generate", ASKED).await;
    let merged = r#"{"text":"b","meta_info":{"input_token_logprobs":[[-0.10,1,null]],"e":1.0}}"#;
    assert_eq!(reply.text(), merged);
    pair.running.until_idle().await;
}

#[tokio::test]
async fn events_of_one_network_piece_are_merged_each() {
    let pair = Pair::start("").await;
    let event =
        |list: &str| format!("data: {{\"meta_info\":{{\"input_token_logprobs\":[{list}]}}}}\n\n");
    pair.prefill.answer(Answer::Events(vec![event("7")]));
    let done = "data: [DONE]\n\n";
    let pieces = vec![
        event("") + &event("") + "data: {\"me",
        "ta_info\":{}}\n\n".to_owned() + done,
    ];
    pair.decode.answer(Answer::Events(pieces));
    let asked = r#"{"text":"a","return_logprob":true,"stream":true}"#;
    let reply = pair.running.client.post("/generate", asked).await;
    assert_eq!(reply.text(), event("7").repeat(3) + done);
}

#[tokio::test]
async fn an_echoed_prompts_logprobs_open_a_completions_lists() {
    let pair = Pair::start("").await;
    let answer = |tokens: &str| {
        format!(r#"{{"choices":[{{"index":0,"logprobs":{{"tokens":[{tokens}]}}}}]}}"#)
    };
    pair.prefill.answer(Answer::Json(answer(r#""a""#)));
    pair.decode.answer(Answer::Json(answer(r#""b""#)));
    let asked = r#"{"prompt":"a","echo":true,"logprobs":1}"#;
    let reply = pair.running.client.post("/v1/completions", asked).await;
    assert_eq!(reply.text(), answer(r#""a","b""#));

    let event = |tokens: &str| format!("data: {}\n\n", answer(tokens));
    let pieces = vec![event(r#""b""#), event(r#""c""#)];
    pair.decode.answer(Answer::Events(pieces));
    let asked = r#"{"prompt":"a","echo":true,"logprobs":1,"stream":true}"#;
    let reply = pair.running.client.post("/v1/completions", asked).await;
    assert_eq!(reply.text(), event(r#""a","b""#) + &event(r#""c""#));
    pair.running.until_idle().await;
}

#[tokio::test]
async fn a_failing_prefill_is_retried_even_after_decode_has_answered() {
    let pair = Pair::start("").await;
    let prefill = r#"{"meta_info":{"input_token_logprobs":[7]}}"#;
    let broken = Answer::Status(500, String::new());
    pair.prefill
        .answer_in_turn([broken, Answer::Json(prefill.to_owned())]);
    pair.decode
        .answer(Answer::Json(r#"{"meta_info":{}}"#.to_owned()));
    let reply = pair.running.client.post("/generate", ASKED).await;
    assert_eq!(reply.text(), prefill);
}

#[tokio::test]
async fn nothing_is_read_or_changed_where_they_were_not_asked_for() {
    let pair = Pair::start("").await;
    let prefill = r#"{"meta_info":{"input_token_logprobs":[7]}}"#;
    pair.prefill.answer(Answer::Json(prefill.to_owned()));
    let decode = r#"{"meta_info":{"input_token_logprobs":[]}}"#;
    pair.decode.answer(Answer::Json(decode.to_owned()));
    let reply = pair
        .running
        .client
        .post("/generate", r#"{"text":"a"}"#)
        .await;
    assert_eq!(reply.text(), decode);
}
