//! The n largest logits, in order: larger first, equal ones by id.

/// Fills `ids`; where the row has fewer values than `ids` places, the rest stays. NaN is never
/// among them.
pub(super) fn likeliest(logits: &[f32], ids: &mut [u32]) {
    let mut found = 0;
    if ids.is_empty() {
        return;
    }
    let mut least = f32::NEG_INFINITY;
    for (id, logit) in (0u32..).zip(logits) {
        // A later equal one ranks behind, so a full list takes larger ones only.
        let enters = if found < ids.len() {
            !logit.is_nan()
        } else {
            *logit > least
        };
        if enters {
            let larger = |id: &u32| logits[*id as usize] >= *logit;
            let at = ids[..found].partition_point(larger);
            found = ids.len().min(found + 1);
            ids[at..found].rotate_right(1);
            ids[at] = id;
            least = logits[ids[found - 1] as usize];
        }
    }
}
