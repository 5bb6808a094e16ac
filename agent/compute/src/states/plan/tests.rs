//! Which slots a step may name.

use super::*;
use crate::kv::NO_SLOT;

fn plan(read: &[u32], write: &[u32], snapshot: &[u32]) -> Result<Vec<SeqStates>, String> {
    let words = StepWords {
        q_indptr: &[0, 2, 3],
        read,
        write,
        snapshot,
    };
    SeqStates::of_step(words, 6)
}

const NONE: [u32; 3] = [NO_SLOT; 3];

#[test]
fn slots_are_read_from_words() {
    let seqs = plan(&[NO_SLOT, 4], &[0, NO_SLOT], &[NO_SLOT, 3, 5]).unwrap();
    let expected = [
        SeqStates {
            rows: 0..2,
            read: None,
            write: Some(0),
            snapshots: vec![(1, 3)],
        },
        SeqStates {
            rows: 2..3,
            read: Some(4),
            write: None,
            snapshots: vec![(2, 5)],
        },
    ];
    assert_eq!(seqs, expected);
    assert_eq!(
        (seqs[0].snapshot_after(0), seqs[0].snapshot_after(1)),
        (None, Some(3))
    );
}

#[test]
fn a_slot_may_be_read_by_several_and_overwritten_by_its_own_sequence() {
    plan(&[1, 1], &[2, 3], &NONE).unwrap();
    plan(&[1, 2], &[1, 2], &NONE).unwrap();
}

#[test]
fn a_slot_is_written_once_and_read_by_no_other_sequence() {
    for (read, write, snapshot, expected) in [
        (
            [0, 1],
            [2, 2],
            NONE,
            "state slot 2 is written twice in a step, for the sequences 0 and 1",
        ),
        (
            [0, 1],
            [2, 3],
            [3, NO_SLOT, NO_SLOT],
            "state slot 3 is written twice in a step, for the sequences 0 and 1",
        ),
        (
            [0, 1],
            [2, 3],
            [NO_SLOT, 2, NO_SLOT],
            "state slot 2 is written twice in a step, for the sequences 0 and 0",
        ),
        (
            [0, 1],
            [1, 2],
            NONE,
            "state slot 1 is written for sequence 0 and read for 1",
        ),
        (
            [0, 1],
            [2, 3],
            [NO_SLOT, NO_SLOT, 0],
            "state slot 0 is written for sequence 1 and read for 0",
        ),
        ([6, 1], [2, 3], NONE, "state slot 6 is beyond the 6"),
        (
            [0, 1],
            [2, 3],
            [NO_SLOT, 7, NO_SLOT],
            "state slot 7 is beyond the 6",
        ),
    ] {
        assert_eq!(plan(&read, &write, &snapshot).unwrap_err(), expected);
    }
}

#[test]
fn rows_beyond_the_step_are_refused() {
    let words = StepWords {
        q_indptr: &[0, 3, 2],
        read: &[0, 1],
        write: &[0, 1],
        snapshot: &NONE,
    };
    let refused = SeqStates::of_step(words, 2).unwrap_err();
    assert_eq!(refused, "sequence 1 has the rows 3..2 of 3");
}

#[test]
fn sequences_that_leave_out_rows_are_refused() {
    for q_indptr in [[1, 2, 3], [0, 2, 2], [0, 2, 4]] {
        let words = StepWords {
            q_indptr: &q_indptr,
            read: &[NO_SLOT; 2],
            write: &[NO_SLOT; 2],
            snapshot: &NONE,
        };
        SeqStates::of_step(words, 6).unwrap_err();
    }
}
