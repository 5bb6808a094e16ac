//! The drafts of a step: of each running request what its own drafter or the draft model proposes, as far as there are
//! rows, pages and state slots left.

use super::snapshots;
use crate::active::Active;
use crate::kvcache::pool::KvCache;
use crate::resources::Resources;
use crate::speculate::model::Wanted;
use std::time::Instant;

/// Drafts for each of `reqs` that goes on, up to `rows` for all, each with pages for its own.
pub(super) fn drafts(
    reqs: &mut [Active],
    resources: &mut Resources,
    mut rows: usize,
) -> Vec<Vec<u32>> {
    if resources.draft_model.is_some() {
        return of_model(reqs, resources, rows);
    }
    let going_on = reqs.iter_mut().filter(|active| active.goes_on());
    let own = going_on.map(|active| {
        let drafts = own(&mut resources.cache, active, rows);
        rows -= drafts.len();
        drafts
    });
    own.collect()
}

fn own(cache: &mut KvCache, active: &mut Active, max: usize) -> Vec<u32> {
    if active.drawing() > 0 {
        return Vec::new();
    }
    let mut drafts = active.req.propose(max);
    drafts.truncate(room(cache, active, drafts.len()));
    drafts
}

/// How many of `drafts` drafts there are pages and state slots for, which the request has then.
fn room(cache: &mut KvCache, active: &mut Active, drafts: usize) -> usize {
    let mut drafts = snapshots::before_place(cache, active, drafts);
    while !cache.try_extend(&active.kv, active.len() + drafts) {
        drafts -= 1;
    }
    let with_slots = cache.slots_for_drafts(&mut active.kv, drafts);
    if with_slots < drafts {
        let len = active.len() + with_slots;
        cache.give_back(&mut active.kv, len, with_slots);
    }
    with_slots
}

fn of_model(reqs: &mut [Active], resources: &mut Resources, mut rows: usize) -> Vec<Vec<u32>> {
    let Resources {
        cache,
        draft_model,
        row_cost,
        ..
    } = resources;
    let going_on = reqs.iter_mut().filter(|active| active.goes_on());
    let wanted: Vec<_> = going_on
        .map(|active| {
            let max = match active.drawing() {
                0 => active.req.drafts_wanted(rows),
                _ => 0,
            };
            let max = room(cache, active, max);
            rows -= max;
            Wanted {
                req: &active.req,
                idx: active.kv.idx,
                draft_len: &mut active.draft_len,
                max,
            }
        })
        .collect();
    let is_steady = wanted.iter().all(Wanted::is_steady);
    let num_reqs = wanted.len();
    let began = Instant::now();
    let model = draft_model.as_mut().expect("the caller has seen it");
    let drafts = match model.draft(wanted, cache.req_to_token()) {
        Ok(drafts) => drafts,
        Err(error) => {
            tracing::error!(%error, "the draft model's step failed; this step has no drafts");
            // What it has computed is open.
            reqs.iter_mut().for_each(|active| active.draft_len = 0);
            vec![Vec::new(); num_reqs]
        }
    };
    if is_steady {
        row_cost.observe_drafts(drafts.iter().map(Vec::len).sum(), began.elapsed());
    }
    let going_on = reqs.iter_mut().filter(|active| active.goes_on());
    for (active, drafts) in going_on.zip(&drafts) {
        let len = active.len() + drafts.len();
        cache.give_back(&mut active.kv, len, drafts.len());
    }
    drafts
}
