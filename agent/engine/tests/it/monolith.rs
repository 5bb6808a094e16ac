//! Mode `null`: what a request gets does not depend on how its prompt was cut or on its company.

use pd_engine::engine::FinishReason;

use crate::harness::{LLAMA, generate, mk_config, mk_prompt, mk_request, start};

#[test]
fn a_request_gets_as_many_tokens_as_it_asked_for() {
    let engine = start(mk_config(LLAMA));
    let answer = generate(&engine, mk_request(&mk_prompt(1, 40), 8));
    assert_eq!(answer.finish, Some(FinishReason::Length));
    assert_eq!(answer.token_ids.len(), 8);
    assert_eq!(answer.logprobs.len(), 8);
}
