//! The drafts of a step: of each running request what its grammar forces, or else what its own drafter, the draft model or the
//! model's draft layer proposes, as far as there are rows, pages and state slots left.

use super::snapshots;
use crate::active::Active;
use crate::kvcache::pool::KvCache;
use crate::req::Req;
use crate::resources::Resources;
use crate::speculate::last_entry::LastEntry;
use crate::speculate::model::Wanted;
use std::time::Instant;

/// Drafts for each of `reqs` that goes on, up to `rows` for all, each with pages for its own. Now and then there are none, so
/// that what drafts cost can be seen.
pub(super) fn drafts(
    reqs: &mut [Active],
    resources: &mut Resources,
    mut rows: usize,
) -> Vec<Vec<u32>> {
    let num_reqs = reqs.iter().filter(|active| active.goes_on()).count();
    if resources.row_cost.wants_step_of(num_reqs) {
        return vec![Vec::new(); num_reqs];
    }
    let going_on = reqs.iter_mut().filter(|active| active.goes_on());
    let jumps: Vec<_> = going_on
        .map(|active| {
            let drafts = own(&mut resources.cache, active, |req| req.jump(rows));
            rows -= drafts.len();
            drafts
        })
        .collect();
    if resources.draft_model.is_some() || resources.draft_layer.is_some() {
        return of_all(reqs, jumps, resources, rows);
    }
    let going_on = reqs.iter_mut().filter(|active| active.goes_on());
    let own = going_on.zip(jumps).map(|(active, jump)| {
        if !jump.is_empty() {
            return jump;
        }
        let drafts = own(&mut resources.cache, active, |req| req.propose(rows));
        rows -= drafts.len();
        drafts
    });
    own.collect()
}

/// What `propose` has for a request whose last token is known, as far as there is room.
fn own(
    cache: &mut KvCache,
    active: &mut Active,
    propose: impl FnOnce(&mut Req) -> Vec<u32>,
) -> Vec<u32> {
    if active.drawing() > 0 {
        return Vec::new();
    }
    let mut drafts = propose(&mut active.req);
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

/// `jumps`, and of the requests without one what a draft model or a draft layer proposes, for all at once.
fn of_all(
    reqs: &mut [Active],
    jumps: Vec<Vec<u32>>,
    resources: &mut Resources,
    mut rows: usize,
) -> Vec<Vec<u32>> {
    // What a draft layer made of the last entries is there between steps.
    let last = resources.is_idle().then(|| resources.step.last());
    let Resources {
        cache,
        draft_model,
        draft_layer,
        ranks,
        row_cost,
        ..
    } = resources;
    let going_on = reqs.iter_mut().filter(|active| active.goes_on());
    let wanted: Vec<_> = going_on
        .zip(&jumps)
        .map(|(active, jump)| {
            let is_there = |entry: &&LastEntry| last.is_some_and(|last| entry.is_there(last));
            let entry = active.req.last_entry().filter(is_there);
            let max = match active.drawing() {
                0 if !jump.is_empty() => 0,
                0 if draft_layer.is_none() || entry.is_some() => active.req.drafts_wanted(rows),
                _ => 0,
            };
            let max = room(cache, active, max);
            rows -= max;
            Wanted {
                req: &active.req,
                idx: active.kv.idx,
                draft_len: &mut active.draft_len,
                entry: active.req.last_entry().filter(is_there),
                max,
            }
        })
        .collect();
    let is_steady = draft_layer.is_some() || wanted.iter().all(Wanted::is_steady);
    let num_reqs = wanted.len();
    let began = Instant::now();
    let req_to_token = cache.req_to_token();
    let drafted = match (draft_layer, draft_model) {
        (Some(layer), _) => layer.draft(ranks.as_mut(), &wanted, req_to_token),
        (None, Some(model)) => model.draft(wanted, req_to_token),
        (None, None) => Ok(vec![Vec::new(); num_reqs]),
    };
    let mut drafts = match drafted {
        Ok(drafts) => drafts,
        Err(error) => {
            tracing::error!(%error, "a step of drafts failed; this step has none");
            // What it has computed is open.
            reqs.iter_mut().for_each(|active| active.draft_len = 0);
            vec![Vec::new(); num_reqs]
        }
    };
    if is_steady {
        row_cost.observe_drafts(drafts.iter().map(Vec::len).sum(), began.elapsed());
    }
    let going_on = reqs.iter_mut().filter(|active| active.goes_on());
    for ((active, drafts), jump) in going_on.zip(&mut drafts).zip(jumps) {
        if jump.is_empty() {
            active.req.keep_allowed(drafts);
        } else {
            *drafts = jump;
        }
        let len = active.len() + drafts.len();
        // A draft model computed those that the grammar refused.
        active.draft_len = active.draft_len.min(len);
        cache.give_back(&mut active.kv, len, drafts.len());
    }
    drafts
}
