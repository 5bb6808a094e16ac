//! Sizes of context, steps and pool. Impossible values are refused with the flag that sets them.

mod windows;

use super::StartError;
use super::config::{DisaggregationMode, EngineConfig};
use crate::kvcache::group::KvPoolShape;
use crate::kvcache::pool::{KvCacheSizes, Prefixes};
use crate::kvcache::spaces::Spaces;
use crate::model::{KvPoolSpec, ModelConfig, StepLimits};
use crate::schedule::ScheduleLimits;
use crate::speculate::jumps::JUMP_MAX;
use crate::weights::{LayerRole, Role, Weights};
use pd_compute::dtype::ComputeDtype;
use pd_compute::{DType, WeightFormat};
use pd_kv_transfer::TransportChoice;
use pd_protocol::layout::KvDtype;

/// Logit rows of a step for prompt logprobs: 128 rows of 150,000 logits are 77 MB.
const PROMPT_LOGPROB_ROWS: usize = 128;
/// Larger pages waste more than they save: half a page per request is unused.
const PAGE_SIZE_MAX: u32 = 256;
/// Drafts of a step over all requests. They take logits, 150 MB of 150,000 tokens; a step of this many rows is bound by
/// products on every device, where drafts do not pay.
const DRAFT_ROWS_MAX: usize = 256;
/// Of an engine that speculates by grammars alone.
const JUMP_ROWS_MAX: usize = 64;
/// Drafts of a request and step: each is right only if those before it are.
const NUM_STEPS_MAX: u32 = 15;
/// A row each in every table of a step.
const RUNNING_REQUESTS_MAX: u32 = 65_536;

pub(super) fn check(config: &EngineConfig) -> Result<(), StartError> {
    let page_size = config.page_size;
    check_flag(
        "--page-size",
        page_size,
        page_size.is_power_of_two() && page_size <= PAGE_SIZE_MAX,
        || format!("give a power of two of at most {PAGE_SIZE_MAX}"),
    )?;
    let running = config.max_running_requests;
    check_flag(
        "--max-running-requests",
        running,
        (1..=RUNNING_REQUESTS_MAX).contains(&running),
        || format!("give 1 to {RUNNING_REQUESTS_MAX}"),
    )?;
    let steps = config.speculative.as_ref();
    let steps = steps.map_or(1, |speculative| speculative.num_steps);
    check_flag(
        "--speculative-num-steps",
        steps,
        (1..=NUM_STEPS_MAX).contains(&steps),
        || format!("give 1 to {NUM_STEPS_MAX}"),
    )?;
    let chunk = config.chunked_prefill_size.unwrap_or(page_size);
    check_flag("--chunked-prefill-size", chunk, chunk >= page_size, || {
        format!("give at least the page size, {page_size}, or -1 to compute prompts whole")
    })?;
    let prefill = config.max_prefill_tokens;
    check_flag(
        "--max-prefill-tokens",
        prefill,
        prefill >= page_size,
        || format!("give at least the page size, {page_size}"),
    )?;
    let conservativeness = config.schedule_conservativeness;
    let positive = conservativeness.is_finite() && conservativeness > 0.0;
    check_flag(
        "--schedule-conservativeness",
        conservativeness,
        positive,
        || "give a number above 0".to_owned(),
    )
}

/// The longest prompt plus answer, in tokens.
pub(super) fn context_length(
    config: &EngineConfig,
    model: &ModelConfig,
) -> Result<u32, StartError> {
    let own = u32::try_from(model.context_len).unwrap_or(u32::MAX);
    let context_length = config.context_length.unwrap_or(own);
    check_flag(
        "--context-length",
        context_length,
        (2..=own).contains(&context_length),
        || format!("this model supports 2 to {own} tokens"),
    )?;
    Ok(context_length)
}

pub(super) fn schedule_limits(config: &EngineConfig) -> ScheduleLimits {
    let page_size = config.page_size as usize;
    ScheduleLimits {
        max_running_requests: config.max_running_requests as usize,
        chunked_prefill_size: config.chunked_prefill_size.map(|len| len as usize),
        max_prefill_tokens: config.max_prefill_tokens as usize,
        prompt_logprob_rows: PROMPT_LOGPROB_ROWS.max(page_size),
        draft_rows: draft_rows(config),
    }
}

/// Drafts of a request and step, at most. Prefill draws one token of each request.
fn num_steps(config: &EngineConfig) -> u32 {
    let speculative = config.speculative.as_ref();
    match config.mode {
        DisaggregationMode::Prefill(_) => 0,
        DisaggregationMode::Unified | DisaggregationMode::Decode(_) => {
            speculative.map_or(0, |speculative| speculative.num_steps)
        }
    }
}

/// Rows of a step for drafts.
fn draft_rows(config: &EngineConfig) -> usize {
    let jumps = match config.mode {
        DisaggregationMode::Unified | DisaggregationMode::Decode(_) if config.jump_forward => {
            config.max_running_requests as usize * JUMP_MAX
        }
        DisaggregationMode::Unified
        | DisaggregationMode::Decode(_)
        | DisaggregationMode::Prefill(_) => 0,
    };
    jumps.min(JUMP_ROWS_MAX).max(draft_slots(config))
}

/// Slots of a model with recurrent state for the states after drafts.
fn draft_slots(config: &EngineConfig) -> usize {
    let all = config.max_running_requests as usize * num_steps(config) as usize;
    all.min(DRAFT_ROWS_MAX)
}

/// The largest step that the mode's schedule can make.
pub(super) fn step_limits(
    config: &EngineConfig,
    limits: &ScheduleLimits,
    context_length: u32,
) -> StepLimits {
    let longest_prompt = limits.max_prefill_tokens.max(context_length as usize);
    let prompts = limits.chunked_prefill_size.unwrap_or(longest_prompt);
    let running = limits.max_running_requests;
    match config.mode {
        DisaggregationMode::Unified | DisaggregationMode::Prefill(_) => StepLimits {
            max_tokens: prompts + running + limits.draft_rows,
            max_logit_rows: limits.prompt_logprob_rows + running + limits.draft_rows,
        },
        DisaggregationMode::Decode(_) => StepLimits {
            max_tokens: running + limits.draft_rows,
            max_logit_rows: running + limits.draft_rows,
        },
    }
}

/// The pool's dtype: that of the products unless a flag sets it.
pub(super) fn kv_dtype(config: &EngineConfig, products: ComputeDtype) -> DType {
    config.kv_cache_dtype.map_or(products.dtype(), pool_dtype)
}

/// The pool's pages of `dtype` in each space and its slots for recurrent states; `memory` counts where no flag sets
/// their number. Each page of the full space has one of a draft model's pool beside it, if there is one.
pub(super) fn pool_shape(
    config: &EngineConfig,
    spec: &KvPoolSpec,
    draft: Option<&KvPoolSpec>,
    (dtype, activations): (DType, DType),
    memory_bytes: u64,
) -> Result<KvPoolShape, StartError> {
    let page_size = config.page_size as usize;
    let slot_bytes = KvPoolShape::bytes_per_slot(spec, activations);
    let memory = usize::try_from(memory_bytes).unwrap_or(usize::MAX);
    let num_slots = state_slots(config, slot_bytes, memory)?;
    let left = memory.saturating_sub(num_slots * slot_bytes);
    let mut token_bytes = KvPoolShape::bytes_per_token(spec, dtype);
    let draft = draft.map(|draft| KvPoolShape::bytes_per_token(draft, dtype));
    token_bytes.full += draft.map_or(0, |draft| draft.full + draft.window);
    let pages = windows::divide(config, spec.window(), token_bytes, left)?;
    let positions = pages.full * page_size;
    check_flag(
        "--max-total-tokens",
        positions,
        positions >= 2 && u32::try_from(positions).is_ok(),
        || {
            let bytes = (token_bytes.full + token_bytes.window) as u64 * page_size as u64 * 2;
            format!(
                "the KV pool must hold at least a page and 2 tokens; two pages take {bytes} bytes"
            )
        },
    )?;
    Ok(KvPoolShape {
        num_pages: pages.full,
        num_window_pages: pages.window,
        page_size,
        dtype,
        num_slots,
    })
}

/// Slots that cached states may take beside those of running requests: more would not be used before their pages go.
const CACHED_STATES_PER_REQUEST: usize = 8;

/// Slots for recurrent states of `slot_bytes` each; none of a model without.
fn state_slots(
    config: &EngineConfig,
    slot_bytes: usize,
    memory: usize,
) -> Result<usize, StartError> {
    if slot_bytes == 0 {
        return Ok(0);
    }
    let ratio = config.mamba_full_memory_ratio;
    check_flag(
        "--mamba-full-memory-ratio",
        ratio,
        ratio.is_finite() && ratio > 0.0,
        || "give a number above 0".to_owned(),
    )?;
    let running = config.max_running_requests as usize;
    let share = f64::from(ratio) / (1.0 + f64::from(ratio));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a share of memory may be rounded"
    )]
    let fit = (memory as f64 * share) as usize / slot_bytes;
    let slots = match config.max_mamba_cache_size {
        Some(slots) => slots as usize,
        None => fit.min(useful_slots(config)),
    };
    check_flag("--max-running-requests", running, running <= slots, || {
        format!(
            "each running request needs a recurrent state of {slot_bytes} bytes, and there are {slots} slots; lower it, or raise --max-mamba-cache-size or --mamba-full-memory-ratio"
        )
    })?;
    Ok(slots)
}

/// Slots for recurrent states that an engine of the mode can fill.
fn useful_slots(config: &EngineConfig) -> usize {
    let running = config.max_running_requests as usize;
    let cached = if prefixes(config) == Prefixes::Computed {
        running * CACHED_STATES_PER_REQUEST
    } else {
        0
    };
    running + draft_slots(config) + pre_alloc_size(config) + cached
}

/// Rows of a decode engine for requests whose KV arrives.
fn pre_alloc_size(config: &EngineConfig) -> usize {
    let extra = match &config.mode {
        DisaggregationMode::Unified | DisaggregationMode::Prefill(_) => Some(0),
        DisaggregationMode::Decode(decode) => decode.extra_slots,
    };
    extra.unwrap_or(config.max_running_requests) as usize
}

/// Which prefixes are cached. A transfer that moves nothing brings none.
fn prefixes(config: &EngineConfig) -> Prefixes {
    match &config.mode {
        _ if config.disable_radix_cache => Prefixes::Off,
        DisaggregationMode::Unified | DisaggregationMode::Prefill(_) => Prefixes::Computed,
        DisaggregationMode::Decode(decode) => match decode.transfer.transport {
            TransportChoice::Fake => Prefixes::Off,
            TransportChoice::Auto | TransportChoice::Only(_) => Prefixes::Received,
        },
    }
}

pub(super) fn cache_sizes(
    config: &EngineConfig,
    shape: KvPoolShape,
    window: Option<usize>,
) -> KvCacheSizes {
    let KvPoolShape {
        num_pages,
        num_window_pages,
        page_size,
        ..
    } = shape;
    KvCacheSizes {
        num_pages,
        spaces: Spaces { page_size, window },
        num_window_pages,
        num_slots: (shape.num_slots > 0).then_some(shape.num_slots),
        max_running_requests: config.max_running_requests as usize,
        pre_alloc_size: pre_alloc_size(config),
        prefixes: prefixes(config),
    }
}

const fn pool_dtype(dtype: KvDtype) -> DType {
    match dtype {
        KvDtype::Float32 => DType::F32,
        KvDtype::Float16 => DType::F16,
        KvDtype::Bfloat16 => DType::BF16,
        KvDtype::Fp8E4m3 => DType::F8E4M3,
    }
}

/// The dtype of the file unless the user sets one: bfloat16 where its weights are. The first layer
/// counts before the embedding, which quantised files keep in a larger format. A tensor of a dtype
/// that no op reads is refused when the model is loaded.
pub(super) fn compute_dtype(dtype: Option<ComputeDtype>, weights: &Weights) -> ComputeDtype {
    let format = |role| Some(weights.tensor(role).ok()??.format);
    let written = format(Role::Layer(0, LayerRole::Q)).or_else(|| format(Role::Embedding));
    dtype.unwrap_or(match written {
        Some(WeightFormat::BF16) => ComputeDtype::BF16,
        _ => ComputeDtype::F32,
    })
}

fn check_flag(
    flag: &'static str,
    value: impl std::fmt::Display,
    holds: bool,
    problem: impl FnOnce() -> String,
) -> Result<(), StartError> {
    if holds {
        return Ok(());
    }
    Err(StartError::Config {
        flag,
        value: value.to_string(),
        problem: problem(),
    })
}
