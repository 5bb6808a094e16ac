//! How the pool's memory is divided between the full space and the window space.

use super::{check_flag, draft_slots, pre_alloc_size, prefixes};
use crate::engine::StartError;
use crate::engine::config::{DisaggregationMode, EngineConfig};
use crate::kvcache::pool::Prefixes;
use crate::kvcache::spaces::{PerSpace, Spaces};

/// Tokens of a request beyond its window, as is assumed where no flag sets a ratio: the window space has a window for
/// each such request that the full space holds. SGLang assumes few, by a ratio of 0.8, which gains little.
const TOKENS_BEYOND_WINDOW: usize = 2048;
/// Windows that cached prefixes may have beside those of running requests, where no flag sets a ratio: one is needed at
/// each place where a later request goes on.
const CACHED_WINDOWS_PER_REQUEST: usize = 4;

/// What the window space is for.
struct Use {
    spaces: Spaces,
    window: usize,
    /// Longest request, where a flag says so.
    context: usize,
    /// Longest chunk of a prompt; its pages go back once it is computed.
    chunk: Option<usize>,
    requests: usize,
    cached: usize,
    drafts: usize,
}

/// Pages of each space. Without a flag the window space has no more than requests and cached prefixes can use.
pub(super) fn divide(
    config: &EngineConfig,
    window: Option<usize>,
    token_bytes: PerSpace,
    memory: usize,
) -> Result<PerSpace, StartError> {
    let page_size = config.page_size as usize;
    let tokens = config.max_total_tokens.map(|tokens| tokens as usize);
    let Some(window) = window else {
        let pages = memory / (page_size * token_bytes.full);
        return Ok(PerSpace {
            full: tokens.map_or(pages, |tokens| tokens / page_size),
            window: 0,
        });
    };
    let ratio = config.swa_full_tokens_ratio;
    check_flag(
        "--swa-full-tokens-ratio",
        ratio.unwrap_or(1.0),
        ratio.is_none_or(|ratio| ratio > 0.0 && ratio <= 1.0),
        || "give a number above 0, and at most 1".to_owned(),
    )?;
    let used = Use::of(config, window);
    let share = ratio.map_or_else(|| used.share(), f64::from);
    let page_bytes = PerSpace {
        full: page_size * token_bytes.full,
        window: page_size * token_bytes.window,
    };
    let most = ratio.map_or_else(|| used.most(), |_| usize::MAX);
    let full = match tokens {
        Some(tokens) => tokens / page_size,
        None => full_pages(page_bytes, memory, share, (used.least(), most)),
    };
    let pages = PerSpace {
        full,
        window: window_pages(full, share, (used.least(), most)),
    };
    tracing::info!(
        full_pages = pages.full,
        window_pages = pages.window,
        full_bytes = pages.full * page_bytes.full,
        window_bytes = pages.window * page_bytes.window,
        window,
        "divided the KV pool"
    );
    Ok(pages)
}

/// Pages of the window space beside `full` of the other: `share` of them, within bounds. More than those of the full
/// space would never be used.
fn window_pages(full: usize, share: f64, (least, most): (usize, usize)) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a share of pages may be rounded"
    )]
    let shared = (full as f64 * share).ceil() as usize;
    shared.min(most).max(least).min(full)
}

/// The most pages of the full space that fit `memory` with those of the window space.
fn full_pages(bytes: PerSpace, memory: usize, share: f64, bounds: (usize, usize)) -> usize {
    let fits = |full: usize| {
        let window = window_pages(full, share, bounds);
        full * bytes.full + window * bytes.window <= memory
    };
    let (mut fitting, mut too_many) = (0, memory / bytes.full + 1);
    while fitting + 1 < too_many {
        let middle = fitting.midpoint(too_many);
        if fits(middle) {
            fitting = middle;
        } else {
            too_many = middle;
        }
    }
    fitting
}

// === impl Use ===

impl Use {
    fn of(config: &EngineConfig, window: usize) -> Self {
        let running = config.max_running_requests as usize;
        let page_size = config.page_size as usize;
        Self {
            spaces: Spaces {
                page_size,
                window: Some(window),
            },
            window,
            context: config
                .context_length
                .map_or(usize::MAX, |length| length as usize),
            chunk: match config.mode {
                DisaggregationMode::Unified | DisaggregationMode::Prefill(_) => {
                    config.chunked_prefill_size.map(|len| len as usize)
                }
                DisaggregationMode::Decode(_) => Some(0),
            },
            requests: running + pre_alloc_size(config),
            cached: if prefixes(config) == Prefixes::Computed {
                running * CACHED_WINDOWS_PER_REQUEST
            } else {
                0
            },
            drafts: draft_slots(config),
        }
    }

    /// Without which a request alone might not go on: a window, the chunk behind it and drafts. All pages of the
    /// longest prompt, where prompts are computed whole.
    fn least(&self) -> usize {
        let behind = self.chunk.map(|chunk| self.window + chunk + self.drafts);
        behind.map_or(usize::MAX, |tokens| {
            tokens.div_ceil(self.spaces.page_size) + 2
        })
    }

    /// Tokens of the window space that the longest request has between its steps.
    fn each(&self) -> usize {
        self.spaces.tokens(self.context).window
    }

    /// Of the full space's tokens.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    fn share(&self) -> f64 {
        let each = self.each();
        let beyond = TOKENS_BEYOND_WINDOW.min(self.context - each);
        each as f64 / (each + beyond) as f64
    }

    /// More would stay unused: each request has its window, two chunks are in flight, and prefixes are cached.
    fn most(&self) -> usize {
        let chunks = self.chunk.map_or(0, |chunk| 2 * chunk);
        let tokens = (self.requests + self.cached) * self.each() + chunks + self.drafts;
        tokens.div_ceil(self.spaces.page_size)
    }
}

#[cfg(test)]
mod tests;
