//! Single and batched bodies of `/generate`.

use super::*;
use serde_json::json;

fn body(json: &str) -> GenerateBody {
    crate::http::body::parse(json.as_bytes()).unwrap()
}

fn refusal<T: std::fmt::Debug>(outcome: Result<T, ApiError>) -> String {
    outcome.unwrap_err().message
}

#[test]
fn one_prompt_is_not_a_batch_but_a_list_of_one_is() {
    let (prompts, is_list) = body(r#"{"text": "a"}"#).take_prompts().unwrap();
    assert_eq!((prompts.len(), is_list), (1, false));
    let (prompts, is_list) = body(r#"{"input_ids": [1, 2]}"#).take_prompts().unwrap();
    assert_eq!((prompts, is_list), (vec![Prompt::Ids(vec![1, 2])], false));
    let (_, is_list) = body(r#"{"text": ["a"]}"#).take_prompts().unwrap();
    assert!(is_list);
}

#[test]
fn a_prompt_is_given_once() {
    assert_eq!(
        refusal(body("{}").take_prompts()),
        "give `text` or `input_ids`"
    );
    let both = body(r#"{"text": "a", "input_ids": [1]}"#).take_prompts();
    assert_eq!(refusal(both), "give `text` or `input_ids`, not both");
    assert!(refusal(body(r#"{"text": []}"#).take_prompts()).contains("empty"));
}

#[test]
fn settings_are_shared_or_one_for_each_prompt() {
    let spread = Spread { len: 2 };
    let logprobs = body(r#"{"return_logprob": [true, false], "logprob_start_len": 3}"#)
        .take_logprobs(&spread)
        .unwrap();
    assert_eq!(logprobs[0].logprob_start_len, Some(3));
    assert_eq!(logprobs[1], LogprobOptions::default());
    let three = body(r#"{"sampling_params": [{}, {}, {}]}"#).take_params(&spread);
    assert_eq!(
        refusal(three),
        "`sampling_params` has 3 elements for 2 prompts"
    );
}

#[test]
fn token_ids_are_of_all_prompts_or_of_each() {
    let ids = |token_ids: &str| {
        let asked =
            format!(r#"{{"return_logprob": [true, true], "token_ids_logprob": {token_ids}}}"#);
        let options = body(&asked).take_logprobs(&Spread { len: 2 });
        options.map(|options| {
            let ids = options.iter().map(|it| it.token_ids_logprob.to_vec());
            ids.collect::<Vec<_>>()
        })
    };
    assert_eq!(ids("[7, 5, 7]").unwrap(), [[7, 5, 7], [7, 5, 7]]);
    assert_eq!(ids("7").unwrap(), [[7], [7]]);
    assert_eq!(ids("[[7, 5], []]").unwrap(), [vec![7, 5], vec![]]);
    for none in ["null", "[]"] {
        assert_eq!(ids(none).unwrap(), [Vec::<u32>::new(), Vec::new()]);
    }
    assert_eq!(
        refusal(ids("[[1], [2], [3]]")),
        "`token_ids_logprob` has 3 elements for 2 prompts"
    );
    assert!(refusal(ids("[[1], 2]")).contains("mixes ids and lists of ids"));
}

#[test]
fn no_prompt_logprobs_are_returned_by_default() {
    let one = Spread { len: 1 };
    let logprobs = body(r#"{"return_logprob": true}"#)
        .take_logprobs(&one)
        .unwrap();
    assert_eq!(logprobs[0].logprob_start_len, None);
}

#[test]
fn one_id_for_several_prompts_is_numbered() {
    let rids = body(r#"{"rid": "r"}"#)
        .take_rids(&Spread { len: 2 })
        .unwrap();
    assert_eq!(rids, ["r_0", "r_1"]);
}

#[test]
fn n_is_one_for_the_whole_request() {
    let differing =
        body(r#"{"sampling_params": [{"n": 2}, {"n": 3}]}"#).take_params(&Spread { len: 2 });
    assert!(refusal(differing).contains("same for every prompt"));
}

#[test]
fn parameters_of_all_prompts_are_held_once() {
    let (_, params) = body(r#"{"sampling_params": {"logit_bias": {"5": 1.0}}}"#)
        .take_params(&Spread { len: 3 })
        .unwrap();
    assert!(Arc::ptr_eq(&params[0].sampling, &params[2].sampling));
}

#[test]
fn more_answers_than_a_router_has_rooms_for_are_refused() {
    let ask = |prompts: usize, n: u32| {
        let texts = vec!["a"; prompts];
        let asked = json!({"text": texts, "sampling_params": {"n": n}});
        body(&asked.to_string())
            .understand(Role::Unified)
            .map(|_| ())
    };
    assert!(ask(64, 128).is_ok());
    let message = "the request asks for 8320 answers; one request may ask for 8192";
    assert_eq!(refusal(ask(65, 128)), message);
    assert!(ask(8193, 1).is_err());
}

#[test]
fn ids_that_every_answer_would_repeat_at_length_are_refused() {
    let rid = "r".repeat(257);
    for given in [json!(rid), json!([rid, "r"])] {
        let asked = json!({"text": ["a", "b"], "rid": given}).to_string();
        let refused = body(&asked).understand(Role::Unified).map(|_| ());
        assert_eq!(refusal(refused), "`rid` has 257 bytes; give at most 256");
    }
}
