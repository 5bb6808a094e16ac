//! Golden logits of transformers, and bit-equality however a sequence is cut, paged or batched.

mod damaged;
mod drafts;
mod emulated;
mod gguf;
mod kv;
mod paper;
mod published;
mod runner;

use super::*;
use pd_compute::DType;
use pd_compute::cpu::CpuBackend;
use proptest::prelude::*;
use runner::{Piece, Runner, Sizes};
use safetensors::SafeTensors;
use std::fs;
use std::path::{Path, PathBuf};

/// Largest difference from the reference, relative to the row's largest logit.
const GOLDEN_BOUND: f32 = 1e-4;
/// The same where weights are integer codes, which multiply activations of sixteen bits.
const CODES_BOUND: f32 = 5e-4;
/// The same where weights, activations and KV are bfloat16, which rounds to 1/256 after every op.
const BFLOAT16_BOUND: f32 = 5e-2;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(name)
}

fn runner(model: &str, page_size: usize) -> Runner<CpuBackend> {
    runner_on(runner::backend(), model, page_size)
}

fn runner_on<B: Backend>(backend: B, model: &str, page_size: usize) -> Runner<B> {
    Runner::new(backend, &golden(model), sizes(page_size))
}

fn sizes(page_size: usize) -> Sizes {
    let step = StepLimits {
        max_tokens: 256,
        max_logit_rows: 256,
    };
    Sizes {
        page_size,
        max_seqs: 2,
        max_seq_len: 512,
        step,
    }
}

struct Golden {
    tokens: Vec<u32>,
    prompt_len: usize,
    /// Some of the tokens' rows, with their places.
    logits: Vec<(usize, Vec<f32>)>,
}

fn read_golden(path: &Path) -> Golden {
    let bytes = fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let words = |name: &str| -> Vec<[u8; 4]> {
        file.tensor(name)
            .unwrap()
            .data()
            .as_chunks::<4>()
            .0
            .to_vec()
    };
    let tokens: Vec<u32> = words("tokens")
        .into_iter()
        .map(u32::from_le_bytes)
        .collect();
    let logits: Vec<f32> = words("logits")
        .into_iter()
        .map(f32::from_le_bytes)
        .collect();
    let rows: Vec<usize> = if file.tensor("rows").is_ok() {
        let rows = words("rows").into_iter();
        rows.map(|row| u32::from_le_bytes(row) as usize).collect()
    } else {
        (0..tokens.len()).collect()
    };
    let vocab = logits.len() / rows.len();
    Golden {
        prompt_len: u32::from_le_bytes(words("prompt_len")[0]) as usize,
        logits: rows
            .into_iter()
            .zip(logits.chunks(vocab).map(<[f32]>::to_vec))
            .collect(),
        tokens,
    }
}

fn assert_golden(model: &str, golden_file: &str) {
    assert_golden_on(runner::backend(), model, golden_file, GOLDEN_BOUND);
}

/// The prompt in one pass, then step by step through the cache.
fn assert_golden_on<B: Backend>(backend: B, model: &str, golden_file: &str, bound: f32) {
    assert_golden_by(runner_on(backend, model, 16), model, golden_file, bound);
}

fn assert_golden_by<B: Backend>(runner: Runner<B>, model: &str, golden_file: &str, bound: f32) {
    assert_as(&read_golden(&golden(golden_file)), runner, model, bound);
}

fn assert_as<B: Backend>(expected: &Golden, runner: Runner<B>, model: &str, bound: f32) {
    let (errors, rows) = errors_of(expected, runner);
    let worst = errors.into_iter().fold(0f32, f32::max);
    println!("{model}: largest relative error {worst:.1e}");
    assert!(worst <= bound, "{model}: relative error {worst}");
    if bound <= CODES_BOUND {
        let steps = &expected.tokens[expected.prompt_len..];
        let drawn = rows[expected.prompt_len - 1..]
            .iter()
            .map(|row| likeliest(row));
        let drawn: Vec<u32> = drawn.take(steps.len()).collect();
        assert_eq!(drawn, steps, "{model}: greedy tokens");
    }
}

/// Of each row with expected logits the largest difference, relative to its largest logit; and all rows.
fn errors_of<B: Backend>(expected: &Golden, mut runner: Runner<B>) -> (Vec<f32>, Vec<Vec<f32>>) {
    let (prompt, steps) = expected.tokens.split_at(expected.prompt_len);
    let mut rows = runner.forward(&[Piece::all(0, 0, prompt)]);
    for (step, token) in steps.iter().enumerate() {
        rows.extend(runner.forward(&[Piece::all(0, prompt.len() + step, &[*token])]));
    }
    assert_eq!(rows.len(), expected.tokens.len());
    let error = |(place, expected): &(usize, Vec<f32>)| {
        let largest =
            |values: &mut dyn Iterator<Item = f32>| values.fold(0f32, |a, b| a.max(b.abs()));
        let off = rows[*place].iter().zip(expected).map(|(a, b)| a - b);
        largest(&mut { off }) / largest(&mut expected.iter().copied())
    };
    (expected.logits.iter().map(error).collect(), rows)
}

fn likeliest(row: &[f32]) -> u32 {
    let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    u32::try_from(best.unwrap().0).unwrap()
}

/// Tiny checkpoints of every family.
const MODELS: [&str; 17] = [
    "tiny-deepseek-v2",
    "tiny-deepseek-v3",
    "tiny-deepseek-v3-fp8",
    "tiny-gemma3",
    "tiny-gpt-oss",
    "tiny-gpt-oss-mxfp4",
    "tiny-llama",
    "tiny-mistral",
    "tiny-mistral-full",
    "tiny-mistral-full-fp8",
    "tiny-qwen2",
    "tiny-qwen3",
    "tiny-qwen3-5",
    "tiny-qwen3-5-moe",
    "tiny-qwen3-moe",
    "tiny-qwen3-next",
    "tiny-qwen3-moe-fp8",
];

#[test]
fn every_family_matches_transformers_in_prefill_and_cached_steps() {
    for model in MODELS {
        assert_golden(model, &format!("{model}/golden.safetensors"));
    }
}

/// As above, for a checkpoint of another seed or shape: `make golden FAMILY=…`.
#[test]
fn golden_of_a_folder() {
    if let Some(folder) = std::env::var_os("PDSERVE_GOLDEN_DIR") {
        let folder = folder.into_string().unwrap();
        assert_golden(&folder, &format!("{folder}/golden.safetensors"));
    }
}

/// What bfloat16 costs by torch's own kernels is the measure of what it may cost by ours.
#[cfg(feature = "tch")]
#[test]
fn libtorch_matches_transformers_in_prefill_and_cached_steps() {
    use emulated::{assert_golden_emulated, emulated};
    use pd_compute::tch::{TchBackend, TchConfig, usual_device};
    let all = [(DType::F32, GOLDEN_BOUND), (DType::BF16, BFLOAT16_BOUND)];
    for (model, bounds) in [
        ("tiny-llama", &all[..]),
        ("tiny-gemma3", &all),
        ("tiny-mistral", &all),
        ("tiny-qwen2", &all),
        ("tiny-qwen3", &all),
        // In bfloat16, rows go to other experts, and eight layers with states round twice as much.
        ("tiny-qwen3-5", &all[..1]),
        ("tiny-qwen3-moe", &all[..1]),
        ("tiny-qwen3-5-moe", &all[..1]),
        ("tiny-qwen3-next", &all[..1]),
        ("tiny-deepseek-v2", &all[..1]),
        ("tiny-deepseek-v3", &all[..1]),
        ("tiny-gpt-oss", &all[..1]),
    ] {
        let file = format!("{model}/golden.safetensors");
        for &(dtype, bound) in bounds {
            let device = usual_device();
            let torch = TchBackend::start(TchConfig { device, dtype }).unwrap();
            println!("{dtype:?} by libtorch on {device:?}, then by CUDA's kernels in emulation:");
            assert_golden_on(torch, model, &file, bound);
            if emulated(dtype).check_ops(&needs_of(model, dtype)).is_ok() {
                assert_golden_emulated(dtype, model, &file, bound);
            }
        }
    }
}

fn needs_of(model: &str, dtype: DType) -> pd_compute::OpNeeds {
    needs(&ModelFiles::open(&golden(model)).unwrap().config, dtype)
}

#[test]
fn the_pool_is_described_as_the_configuration_says() {
    let runner = runner("tiny-qwen3", 1);
    let spec = runner.model().kv_pool_spec();
    let group = &spec.groups[0];
    assert_eq!(
        (group.layers.as_slice(), group.total_heads, group.head_dim),
        (&[0, 1, 2][..], 2, 32)
    );
    assert_eq!(group.elements_per_token(), 3 * 2 * 2 * 32);
}

/// Logits of every position of `tokens`, run alone in one pass.
fn alone(model: &str, tokens: &[u32]) -> Vec<Vec<f32>> {
    runner(model, 16).forward(&[Piece::all(0, 0, tokens)])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn logits_are_bit_equal_however_a_sequence_is_cut_paged_and_batched(
        tokens in prop::collection::vec(0u32..384, 2..150),
        mate in prop::collection::vec(0u32..384, 1..40),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        page_size in prop::sample::select(vec![1usize, 16, 64]),
        model in prop::sample::select(vec![
            "tiny-llama", "tiny-qwen2", "tiny-mistral", "tiny-qwen3", "tiny-qwen3-5", "tiny-qwen3-5-moe", "tiny-qwen3-moe",
            "tiny-gemma3", "tiny-gpt-oss-mxfp4", "tiny-qwen3-moe-fp8", "tiny-deepseek-v2", "tiny-deepseek-v3-fp8", "tiny-gguf/llama-k.gguf",
        ]),
    ) {
        let expected = alone(model, &tokens);
        let mut runner = runner(model, page_size);
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(tokens.len())).collect();
        ends.extend([0, tokens.len()]);
        ends.sort_unstable();
        ends.dedup();
        for (index, range) in ends.windows(2).enumerate() {
            let (start, end) = (range[0], range[1]);
            let piece = Piece::last_row(0, start, &tokens[start..end]);
            // The mate joins with its prompt in the first chunk, then goes on by one token.
            let mate = if index == 0 {
                Piece::last_row(1, 0, &mate)
            } else {
                Piece::last_row(1, mate.len() + index - 1, &mate[..1])
            };
            let rows = if index % 2 == 0 {
                runner.forward(&[piece, mate]).swap_remove(0)
            } else {
                runner.forward(&[mate, piece]).swap_remove(1)
            };
            prop_assert_eq!(&rows, &expected[end - 1]);
        }
    }

    #[test]
    fn a_sequence_goes_on_from_a_snapshot_to_the_same_bits(
        tokens in prop::collection::vec(0u32..384, 3..100),
        mate in prop::collection::vec(0u32..384, 1..40),
        at in any::<prop::sample::Index>(),
        end in any::<prop::sample::Index>(),
    ) {
        let kept = 1 + at.index(tokens.len() - 1);
        let end = kept + end.index(tokens.len() - kept);
        let expected = alone("tiny-qwen3-5", &tokens);
        let mut runner = runner("tiny-qwen3-5", 16);
        // Other tokens follow the snapshot first, in its step and in another.
        let mut others = tokens.clone();
        others[kept..].reverse();
        runner.forward(&[
            Piece::last_row(1, 0, &mate),
            Piece::last_row(0, 0, &others[..end]).keeping(kept),
        ]);
        if end < tokens.len() {
            runner.forward(&[Piece::last_row(0, end, &others[end..])]);
        }
        // What begins at the snapshot may not have been computed with it.
        for _ in 0..2 {
            let resumed = Piece::all(0, kept, &tokens[kept..]).resumed();
            let rows = runner.forward(&[Piece::last_row(1, mate.len(), &mate[..1]), resumed]);
            prop_assert_eq!(&rows[1..], &expected[kept..]);
        }
    }
}

/// Rows go through experts at most 1,024 at a time.
#[test]
fn experts_give_the_same_bits_in_more_rows_than_go_through_them_at_once() {
    let tokens: Vec<u32> = (0..1100).map(|i| i * 7 % 384).collect();
    let sizes = Sizes {
        page_size: 16,
        max_seqs: 1,
        max_seq_len: 1104,
        step: StepLimits {
            max_tokens: 1100,
            max_logit_rows: 1,
        },
    };
    let run = |cuts: &[usize]| {
        let mut runner = Runner::new(runner::backend(), &golden("tiny-qwen3-moe"), sizes);
        let pieces = cuts.windows(2);
        let rows = pieces
            .map(|cut| runner.forward(&[Piece::last_row(0, cut[0], &tokens[cut[0]..cut[1]])]));
        rows.last().unwrap()
    };
    assert_eq!(run(&[0, 1100]), run(&[0, 500, 1100]));
}
