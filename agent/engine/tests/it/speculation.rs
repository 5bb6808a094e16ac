//! Speculation: with drafts a request gets the tokens and log probabilities that it gets without, over pages, chunks,
//! company, lost pages and both modes that compute answers.

use crate::harness::{LLAMA, MODELS, QWEN3_5, alone_on, assert_nothing_held, assert_same};
use crate::harness::{collect, generate, metric, mk_config, mk_prompt, mk_request};
use crate::harness::{mk_repeating, mk_sampled, mk_unpenalised, naming_tokens};
use crate::harness::{ngram, repeated, start};
use crate::pair::Pair;
use pd_engine::engine::{Engine, EngineConfig};
use pd_engine::engine::{SpeculativeAlgorithm, SpeculativeConfig};
use pd_kv_transfer::TransportChoice;
use pd_protocol::Transport;
use proptest::prelude::*;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// Drafts of another checkpoint, or of the same.
fn drafted_by(draft: &Path, num_steps: u32) -> Option<SpeculativeConfig> {
    Some(SpeculativeConfig {
        algorithm: SpeculativeAlgorithm::Standalone {
            draft_model_path: draft.to_owned(),
        },
        num_steps,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn drafts_change_no_bit(
        model in prop::sample::select(MODELS.to_vec()),
        kind in 0..3usize,
        prompt_len in 1..120usize,
        chunk in prop::option::of(prop::sample::select(vec![64u32, 80])),
        page_size in prop::sample::select(vec![1u32, 16, 64]),
        mates in prop::collection::vec(1..100usize, 0..4),
        num_steps in 1..5u32,
        overlap: bool,
    ) {
        let mk = [mk_request, mk_sampled, mk_unpenalised][kind];
        let request = naming_tokens(mk_repeating(mk(&repeated(9, prompt_len), 30)));
        let expected = alone_on(model, &request);
        let engine = start(EngineConfig {
            chunked_prefill_size: chunk,
            page_size,
            speculative: ngram(num_steps),
            overlap_schedule: Some(overlap),
            ..mk_config(model)
        });
        let streams: Vec<_> = (100..)
            .zip(mates)
            .map(|(seed, len)| engine.submit(mk_request(&repeated(seed, len), 20)).unwrap())
            .collect();
        assert_same(&generate(&engine, request), &expected);
        for stream in streams {
            prop_assert_eq!(collect(stream).token_ids.len(), 20);
        }
        assert_nothing_held(&engine);
    }
}

#[test]
fn a_pair_that_speculates_gives_what_one_engine_gives_without_even_when_pages_run_out() {
    for model in [LLAMA, QWEN3_5] {
        let requests: Vec<_> = (0..5)
            .map(|seed| mk_repeating(mk_request(&repeated(seed, 30), 150)))
            .collect();
        let pair = Pair::start(TransportChoice::Only(Transport::Shm), |config| {
            EngineConfig {
                model_path: mk_config(model).model_path,
                max_total_tokens: Some(256),
                speculative: ngram(3),
                ..config
            }
        });
        let streams = pair.submit_all(&requests);
        for ((prefill, decode), request) in streams.into_iter().zip(&requests) {
            collect(prefill);
            assert_same(&collect(decode), &alone_on(model, request));
        }
        assert!(metric(&pair.decode, "pdserve_num_retractions_total") > 0.5);
        assert!(metric(&pair.decode, "pdserve_spec_accepted_tokens_total") > 0.5);
        assert_nothing_held(&pair.prefill);
        assert_nothing_held(&pair.decode);
    }
}

#[test]
fn a_model_that_drafts_for_itself_is_always_right_and_another_changes_no_bit() {
    for mk in [mk_request, mk_sampled, mk_unpenalised] {
        let request = mk(&mk_prompt(4, 50), 31);
        let expected = alone_on(LLAMA, &request);
        for (draft, is_itself) in [(LLAMA, true), ("tiny-mistral", false)] {
            let engine = start(EngineConfig {
                speculative: drafted_by(&mk_config(draft).model_path, 4),
                ..mk_config(LLAMA)
            });
            assert_same(&generate(&engine, request.clone()), &expected);
            let drafts = metric(&engine, "pdserve_spec_draft_tokens_total");
            let accepted = metric(&engine, "pdserve_spec_accepted_tokens_total");
            assert!(drafts > 0.5);
            assert_eq!(is_itself, accepted > drafts - 0.5, "{accepted} of {drafts}");
            assert_nothing_held(&engine);
        }
    }
}

#[test]
fn a_pair_drafts_by_a_model_on_decode_alone() {
    let requests: Vec<_> = (0..5)
        .map(|seed| mk_request(&mk_prompt(seed, 30), 150))
        .collect();
    let pair = Pair::start(TransportChoice::Only(Transport::Shm), |config| {
        EngineConfig {
            max_total_tokens: Some(256),
            speculative: drafted_by(&mk_config(LLAMA).model_path, 3),
            ..config
        }
    });
    let streams = pair.submit_all(&requests);
    for ((prefill, decode), request) in streams.into_iter().zip(&requests) {
        collect(prefill);
        assert_same(&collect(decode), &alone_on(LLAMA, request));
    }
    let drafts = metric(&pair.decode, "pdserve_spec_draft_tokens_total");
    let accepted = metric(&pair.decode, "pdserve_spec_accepted_tokens_total");
    assert!(
        drafts > 0.5 && accepted > drafts - 0.5,
        "{accepted} of {drafts}"
    );
    assert!(metric(&pair.decode, "pdserve_num_retractions_total") > 0.5);
    assert_nothing_held(&pair.decode);
}

/// The tiny Llama with other words in one of its files.
fn mk_changed(file: &str, from: &str, to: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        let bytes = fs::read(mk_config(LLAMA).model_path.join(name)).expect("a file");
        fs::write(folder.path().join(name), bytes).expect("a copy");
    }
    let path = folder.path().join(file);
    let text = fs::read_to_string(&path).expect("text");
    assert!(text.contains(from), "{from} in {file}");
    fs::write(path, text.replacen(from, to, 1)).expect("the change");
    folder
}

#[test]
fn a_model_that_cannot_draft_for_another_is_refused_by_what_is_wrong() {
    let refused = |draft: &Path, expected: &str| {
        let config = EngineConfig {
            speculative: drafted_by(draft, 3),
            ..mk_config(LLAMA)
        };
        let error = Engine::start(config).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(error.contains("--speculative-draft-model-path"), "{error}");
        assert!(error.contains(&*draft.to_string_lossy()), "{error}");
    };
    let recurrent = mk_config(QWEN3_5).model_path;
    refused(&recurrent, "it has recurrent layers, whose state");
    for (file, from, to, expected) in [
        (
            "config.json",
            "\"vocab_size\": 384",
            "\"vocab_size\": 400",
            "it has 400 token ids, with padding, and the model 384",
        ),
        (
            "config.json",
            "\"max_position_embeddings\": 4096",
            "\"max_position_embeddings\": 64",
            "it reads 64 tokens and requests may have 4096",
        ),
        (
            "tokenizer.json",
            "\"#\":",
            "\"\u{e9}\":",
            "its token 5 is another than the model's",
        ),
    ] {
        let draft = mk_changed(file, from, to);
        refused(draft.path(), expected);
    }
}
