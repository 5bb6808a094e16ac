//! What fits into a step, and what waits.

use super::*;

const LIMITS: ScheduleLimits = ScheduleLimits {
    max_running_requests: 8,
    chunked_prefill_size: Some(64),
    max_prefill_tokens: 1000,
    prompt_logprob_rows: 32,
    draft_rows: 0,
};

fn full(tokens: usize) -> PerSpace {
    PerSpace {
        full: tokens,
        window: 0,
    }
}

fn mk_adder(
    limits: &ScheduleLimits,
    page_size: usize,
    promised: usize,
    decode_rows: usize,
) -> PrefillAdder {
    let spaces = Spaces {
        page_size,
        window: None,
    };
    PrefillAdder::new(limits, spaces, full(promised), decode_rows)
}

fn admit(adder: &mut PrefillAdder, candidate: Candidate, available: usize) -> Admission {
    adder.admit(candidate, full(available))
}

fn mk_candidate(extend_len: usize, remaining_len: usize) -> Candidate {
    Candidate {
        from: 0,
        shared: 0,
        extend_len,
        held_len: 0,
        remaining_len,
        without_logits: extend_len - 1,
    }
}

#[test]
fn a_long_prompt_is_cut_at_a_page_boundary() {
    let mut adder = mk_adder(&LIMITS, 16, 0, 0);
    assert_eq!(
        admit(&mut adder, mk_candidate(10, 1), 1000),
        Admission::Whole
    );
    assert_eq!(
        admit(&mut adder, mk_candidate(100, 1), 1000),
        Admission::Chunk(48)
    );
    assert_eq!(
        admit(&mut adder, mk_candidate(100, 1), 1000),
        Admission::Full
    );
}

#[test]
fn decode_rows_take_their_part_of_the_chunk() {
    let mut adder = mk_adder(&LIMITS, 16, 0, 20);
    assert_eq!(
        admit(&mut adder, mk_candidate(100, 1), 1000),
        Admission::Chunk(32)
    );
}

#[test]
fn a_request_waits_until_its_answer_fits_too() {
    let mut adder = mk_adder(&LIMITS, 16, 0, 0);
    assert_eq!(
        admit(&mut adder, mk_candidate(16, 17), 31),
        Admission::NoTokens
    );
    assert_eq!(
        admit(&mut adder, mk_candidate(16, 17), 32),
        Admission::Whole
    );
    assert_eq!(
        admit(&mut adder, mk_candidate(16, 1), 31),
        Admission::NoTokens
    );
}

#[test]
fn answers_count_for_no_more_than_the_clip() {
    let mut adder = mk_adder(&LIMITS, 1, 0, 0);
    assert_eq!(
        admit(&mut adder, mk_candidate(1, 1_000_000), CLIP_MAX_NEW_TOKENS),
        Admission::Whole
    );
}

#[test]
fn what_is_promised_to_others_is_not_given_away() {
    let mut adder = mk_adder(&LIMITS, 1, 50, 0);
    assert_eq!(
        admit(&mut adder, mk_candidate(10, 1), 59),
        Admission::NoTokens
    );
    assert_eq!(admit(&mut adder, mk_candidate(10, 1), 60), Admission::Whole);
}

#[test]
fn a_begun_request_continues_regardless_of_promises() {
    let mut adder = mk_adder(&LIMITS, 16, 1_000_000, 0);
    assert_eq!(adder.go_on(mk_candidate(100, 1)), Admission::Chunk(64));
}

#[test]
fn without_chunking_the_first_prompt_may_exceed_the_step() {
    let limits = ScheduleLimits {
        chunked_prefill_size: None,
        ..LIMITS
    };
    let mut adder = mk_adder(&limits, 16, 0, 0);
    assert_eq!(
        admit(&mut adder, mk_candidate(2000, 1), 10_000),
        Admission::Whole
    );
    assert_eq!(
        admit(&mut adder, mk_candidate(20, 1), 10_000),
        Admission::Full
    );
}

#[test]
fn prompt_logprobs_are_bounded_by_logit_rows() {
    let mut adder = mk_adder(&LIMITS, 16, 0, 0);
    let wants_all = Candidate {
        without_logits: 0,
        ..mk_candidate(60, 1)
    };
    assert_eq!(admit(&mut adder, wants_all, 1000), Admission::Chunk(32));
}

#[test]
fn nothing_is_admitted_after_a_chunk() {
    let mut adder = mk_adder(&LIMITS, 16, 0, 0);
    let wants_all = Candidate {
        without_logits: 0,
        ..mk_candidate(60, 1)
    };
    assert_eq!(admit(&mut adder, wants_all, 1000), Admission::Chunk(32));
    assert_eq!(admit(&mut adder, mk_candidate(2, 1), 1000), Admission::Full);
}

#[test]
fn a_window_is_all_that_a_request_needs_of_its_space() {
    let spaces = Spaces {
        page_size: 16,
        window: Some(32),
    };
    let mk = || PrefillAdder::new(&LIMITS, spaces, PerSpace::default(), 0);
    let available = |window| PerSpace { full: 1000, window };
    let candidate = mk_candidate(60, 500);
    assert_eq!(mk().admit(candidate, available(63)), Admission::NoTokens);
    let mut adder = mk();
    assert_eq!(adder.admit(candidate, available(64)), Admission::Whole);
    assert_eq!(
        adder.admit(mk_candidate(2, 1), available(15)),
        Admission::NoTokens,
        "a page, which is more than there is"
    );
    let behind_its_window = Candidate {
        from: 64,
        ..candidate
    };
    assert_eq!(
        mk().admit(behind_its_window, available(0)),
        Admission::Whole
    );
    let beside_others = Candidate {
        shared: 32,
        ..behind_its_window
    };
    let admission = |window| mk().admit(beside_others, available(window));
    assert_eq!(
        admission(31),
        Admission::NoTokens,
        "others keep what it has"
    );
    assert_eq!(admission(32), Admission::Whole);
}
