//! Draft layers beside the reference's logits: of entries whose tokens are known, and of the chain behind them.

use super::emulated::emulated;
use super::*;
use crate::model::DraftLayerError;

/// With a draft layer in each family that has one.
const MODELS: [&str; 4] = [
    "tiny-deepseek-v3",
    "tiny-qwen3-5",
    "tiny-qwen3-5-moe",
    "tiny-qwen3-next",
];

fn drafting(model: &str, page_size: usize) -> Runner<CpuBackend> {
    drafting_on(runner::backend(), model, page_size)
}

fn drafting_on<B: Backend>(backend: B, model: &str, page_size: usize) -> Runner<B> {
    let files = ModelFiles::open(&golden(model)).unwrap();
    let files = files.with_draft_layer().unwrap();
    let dtype = backend.activation_dtype();
    Runner::of_files(backend, &files, sizes(page_size), dtype)
}

impl<B: Backend> Runner<B> {
    /// A step over `tokens`, of which the first is number `start`, with the draft layer's entries, each of the token
    /// after; the draft logits of each.
    fn drafts(&mut self, start: usize, tokens: &[u32], next: &[u32]) -> Vec<Vec<f32>> {
        let inputs = self.inputs(&[Piece::all(0, start, tokens)]);
        let next: Vec<usize> = next.iter().map(|&token| token as usize).collect();
        let next = self.upload(&next);
        let rows: Vec<usize> = (0..tokens.len()).collect();
        let rows = self.upload(&rows);
        self.run(&inputs, |model, step| {
            model.forward(step);
            model.extend_drafts(step, &next);
            model.first_drafts(&rows, tokens.len());
        });
        self.logits(tokens.len())
    }

    /// The entries of a step without outputs, as chunks of a prompt but the last are.
    fn entries(&mut self, tokens: &[u32], next: &[u32]) {
        let mut inputs = self.inputs(&[Piece::all(0, 0, tokens)]);
        inputs.num_wanted = 0;
        let next: Vec<usize> = next.iter().map(|&token| token as usize).collect();
        let next = self.upload(&next);
        self.run(&inputs, |model, step| {
            model.forward(step);
            model.extend_drafts(step, &next);
        });
    }

    /// The logits of the draft after row `row` of those above.
    fn first(&mut self, row: usize) -> Vec<f32> {
        let inputs = self.inputs(&[Piece::all(0, 0, &[0])]);
        let row = self.upload(&[row]);
        self.run(&inputs, |model, _| model.first_drafts(&row, 1));
        self.logits(1).remove(0)
    }

    /// The logits of the draft after `draft`, which was drawn last; its entry is number `entry`.
    fn next(&mut self, entry: usize, draft: u32) -> Vec<f32> {
        let inputs = self.inputs(&[Piece::all(0, entry, &[draft])]);
        let row = self.upload(&[0]);
        self.run(&inputs, |model, step| model.more_drafts(step, &row));
        self.logits(1).remove(0)
    }
}

/// What transformers' layers made of the golden's tokens.
struct Drafted {
    rows: Vec<(usize, Vec<f32>)>,
    chain: Vec<(u32, Vec<f32>)>,
}

fn read_drafted(model: &str) -> Drafted {
    let bytes = fs::read(golden(model).join("draft.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let words = |name: &str| {
        file.tensor(name)
            .unwrap()
            .data()
            .as_chunks::<4>()
            .0
            .to_vec()
    };
    let ids = |name| words(name).into_iter().map(u32::from_le_bytes);
    let logits = |name, count: usize| -> Vec<Vec<f32>> {
        let logits: Vec<f32> = words(name).into_iter().map(f32::from_le_bytes).collect();
        let rows = logits.chunks(logits.len() / count);
        rows.map(<[f32]>::to_vec).collect()
    };
    let (rows, chain) = (ids("rows"), ids("chain_tokens"));
    let of_rows = logits("logits", rows.len());
    let of_chain = logits("chain_logits", chain.len());
    Drafted {
        rows: rows.map(|row| row as usize).zip(of_rows).collect(),
        chain: chain.zip(of_chain).collect(),
    }
}

/// Relative to the row's largest logit.
fn off(row: &[f32], expected: &[f32]) -> f32 {
    let largest = |values: &mut dyn Iterator<Item = f32>| values.fold(0f32, |a, b| a.max(b.abs()));
    let scale = largest(&mut expected.iter().copied());
    largest(&mut row.iter().zip(expected).map(|(a, b)| a - b)) / scale
}

#[test]
fn draft_layers_are_the_reference_s_in_each_family() {
    for model in MODELS {
        assert_drafts(drafting(model, 16), model);
    }
}

#[test]
fn cuda_kernels_compute_draft_layers_as_the_reference() {
    for model in ["tiny-deepseek-v3", "tiny-qwen3-5-moe"] {
        assert_drafts(drafting_on(emulated(DType::F32), model, 16), model);
    }
}

fn assert_drafts<B: Backend>(mut runner: Runner<B>, model: &str) {
    let tokens = read_golden(&golden(model).join("golden.safetensors")).tokens;
    let expected = read_drafted(model);
    let (last, known) = (tokens.len() - 1, &tokens[1..]);
    let mut drafts = runner.drafts(0, &tokens[..100], &known[..100]);
    drafts.extend(runner.drafts(100, &tokens[100..last], &known[100..]));
    let of_rows = expected
        .rows
        .iter()
        .map(|(row, logits)| off(&drafts[*row], logits));
    let worst = of_rows.fold(0f32, f32::max);
    let mut worst_of_chain = 0f32;
    let mut logits = runner.first(last - 1 - 100);
    for (place, (token, expected)) in expected.chain.iter().enumerate() {
        worst_of_chain = worst_of_chain.max(off(&logits, expected));
        assert_eq!(likeliest(&logits), *token, "{model}: draft {place}");
        logits = runner.next(last + place, *token);
    }
    println!("{model}: drafts {worst:.1e}, chain {worst_of_chain:.1e}");
    assert!(expected.rows.len() > 30 && expected.chain.len() == 3);
    assert!(worst.max(worst_of_chain) <= GOLDEN_BOUND, "{model}");
}

#[test]
fn drafts_depend_neither_on_chunks_nor_on_pages() {
    for model in MODELS {
        let tokens = read_golden(&golden(model).join("golden.safetensors")).tokens;
        let (tokens, next) = (&tokens[..120], &tokens[1..121]);
        let expected = drafting(model, 16).drafts(0, tokens, next);
        let mut runner = drafting(model, 1);
        let mut drafts = Vec::new();
        for (start, end) in [(0, 1), (1, 64), (64, 70), (70, 120)] {
            drafts.extend(runner.drafts(start, &tokens[start..end], &next[start..end]));
        }
        assert_eq!(drafts, expected, "{model}");
        let mut runner = drafting(model, 16);
        runner.entries(&tokens[..64], &next[..64]);
        let rest = runner.drafts(64, &tokens[64..], &next[64..]);
        assert_eq!(rest, expected[64..], "{model}");
    }
}

#[test]
fn a_draft_layer_changes_no_logit_of_its_model() {
    for model in MODELS {
        let tokens = &read_golden(&golden(model).join("golden.safetensors")).tokens[..120];
        let whole = [Piece::last_row(0, 0, tokens)];
        let expected = runner(model, 16).forward(&whole);
        assert_eq!(drafting(model, 16).forward(&whole), expected, "{model}");
    }
}

#[test]
fn a_model_without_a_draft_layer_is_refused() {
    let refusal = |model: &str| -> DraftLayerError {
        let files = ModelFiles::open(&golden(model)).unwrap();
        files.with_draft_layer().unwrap_err()
    };
    let error = refusal("tiny-llama");
    assert!(matches!(error, DraftLayerError::Family { .. }), "{error}");
    let error = refusal("tiny-deepseek-v3-fp8").to_string();
    assert!(error.contains("model.layers.3.eh_proj.weight"), "{error}");
}
