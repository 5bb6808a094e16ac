//! Compares greedy answers with those of transformers, recorded in `golden/smollm2_expected.json`:
//! `fidelity PATH/TO/SmolLM2-135M-Instruct.Q4_1.gguf`. Exits with 1 when a token differs although
//! the reference's gap between the two exceeds 1e-3.

#![allow(clippy::print_stdout, reason = "a program for a terminal")]
#![allow(clippy::unwrap_used, reason = "a check may simply stop")]

use pd_compute::cpu::CpuBackend;
use pd_engine::model::{
    KvGroupSpec, Model, ModelFiles, StateSpec, Step, StepLimits, StepStates, load,
};
use pd_engine::text::{self, ChatTemplate, Conversation, Message, Tokenizer};
use serde::Deserialize;
use serde_json::Map;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

#[path = "../src/model/tests/runner.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod runner;

use runner::{Piece, Runner, Sizes};

/// Largest gap between two logits of the reference at which a different choice is rounding.
const GAP_BOUND: f64 = 1e-3;
const CHUNK: usize = 512;

#[derive(Deserialize)]
struct Expected {
    prompts: Vec<Prompt>,
}

#[derive(Deserialize)]
struct Prompt {
    text: String,
    input_ids: Vec<u32>,
    output_ids: Vec<u32>,
    /// Per output token the reference's largest logits, with their tokens.
    top: Vec<Vec<(u32, f64)>>,
}

/// How one answer compares.
struct Outcome {
    equal: usize,
    /// At the first difference, if there is one.
    gap: Option<f64>,
    /// Largest difference of a recorded logit, over the equal tokens.
    logit_error: f64,
    prefill_s: f64,
    decode_s: f64,
}

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1).map(PathBuf::from) else {
        println!("usage: fidelity PATH/TO/SmolLM2-135M-Instruct.Q4_1.gguf");
        return ExitCode::FAILURE;
    };
    let expected = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/smollm2_expected.json");
    let expected: Expected = serde_json::from_slice(&std::fs::read(expected).unwrap()).unwrap();
    let (tokenizer, template) = load_text(&path);
    let mut runner = start(&path);
    let mut good = true;
    for prompt in &expected.prompts {
        let ids = tokenise(&tokenizer, &template, &prompt.text);
        let same_ids = ids == prompt.input_ids;
        let outcome = answer(&mut runner, prompt);
        good &= same_ids && outcome.gap.is_none_or(|gap| gap < GAP_BOUND);
        let gap = outcome
            .gap
            .map_or("-".to_owned(), |gap| format!("{gap:.1e}"));
        println!(
            "prompt of {:4} tokens (tokenised {}): {:2} of {} equal, gap {gap}, logits within {:.1e}, \
             prefill {:5.0} tok/s, decode {:4.0} tok/s",
            ids.len(),
            if same_ids { "equally" } else { "DIFFERENTLY" },
            outcome.equal,
            prompt.output_ids.len(),
            outcome.logit_error,
            prompt.input_ids.len() as f64 / outcome.prefill_s,
            (prompt.output_ids.len() - 1) as f64 / outcome.decode_s,
        );
    }
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn load_text(path: &Path) -> (Tokenizer, ChatTemplate) {
    let started = Instant::now();
    let (tokenizer, template) = text::load(path).unwrap();
    println!("tokenizer and template loaded in {:.1?}", started.elapsed());
    (
        tokenizer,
        template.expect("the file brings a chat template"),
    )
}

/// The prompt as the file's own template writes it, as token ids.
fn tokenise(tokenizer: &Tokenizer, template: &ChatTemplate, prompt: &str) -> Vec<u32> {
    let (_, question) = prompt.split_once("<|im_start|>user\n").unwrap();
    let (question, _) = question.split_once("<|im_end|>").unwrap();
    let message = Message::new("user", question);
    let conversation = Conversation {
        messages: &[message],
        tools: &[],
        kwargs: &Map::new(),
    };
    let text = template.render(conversation, true).unwrap();
    tokenizer.encode(&text, false).unwrap()
}

fn start(path: &Path) -> Runner<CpuBackend> {
    let started = Instant::now();
    let sizes = Sizes {
        page_size: 16,
        max_seqs: 1,
        max_seq_len: 2048,
        step: StepLimits {
            max_tokens: CHUNK,
            max_logit_rows: 1,
        },
    };
    let runner = Runner::new(runner::backend(), path, sizes);
    println!("model loaded in {:.1?}", started.elapsed());
    runner
}

fn answer(runner: &mut Runner<CpuBackend>, prompt: &Prompt) -> Outcome {
    let started = Instant::now();
    let mut logits = Vec::new();
    for (index, chunk) in prompt.input_ids.chunks(CHUNK).enumerate() {
        logits = runner
            .forward(&[Piece::last_row(0, index * CHUNK, chunk)])
            .remove(0);
    }
    let prefilled = Instant::now();
    let mut outcome = Outcome {
        equal: 0,
        gap: None,
        logit_error: 0.0,
        prefill_s: (prefilled - started).as_secs_f64(),
        decode_s: 0.0,
    };
    for (step, (&wanted, top)) in prompt.output_ids.iter().zip(&prompt.top).enumerate() {
        let chosen = argmax(&logits);
        if chosen != wanted {
            let ours = top.iter().find(|(token, _)| *token == chosen);
            outcome.gap = Some(ours.map_or(f64::INFINITY, |(_, logit)| top[0].1 - logit));
            break;
        }
        outcome.equal += 1;
        for &(token, logit) in top {
            let error = (f64::from(logits[token as usize]) - logit).abs();
            outcome.logit_error = outcome.logit_error.max(error);
        }
        if outcome.equal < prompt.output_ids.len() {
            let position = prompt.input_ids.len() + step;
            logits = runner
                .forward(&[Piece::last_row(0, position, &[chosen])])
                .remove(0);
        }
    }
    outcome.decode_s = prefilled.elapsed().as_secs_f64();
    outcome
}

/// The largest logit's token, the lowest of equal ones.
fn argmax(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (token, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = token;
        }
    }
    u32::try_from(best).unwrap()
}
