//! Requests in SGLang's `/generate` shape and OpenAI's of completions, and what must be equal in
//! two answers.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

/// Ids that every tiny checkpoint and SmolLM2 have, past the special ones.
const TOKEN_IDS: std::ops::Range<u32> = 10..300;

/// A prompt of `len` random ids, the same for the same seed.
pub fn ids(seed: u64, len: usize) -> Vec<u32> {
    let mut rng = StdRng::seed_from_u64(seed);
    (0..len).map(|_| rng.random_range(TOKEN_IDS)).collect()
}

/// A greedy request that runs to its full length.
pub fn greedy(input_ids: &[u32], max_new_tokens: u32) -> Value {
    json!({
        "input_ids": input_ids,
        "sampling_params": {
            "temperature": 0, "max_new_tokens": max_new_tokens, "ignore_eos": true,
        },
        "return_logprob": true,
        "top_logprobs_num": 3,
        "token_ids_logprob": [11, 299],
    })
}

/// A sampled request whose every draw follows from the seed.
pub fn sampled(input_ids: &[u32], max_new_tokens: u32, seed: u64) -> Value {
    let mut request = greedy(input_ids, max_new_tokens);
    request["sampling_params"]["temperature"] = json!(0.9);
    request["sampling_params"]["top_p"] = json!(0.95);
    request["sampling_params"]["top_k"] = json!(40);
    request["sampling_params"]["repetition_penalty"] = json!(1.1);
    request["sampling_params"]["sampling_seed"] = json!(seed);
    request
}

/// Prompts of these lengths, some sharing prefixes; greedy and sampled in turn.
pub fn ragged(lens: &[usize], new_tokens: u32) -> Vec<Value> {
    let shared = ids(1, 48);
    lens.iter()
        .enumerate()
        .map(|(i, &len)| {
            let seed = 100 + i as u64;
            let mut prompt = ids(seed, len);
            if i % 3 == 0 && len > shared.len() {
                prompt[..shared.len()].copy_from_slice(&shared);
            }
            if i % 2 == 0 {
                greedy(&prompt, new_tokens)
            } else {
                sampled(&prompt, new_tokens, seed)
            }
        })
        .collect()
}

/// Prompts of these lengths whose answers a grammar holds: an expression or a schema, greedy or sampled.
pub fn constrained(lens: &[usize], new_tokens: u32) -> Vec<Value> {
    let schema = json!({"type": "object", "properties": {
        "name": {"type": "string", "maxLength": 20}, "is_open": {"type": "boolean"},
    }, "required": ["name", "is_open"], "additionalProperties": false});
    let grammars = [
        ("regex", json!("[a-z]{3,9}( [a-z]{3,9}){2,20}")),
        ("json_schema", json!(schema.to_string())),
    ];
    let mut requests = ragged(lens, new_tokens);
    for (i, request) in requests.iter_mut().enumerate() {
        let (kind, source) = &grammars[i / 2 % grammars.len()];
        let params = &mut request["sampling_params"];
        params[*kind] = source.clone();
        params["ignore_eos"] = json!(false);
    }
    requests
}

/// Completions that echo their prompt with its log probabilities, as evaluations ask for them:
/// with and without an answer, several prompts, several choices, and an answer that ends at once.
pub fn echoed() -> Vec<Value> {
    let request = |extra: Value| {
        let mut request = json!({
            "echo": true, "logprobs": 2, "max_tokens": 12, "temperature": 0, "ignore_eos": true,
        });
        let fields = request.as_object_mut().expect("an object is given above");
        fields.extend(extra.as_object().expect("extras are objects").clone());
        request
    };
    let sampled = json!({"n": 2, "temperature": 0.9, "seed": 5, "logprobs": 0,
        "prompt": ["the sea is wide", "a sky"]});
    let stopped = json!({"prompt": "the sea", "stop_token_ids": [77], "logit_bias": {"77": 100}});
    vec![
        request(json!({"prompt": "the sea is wide and deep, and the sky is high"})),
        request(sampled),
        request(json!({"prompt": [ids(1, 200), ids(2, 9), ids(3, 1)]})),
        request(stopped),
        request(json!({"prompt": ids(4, 70), "max_tokens": 0})),
        request(json!({"prompt": [ids(5, 40), ids(6, 3)], "n": 2, "max_tokens": 0})),
    ]
}

/// What two engines must agree on, bit for bit: ids, text and every logprob as it was printed.
pub fn essence(answer: &Value) -> Value {
    let meta = &answer["meta_info"];
    json!({
        "output_ids": answer["output_ids"],
        "text": answer["text"],
        "finish_reason": meta["finish_reason"],
        "output_token_logprobs": meta["output_token_logprobs"],
        "output_top_logprobs": meta["output_top_logprobs"],
        "output_token_ids_logprobs": meta["output_token_ids_logprobs"],
        "input_token_logprobs": meta["input_token_logprobs"],
        "prompt_tokens": meta["prompt_tokens"],
        "completion_tokens": meta["completion_tokens"],
    })
}
