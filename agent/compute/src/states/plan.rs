//! What a step does to the state of each sequence, read from words and checked.

use super::slot_of;
use std::ops::Range;

/// The words of a step, as [`StateRows`](super::StateRows) and `BatchView::q_indptr` describe them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepWords<'a> {
    /// `[num_seqs + 1]`.
    pub(crate) q_indptr: &'a [u32],
    /// `[num_seqs]`.
    pub(crate) read: &'a [u32],
    /// `[num_seqs]`.
    pub(crate) write: &'a [u32],
    /// `[num_tokens]`.
    pub(crate) snapshot: &'a [u32],
}

/// One sequence of a step. Slots are in bounds, and what [`StateRows`](super::StateRows) promises of
/// the written ones holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeqStates {
    pub(crate) rows: Range<usize>,
    pub(crate) read: Option<usize>,
    pub(crate) write: Option<usize>,
    /// Rows whose state is kept, and the slot: ascending by row.
    pub(crate) snapshots: Vec<(usize, usize)>,
}

// === impl SeqStates ===

impl SeqStates {
    /// # Errors
    /// Names the rows that are no division of the step's, or the slot that is out of bounds, written
    /// twice, or read by another sequence.
    pub(crate) fn of_step(words: StepWords<'_>, num_slots: usize) -> Result<Vec<Self>, String> {
        let num_tokens = words.snapshot.len();
        let slot = |word: u32| match slot_of(word) {
            Some(slot) if slot >= num_slots => {
                Err(format!("state slot {slot} is beyond the {num_slots}"))
            }
            slot => Ok(slot),
        };
        let mut seqs = Vec::with_capacity(words.read.len());
        for (seq, ends) in words.q_indptr.windows(2).enumerate() {
            let rows = ends[0] as usize..ends[1] as usize;
            if rows.start > rows.end || rows.end > num_tokens {
                return Err(format!(
                    "sequence {seq} has the rows {rows:?} of {num_tokens}"
                ));
            }
            let mut snapshots = Vec::new();
            for row in rows.clone() {
                snapshots.extend(slot(words.snapshot[row])?.map(|slot| (row, slot)));
            }
            seqs.push(Self {
                rows,
                read: slot(words.read[seq])?,
                write: slot(words.write[seq])?,
                snapshots,
            });
        }
        let (first, last) = (words.q_indptr.first(), words.q_indptr.last());
        if first != Some(&0) || last.is_none_or(|&last| last as usize != num_tokens) {
            return Err(format!(
                "the sequences {:?} do not have all {num_tokens} rows",
                words.q_indptr
            ));
        }
        check_apart(&seqs)?;
        Ok(seqs)
    }

    /// How many of the step's rows are done, and the slot that keeps the state after them.
    pub(crate) fn kept(&self) -> impl Iterator<Item = (usize, usize)> {
        let first = self.rows.start;
        let snapshots = self.snapshots.iter();
        let snapshots = snapshots.map(move |(row, slot)| (row + 1 - first, *slot));
        let last = self.write.into_iter();
        snapshots.chain(last.map(|slot| (self.rows.len(), slot)))
    }

    /// The snapshot after `row`.
    pub(crate) fn snapshot_after(&self, row: usize) -> Option<usize> {
        let found = self.snapshots.binary_search_by_key(&row, |(row, _)| *row);
        found.ok().map(|index| self.snapshots[index].1)
    }
}

fn check_apart(seqs: &[SeqStates]) -> Result<(), String> {
    let of_seq = |(seq, states): (usize, &SeqStates)| {
        let slots: Vec<_> = states.kept().map(|(_, slot)| (slot, seq)).collect();
        slots
    };
    let mut written: Vec<_> = seqs.iter().enumerate().flat_map(of_seq).collect();
    written.sort_unstable();
    if let Some([(slot, one), (_, other)]) = written
        .array_windows()
        .find(|[one, other]| one.0 == other.0)
    {
        return Err(format!(
            "state slot {slot} is written twice in a step, for the sequences {one} and {other}"
        ));
    }
    for (reader, states) in seqs.iter().enumerate() {
        let Some(slot) = states.read else { continue };
        let place = written.binary_search_by_key(&slot, |(slot, _)| *slot);
        if let Ok(place) = place
            && written[place].1 != reader
        {
            return Err(format!(
                "state slot {slot} is written for sequence {} and read for {reader}",
                written[place].1
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
