//! Flags for speculative decoding.

use clap::Args;
use pd_engine::engine::{SpeculativeAlgorithm, SpeculativeConfig};
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Drafts per request and step where no flag sets them. More are right less often, and each is a row.
const DEFAULT_NUM_STEPS: u32 = 4;
const NUM_STEPS: &str = "--speculative-num-steps";
const NUM_DRAFT_TOKENS: &str = "--speculative-num-draft-tokens";
const EAGLE_TOPK: &str = "--speculative-eagle-topk";

#[derive(Debug, Args)]
#[command(next_help_heading = "Speculative decoding")]
pub(crate) struct SpeculativeArgs {
    /// Compute tokens that are likely to come together with the next one: NGRAM takes what followed the same tokens
    /// earlier in the request, STANDALONE what another model drafts, NEXTN (or EAGLE) what the model's own draft layer does.
    /// Answers do not change. Without effect on prefill but for NEXTN, which both sides have or neither; off if absent
    #[arg(long, alias = "speculative-algo", value_name = "ALGORITHM", value_parser = algorithm)]
    pub(crate) speculative_algorithm: Option<Algorithm>,

    /// Of STANDALONE: Hugging Face directory or GGUF file of a smaller model with the same vocabulary
    #[arg(long, alias = "speculative-draft-model", value_name = "PATH")]
    pub(crate) speculative_draft_model_path: Option<PathBuf>,

    /// Tokens drafted per request and step, at most; 4 if absent
    #[arg(long, value_name = "N")]
    pub(crate) speculative_num_steps: Option<u32>,

    /// Tokens computed per request and step, at most: those drafted and one more; the same as setting
    /// --speculative-num-steps
    #[arg(long, value_name = "N")]
    pub(crate) speculative_num_draft_tokens: Option<u32>,

    /// Drafts per place; only 1
    #[arg(long, value_name = "N")]
    pub(crate) speculative_eagle_topk: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Ngram,
    Standalone,
    Nextn,
}

fn algorithm(name: &str) -> Result<Algorithm, &'static str> {
    match name {
        "NGRAM" => Ok(Algorithm::Ngram),
        "STANDALONE" => Ok(Algorithm::Standalone),
        "NEXTN" | "EAGLE" => Ok(Algorithm::Nextn),
        "EAGLE3" | "DFLASH" | "DSPARK" => Err(
            "draft layers of another checkpoint are not supported; give NEXTN, NGRAM or STANDALONE, or leave it out",
        ),
        _ => Err("give NEXTN, NGRAM or STANDALONE, or leave it out"),
    }
}

/// What may be given for one of the numbers, and how that is said.
pub(super) fn range(flag: &str) -> (RangeInclusive<u32>, &'static str) {
    match flag {
        NUM_STEPS => (1..=15, "of 1 to 15"),
        NUM_DRAFT_TOKENS => (2..=16, "of 2 to 16"),
        _ => (1..=1, "of 1, since drafts are chains and no trees"),
    }
}

// === impl SpeculativeArgs ===

impl SpeculativeArgs {
    /// What the engine is to do, of flags that `args/check.rs` found nothing wrong with.
    pub(crate) fn config(&self) -> Option<SpeculativeConfig> {
        let path = self.speculative_draft_model_path.clone();
        let algorithm = match self.speculative_algorithm? {
            Algorithm::Ngram => SpeculativeAlgorithm::Ngram,
            Algorithm::Nextn => SpeculativeAlgorithm::Nextn,
            Algorithm::Standalone => SpeculativeAlgorithm::Standalone {
                draft_model_path: path?,
            },
        };
        Some(SpeculativeConfig {
            algorithm,
            num_steps: self.num_steps(),
        })
    }

    fn num_steps(&self) -> u32 {
        let of_tokens = self.speculative_num_draft_tokens;
        let of_tokens = of_tokens.map(|tokens| tokens.saturating_sub(1));
        self.speculative_num_steps
            .or(of_tokens)
            .unwrap_or(DEFAULT_NUM_STEPS)
    }

    /// The flags that say nothing without an algorithm, those that are given.
    pub(super) fn given_numbers(&self) -> impl Iterator<Item = (&'static str, u32)> {
        let numbers = [
            (NUM_STEPS, self.speculative_num_steps),
            (NUM_DRAFT_TOKENS, self.speculative_num_draft_tokens),
            (EAGLE_TOPK, self.speculative_eagle_topk),
        ];
        numbers
            .into_iter()
            .filter_map(|(flag, value)| Some((flag, value?)))
    }
}
