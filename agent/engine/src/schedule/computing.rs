//! Prompts that steps in flight compute, and who waits for them: a request that shares most of what it lacks with one of them
//! takes that from the cache a step later. So a prompt with many choices is computed once.

use crate::active::Active;

/// Fewer shared tokens are computed again: a step that waits costs more.
const SHARED_MIN: usize = 32;
/// Requests that are passed over in a step, for which each shared token is looked at.
pub(super) const WAITING_MAX: usize = 64;

/// Tokens of requests whose KV is not in the cache yet.
#[derive(Debug, Default)]
pub(crate) struct Computing<'a> {
    prompts: Vec<&'a [u32]>,
}

// === impl Computing ===

impl<'a> Computing<'a> {
    /// Those among `actives` that have not drawn their first token.
    pub(crate) fn of<T: 'a>(actives: impl IntoIterator<Item = &'a Active<T>>) -> Self {
        let actives = actives.into_iter();
        let unfinished = actives.filter(|active| active.req.output_len() == 0);
        Self {
            prompts: unfinished.map(|active| &*active.req.tokens).collect(),
        }
    }

    /// Whether one of them, or of `more`, computes most of what a request lacks that has `cached` of its `tokens`.
    pub(super) fn is_awaited<'b>(
        &'b self,
        more: impl Iterator<Item = &'b [u32]>,
        tokens: &[u32],
        cached: usize,
        page_size: usize,
    ) -> bool {
        let prompts = self.prompts.iter().map(|prompt| &**prompt);
        let mut prompts = prompts.chain(more);
        prompts.any(|prompt| brings_most(prompt, tokens, cached, page_size))
    }
}

/// Whether most of what a request lacks that has `cached` of its `tokens` is in the full pages of `prompt`.
pub(crate) fn brings_most(prompt: &[u32], tokens: &[u32], cached: usize, page_size: usize) -> bool {
    let lacks = tokens.len().saturating_sub(cached);
    if lacks < SHARED_MIN {
        return false;
    }
    let shared = shared_len(prompt, tokens) / page_size * page_size;
    let saved = shared.saturating_sub(cached);
    saved >= SHARED_MIN && saved * 2 >= lacks
}

/// Tokens that both begin with.
pub(crate) fn shared_len(one: &[u32], other: &[u32]) -> usize {
    let pairs = one.iter().zip(other);
    pairs.take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests;
