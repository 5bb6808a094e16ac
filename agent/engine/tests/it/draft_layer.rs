//! Speculation by the model's own draft layer: the tokens and log probabilities of a run without, over pages, chunks,
//! company, cached prefixes, lost pages and both modes; and drafts that depend on none of these.

use crate::harness::{Answer, DEEPSEEK, LLAMA, QWEN3_5, alone_on, assert_nothing_held};
use crate::harness::{assert_same, collect, generate, metric, mk_config, mk_prompt, mk_request};
use crate::harness::{mk_sampled, mk_unpenalised, start};
use crate::pair::Pair;
use pd_engine::engine::{DisaggregationMode, Engine, EngineConfig, EngineHandle};
use pd_engine::engine::{FinishReason, GenerateRequest, SpeculativeAlgorithm, SpeculativeConfig};
use pd_kv_transfer::TransportChoice;
use pd_protocol::Transport;
use proptest::prelude::*;
use safetensors::tensor::{SafeTensors, TensorView};
use std::collections::BTreeMap;
use tempfile::TempDir;

const QWEN3_5_MOE: &str = "tiny-qwen3-5-moe";
const QWEN3_NEXT: &str = "tiny-qwen3-next";

/// One of each family with a draft layer.
const MODELS: [&str; 4] = [DEEPSEEK, QWEN3_5, QWEN3_5_MOE, QWEN3_NEXT];

pub(crate) fn nextn(num_steps: u32) -> Option<SpeculativeConfig> {
    Some(SpeculativeConfig {
        algorithm: SpeculativeAlgorithm::Nextn,
        num_steps,
    })
}

/// Its answer is of three tokens, so that drafts, which are biased alike, are now right and now wrong.
fn mk_narrow(mut request: GenerateRequest) -> GenerateRequest {
    request.sampling.logit_bias = [5, 6, 7].map(|token| (token, 50.0)).to_vec();
    request
}

/// Drafts so far, and those that were accepted.
pub(crate) fn drafted(engine: &EngineHandle) -> (f64, f64) {
    let drafts = metric(engine, "pdserve_spec_draft_tokens_total");
    (drafts, metric(engine, "pdserve_spec_accepted_tokens_total"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn a_draft_layer_changes_no_bit(
        model in prop::sample::select(MODELS.to_vec()),
        kind in 0..3usize,
        prompt_len in 1..120usize,
        chunk in prop::option::of(prop::sample::select(vec![64u32, 80])),
        page_size in prop::sample::select(vec![1u32, 16, 64]),
        mates in prop::collection::vec(1..100usize, 0..4),
        tokens in prop::sample::select(vec![256u32, 1024]),
        num_steps in 1..4u32,
        narrow: bool,
        overlap: bool,
    ) {
        let mk = [mk_request, mk_sampled, mk_unpenalised][kind];
        let narrowed = |request| if narrow { mk_narrow(request) } else { request };
        let request = narrowed(mk(&mk_prompt(9, prompt_len), 30));
        let expected = alone_on(model, &request);
        let engine = start(EngineConfig {
            chunked_prefill_size: chunk,
            page_size,
            max_total_tokens: Some(tokens),
            speculative: nextn(num_steps),
            overlap_schedule: Some(overlap),
            ..mk_config(model)
        });
        let streams: Vec<_> = (100..)
            .zip(mates)
            .map(|(seed, len)| engine.submit(mk_request(&mk_prompt(seed, len), 20)).unwrap())
            .collect();
        // The second finds the first one's prefix.
        for _ in 0..2 {
            assert_same(&generate(&engine, request.clone()), &expected);
        }
        for stream in streams {
            prop_assert_eq!(collect(stream).token_ids.len(), 20);
        }
        prop_assert!(drafted(&engine).0 > 0.5);
        assert_nothing_held(&engine);
    }
}

/// Too short for the switch, which measures, to decide anything. The first chunks have no outputs.
fn mk_short(seed: u32) -> GenerateRequest {
    let mut request = mk_narrow(mk_unpenalised(&mk_prompt(seed, 150), 6));
    request.logprobs.logprob_start_len = None;
    request
}

/// What is drafted and what is accepted of each of some requests in turn.
fn acceptance(decodes: &EngineHandle, mut serve: impl FnMut(u32)) -> Vec<(f64, f64)> {
    let counts = (0..16).map(|seed| {
        let before = drafted(decodes);
        serve(seed);
        let after = drafted(decodes);
        (after.0 - before.0, after.1 - before.1)
    });
    counts.collect()
}

/// Without cached prefixes: where one ends, the entry is of the token that came next in another request.
fn config_of(folder: &TempDir, chunk: Option<u32>, page_size: u32) -> EngineConfig {
    EngineConfig {
        disable_radix_cache: true,
        chunked_prefill_size: chunk,
        page_size,
        speculative: nextn(3),
        ..at(folder, mk_config(LLAMA))
    }
}

/// [`acceptance`] in one engine.
fn unified(config: EngineConfig) -> Vec<(f64, f64)> {
    let engine = start(config);
    acceptance(&engine, |seed| {
        generate(&engine, mk_short(seed));
    })
}

#[test]
fn drafts_depend_neither_on_chunks_nor_on_pages() {
    for model in MODELS {
        let folder = attentive(model);
        let expected = unified(config_of(&folder, None, 1));
        let drafts: f64 = expected.iter().map(|counts| counts.0).sum();
        let accepted: f64 = expected.iter().map(|counts| counts.1).sum();
        assert!(
            accepted > 0.1 * drafts && accepted < 0.9 * drafts,
            "{model}: {accepted} of {drafts}"
        );
        for (chunk, page_size) in [(Some(64), 16), (Some(80), 1), (None, 64)] {
            let counts = unified(config_of(&folder, chunk, page_size));
            assert_eq!(counts, expected, "{model}: {chunk:?}, {page_size}");
        }
    }
}

/// From the first one on: that one follows what prefill's layer made of the prompt's last entry, and all of them see
/// the entries that prefill sent.
#[test]
fn decode_drafts_what_one_engine_drafts() {
    for model in MODELS {
        let folder = attentive(model);
        for transport in [Transport::Shm, Transport::Tcp] {
            let pair = Pair::start(TransportChoice::Only(transport), |config| EngineConfig {
                mode: config.mode,
                ..config_of(&folder, Some(64), 16)
            });
            let mut room = 0;
            let counts = acceptance(&pair.decode, |seed| {
                room += 1;
                let (prefill, decode) = pair.submit(&mk_short(seed), room);
                collect(prefill);
                assert_eq!(collect(decode).token_ids.len(), 6);
            });
            assert_eq!(counts, unified(config_of(&folder, Some(64), 16)), "{model}");
            assert_nothing_held(&pair.prefill);
            assert_nothing_held(&pair.decode);
        }
    }
}

fn all_of(pair: &Pair, requests: &[GenerateRequest]) -> Vec<Answer> {
    let streams = pair.submit_all(requests).into_iter();
    let answers = streams.map(|(prefill, decode)| {
        collect(prefill);
        collect(decode)
    });
    answers.collect()
}

#[test]
fn a_pair_with_a_draft_layer_gives_what_one_engine_gives_without_even_when_pages_run_out() {
    for model in MODELS {
        for mk in [mk_request, mk_sampled] {
            let mut requests: Vec<_> = (0..5)
                .map(|seed| mk_narrow(mk(&mk_prompt(seed, 30), 150)))
                .collect();
            let logprobs = requests.iter_mut().map(|request| &mut request.logprobs);
            logprobs.for_each(|logprobs| logprobs.logprob_start_len = None);
            let pair = Pair::start(TransportChoice::Only(Transport::Shm), |config| {
                EngineConfig {
                    model_path: mk_config(model).model_path,
                    max_total_tokens: Some(256),
                    speculative: nextn(3),
                    ..config
                }
            });
            for (answer, request) in all_of(&pair, &requests).iter().zip(&requests) {
                assert_same(answer, &alone_on(model, request));
            }
            assert!(metric(&pair.decode, "pdserve_num_retractions_total") > 0.5);
            assert!(drafted(&pair.decode).1 > 0.5);
            assert_nothing_held(&pair.prefill);
            assert_nothing_held(&pair.decode);
        }
    }
}

/// Whose steps overlap, so that one is in flight when a request arrives with the state for its first draft.
#[test]
fn requests_that_arrive_while_another_rests_from_drafts_get_their_own_tokens() {
    let pair = Pair::start(TransportChoice::Only(Transport::Shm), |config| {
        EngineConfig {
            model_path: mk_config(QWEN3_5).model_path,
            speculative: nextn(3),
            ..config
        }
    });
    // Its drafts are hardly ever right.
    let resting = mk_request(&mk_prompt(50, 30), 500);
    let (prefill, decode) = pair.submit(&resting, 100);
    collect(prefill);
    for room in 1..=12 {
        let request = mk_narrow(mk_request(&mk_prompt(room, 30), 6));
        let (prefill, decode) = pair.submit(&request, room.into());
        collect(prefill);
        assert_same(&collect(decode), &alone_on(QWEN3_5, &request));
    }
    assert_same(&collect(decode), &alone_on(QWEN3_5, &resting));
    assert!(metric(&pair.decode, "pdserve_num_overlapped_steps_total") > 0.5);
    assert_nothing_held(&pair.decode);
}

#[test]
fn a_side_without_the_draft_layer_gets_no_kv_of_one_with_it() {
    let pair = Pair::start(TransportChoice::Only(Transport::Tcp), |config| {
        EngineConfig {
            model_path: mk_config(QWEN3_5).model_path,
            speculative: match config.mode {
                DisaggregationMode::Prefill(_) => nextn(3),
                DisaggregationMode::Unified | DisaggregationMode::Decode(_) => None,
            },
            ..config
        }
    });
    let (prefill, decode) = pair.submit(&mk_request(&mk_prompt(1, 30), 10), 1);
    let Some(FinishReason::Abort { reason, .. }) = collect(decode).finish else {
        panic!("decode answered");
    };
    assert!(reason.contains("--speculative-algorithm NEXTN"), "{reason}");
    drop(prefill);
}

type Tensors = BTreeMap<String, (safetensors::Dtype, Vec<usize>, Vec<u8>)>;

fn tensors_of(model: &str) -> Tensors {
    let bytes = std::fs::read(mk_config(model).model_path.join("model.safetensors"))
        .expect("the checkpoint is there");
    let file = SafeTensors::deserialize(&bytes).expect("the checkpoint is whole");
    let tensors = file.tensors().into_iter().map(|(name, tensor)| {
        let shape = tensor.shape().to_vec();
        (name, (tensor.dtype(), shape, tensor.data().to_vec()))
    });
    tensors.collect()
}

/// A copy of a checkpoint with other tensors.
fn copy_with(model: &str, tensors: &Tensors) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for file in std::fs::read_dir(mk_config(model).model_path).expect("the checkpoint is there") {
        let file = file.expect("an entry of the folder");
        std::fs::copy(file.path(), folder.path().join(file.file_name())).expect("a copy");
    }
    let views = tensors.iter().map(|(name, (dtype, shape, bytes))| {
        let view = TensorView::new(*dtype, shape.clone(), bytes);
        (name, view.expect("bytes of its shape"))
    });
    let bytes = safetensors::serialize(views, None).expect("tensors of their shapes");
    std::fs::write(folder.path().join("model.safetensors"), bytes).expect("a file");
    folder
}

/// A model whose layers add nothing, so that the next token depends on the last one alone, and whose draft layer hands
/// the embedding of the token that it knows through to the same norm.
fn always_right() -> TempDir {
    let mut tensors = tensors_of(QWEN3_5);
    let norm = tensors["model.norm.weight"].2.clone();
    for (name, (_, shape, bytes)) in &mut tensors {
        let adds = ["o_proj.weight", "out_proj.weight", "down_proj.weight"];
        if adds.iter().any(|end| name.ends_with(end)) || name.contains("pre_fc_norm") {
            bytes.fill(0);
        } else if name == "mtp.norm.weight" {
            bytes.clone_from(&norm);
        } else if name == "mtp.fc.weight" {
            let one = half::bf16::ONE.to_le_bytes();
            bytes.fill(0);
            for (row, of_row) in bytes.chunks_exact_mut(2 * shape[1]).enumerate() {
                of_row[2 * row..2 * row + 2].copy_from_slice(&one);
            }
        }
    }
    copy_with(QWEN3_5, &tensors)
}

/// A model whose draft layer makes much of the entries that it sees.
fn attentive(model: &str) -> TempDir {
    let mut tensors = tensors_of(model);
    for (name, (_, _, bytes)) in &mut tensors {
        let is_of_draft = name.starts_with("mtp.") || name.starts_with("model.layers.3.");
        if is_of_draft && name.ends_with("o_proj.weight") {
            for value in bytes.as_chunks_mut::<2>().0 {
                let more = half::bf16::from_le_bytes(*value).to_f32() * 64.0;
                *value = half::bf16::from_f32(more).to_le_bytes();
            }
        }
    }
    copy_with(model, &tensors)
}

fn at(folder: &TempDir, config: EngineConfig) -> EngineConfig {
    EngineConfig {
        model_path: folder.path().to_owned(),
        ..config
    }
}

#[test]
fn a_draft_layer_that_is_right_gives_a_token_for_each_draft() {
    let folder = always_right();
    let plain = start(at(&folder, mk_config(QWEN3_5)));
    for mk in [mk_request, mk_sampled, mk_unpenalised] {
        // Too short for the switch, which measures, to decide anything.
        let request = mk(&mk_prompt(4, 50), 16);
        let expected = generate(&plain, request.clone());
        for num_steps in 1..4 {
            let engine = start(EngineConfig {
                speculative: nextn(num_steps),
                ..at(&folder, mk_config(QWEN3_5))
            });
            assert_same(&generate(&engine, request.clone()), &expected);
            let (drafts, accepted) = drafted(&engine);
            let steps = metric(&engine, "pdserve_spec_verify_total");
            let all = drafts > 0.5 && accepted > drafts - 0.5;
            assert!(all, "{accepted} of {drafts}");
            // Behind the first token: one step has no drafts, which shows what they cost.
            let (steps, awaited) = (steps.round(), (14.0 / f64::from(num_steps + 1)).ceil());
            assert!(steps == 1.0 + awaited, "{steps}, not 1 + {awaited}");
            assert_nothing_held(&engine);
        }
    }
}

/// Prompts that end in one step, and requests that begin in one, each draft from the state computed for them: another's
/// state would draft what follows another token.
#[test]
fn rooms_in_company_draft_from_their_own_states() {
    let folder = always_right();
    let pair = Pair::start(TransportChoice::Only(Transport::Shm), |config| {
        let speculative = nextn(3);
        EngineConfig {
            speculative,
            ..at(&folder, config)
        }
    });
    let requests: Vec<_> = (0..24)
        .map(|seed| mk_request(&mk_prompt(seed, 50), 8))
        .collect();
    for answer in all_of(&pair, &requests) {
        assert_eq!(answer.token_ids.len(), 8);
    }
    let steps = metric(&pair.prefill, "pdserve_num_steps_total");
    assert!(steps < 23.5, "each of {steps} steps had one prompt alone");
    let (drafts, accepted) = drafted(&pair.decode);
    let all = drafts > 0.5 && accepted > drafts - 0.5;
    assert!(all, "{accepted} of {drafts}");
    assert_nothing_held(&pair.prefill);
    assert_nothing_held(&pair.decode);
}

#[test]
fn what_cannot_draft_by_a_layer_is_refused() {
    let refusal = |config: EngineConfig| {
        let config = EngineConfig {
            speculative: nextn(3),
            ..config
        };
        Engine::start(config).unwrap_err().to_string()
    };
    let mut tensors = tensors_of(QWEN3_NEXT);
    tensors.retain(|name, _| !name.starts_with("mtp."));
    let folder = copy_with(QWEN3_NEXT, &tensors);
    for (config, problem) in [
        (mk_config(LLAMA), "llama models have no draft layer"),
        (
            at(&folder, mk_config(QWEN3_NEXT)),
            "tensor mtp.fc.weight is missing",
        ),
    ] {
        let error = refusal(config);
        assert!(error.contains(problem), "{error}");
        assert!(
            error.starts_with("--speculative-algorithm is NEXTN; "),
            "{error}"
        );
    }
}
