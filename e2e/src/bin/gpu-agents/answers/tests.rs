//! That each comparison fails where answers differ, and where there is nothing to compare.

use super::*;
use serde_json::json;

const KEY: &str = "output_token_logprobs";

fn mk_answer(tokens: &[u64], logprob: f64) -> Value {
    let logprobs: Vec<Value> = tokens
        .iter()
        .map(|&id| json!([logprob, id, null]))
        .collect();
    json!({"output_ids": tokens, "text": "", "meta_info": {KEY: logprobs}})
}

#[test]
fn another_token_is_found() {
    let expected = [mk_answer(&[3, 4], -1.0), mk_answer(&[5, 6], -1.0)];
    assert_eq!(equal_tokens(&expected, &expected).unwrap(), 4);
    let got = [mk_answer(&[3, 4], -1.0), mk_answer(&[5, 7], -1.0)];
    assert!(equal_tokens(&got, &expected).is_err());
    assert!(equal_bits(&got, &expected).is_err());
}

#[test]
fn answers_that_are_missing_or_empty_prove_nothing() {
    let one = [mk_answer(&[3], -1.0)];
    assert!(equal_tokens(&[], &[]).is_err());
    assert!(equal_tokens(&[], &one).is_err());
    let empty = [mk_answer(&[], -1.0)];
    assert!(equal_tokens(&empty, &empty).is_err());
    assert!(close_logprobs(&empty, &empty, KEY, 1.0).is_err());
    assert!(close_logprobs(&one, &one, "input_token_logprobs", 1.0).is_err());
    let bare = [json!({"output_ids": [3]})];
    assert!(equal_bits(&bare, &bare).is_err());
}

#[test]
fn one_bit_of_a_log_probability_is_found() {
    let expected = [mk_answer(&[3], -1.0)];
    assert!(equal_bits(&expected, &expected).is_ok());
    let got = [mk_answer(&[3], -1.000_000_1)];
    assert!(equal_bits(&got, &expected).is_err());
}

#[test]
fn log_probabilities_are_held_to_the_bound() {
    let expected = [mk_answer(&[3, 4], -1.0)];
    let got = [mk_answer(&[3, 4], -1.01)];
    assert!(close_logprobs(&got, &expected, KEY, 0.02).unwrap() > 0.009);
    assert!(close_logprobs(&got, &expected, KEY, 0.001).is_err());
    let other = [mk_answer(&[3, 5], -1.0)];
    assert!(close_logprobs(&other, &expected, KEY, 0.02).is_err());
    let mut missing = expected.clone();
    missing[0]["meta_info"][KEY][1][0] = Value::Null;
    assert!(close_logprobs(&missing, &expected, KEY, 0.02).is_err());
}

#[test]
fn half_of_the_log_probabilities_are_held_to_the_bound() {
    let expected = [mk_answer(&[3, 4], -1.0), mk_answer(&[5], -1.0)];
    let mut got = expected.clone();
    got[1] = mk_answer(&[5], -9.0);
    assert!(half_close_logprobs(&got, &expected, KEY, 0.02).is_ok());
    got[0] = mk_answer(&[3, 4], -1.1);
    assert!(half_close_logprobs(&got, &expected, KEY, 0.02).is_err());
    assert!(half_close_logprobs(&got, &expected, KEY, 0.2).unwrap() > 0.09);
    let empty = [mk_answer(&[], -1.0)];
    assert!(half_close_logprobs(&empty, &empty, KEY, 1.0).is_err());
}
