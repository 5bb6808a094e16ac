//! Log probabilities of the tokens that a request names: at each position of its prompt and answer, and of no other request.

use crate::harness::{LLAMA, alone, assert_same, collect, generate, mk_config, mk_prompt};
use crate::harness::{mk_request, mk_sampled, mk_unpenalised, naming_tokens, start};
use pd_engine::engine::TokenLogprob;

#[test]
fn a_named_token_has_the_logprob_that_it_has_where_it_is_drawn() {
    let engine = start(mk_config(LLAMA));
    for mk in [mk_request, mk_sampled, mk_unpenalised] {
        let mut request = mk(&mk_prompt(3, 80), 12);
        request.logprobs.logprob_start_len = Some(0);
        let expected = generate(&engine, request.clone());
        let of_answer = expected.token_ids.iter().chain(&request.input_ids);
        let named: Vec<u32> = of_answer.copied().collect();
        request.logprobs.token_ids_logprob = named.as_slice().into();
        let answer = generate(&engine, request);
        assert_eq!(answer.token_ids, expected.token_ids);
        assert!(answer.prompt_logprobs[0].asked.is_empty());
        let reported = answer.logprobs.iter().chain(&answer.prompt_logprobs[1..]);
        for TokenLogprob {
            token,
            logprob,
            top,
            asked,
        } in reported
        {
            assert_eq!(asked.len(), named.len());
            let bits = |of: u32| {
                let values = named.iter().zip(asked).filter(|(id, _)| **id == of);
                values.map(|(_, value)| value.to_bits()).collect::<Vec<_>>()
            };
            for (token, logprob) in top.iter().copied().chain([(*token, logprob.unwrap())]) {
                assert!(bits(token).iter().all(|bits| *bits == logprob.to_bits()));
            }
            assert!(!bits(*token).is_empty());
        }
    }
}

#[test]
fn requests_that_name_none_or_others_are_not_affected() {
    let engine = start(mk_config(LLAMA));
    let mut shorter = naming_tokens(mk_unpenalised(&mk_prompt(1, 70), 14));
    shorter.logprobs.token_ids_logprob = [9].into();
    let requests = [
        naming_tokens(mk_sampled(&mk_prompt(2, 90), 10)),
        shorter,
        mk_request(&mk_prompt(3, 40), 12),
    ];
    let streams = requests
        .clone()
        .map(|request| engine.submit(request).expect("a valid request"));
    for (request, stream) in requests.iter().zip(streams) {
        let answer = collect(stream);
        let named = request.logprobs.token_ids_logprob.len();
        assert!(
            answer
                .logprobs
                .iter()
                .all(|token| token.asked.len() == named)
        );
        assert_same(&answer, &alone(request));
    }
}

#[test]
fn lists_that_are_too_long_and_ids_of_no_token_are_refused() {
    let engine = start(mk_config(LLAMA));
    let vocab_size = engine.info().vocab_size;
    let refused = |ids: &[u32]| {
        let mut request = mk_request(&[1, 2], 1);
        request.logprobs.token_ids_logprob = ids.into();
        engine.submit(request).err().map(|error| error.to_string())
    };
    let in_words = |problem: String| Some(format!("token_ids_logprob {problem}"));
    let unknown = format!("contains {vocab_size}; the vocabulary has {vocab_size} tokens");
    assert_eq!(refused(&[1, vocab_size]), in_words(unknown));
    assert_eq!(
        refused(&[1; 129]),
        in_words("has 129 ids; give at most 128".to_owned())
    );
    assert_eq!(refused(&[vocab_size - 1; 128]), None);
}
