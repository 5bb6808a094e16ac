//! Where two runs part, one change of a record at a time.

use super::super::PayloadHasher;
use super::*;

const PAGE_SIZE: usize = 16;
/// A prompt of three pages, the last of which holds 8 tokens.
const PROMPT_LEN: usize = 40;

fn mk_hash(of: &str) -> PayloadHash {
    let mut hasher = PayloadHasher::default();
    hasher.push(of.as_bytes());
    hasher.finish()
}

fn mk_payload(pages: Range<usize>, states: &[&str]) -> Payload {
    Payload {
        first_page: pages.start,
        tokens: PROMPT_LEN.min(pages.end * PAGE_SIZE),
        pages: pages.map(|page| mk_hash(&format!("page {page}"))).collect(),
        states: states.iter().map(|state| mk_hash(state)).collect(),
    }
}

fn mk_step(position: usize) -> Point {
    Point::Step {
        position,
        kv: mk_hash(&format!("kv {position}")),
        states: vec![mk_hash(&format!("state {position}"))],
        token: u32::try_from(position).unwrap(),
    }
}

fn mk_replayed() -> Vec<Point> {
    let prompt = Point::Computed(mk_payload(0..3, &["conv", "recurrent"]));
    let steps = (PROMPT_LEN - 1..PROMPT_LEN + 3).map(mk_step);
    [prompt].into_iter().chain(steps).collect()
}

/// Both legs, decode's file before prefill's.
fn mk_recorded() -> Vec<Point> {
    vec![
        Point::AfterRestore(mk_payload(0..3, &["conv", "recurrent"])),
        mk_step(PROMPT_LEN),
        mk_step(PROMPT_LEN + 1),
        mk_step(PROMPT_LEN + 2),
        Point::BeforeSend(mk_payload(0..2, &[])),
        mk_step(PROMPT_LEN - 1),
        Point::BeforeSend(mk_payload(2..3, &["conv", "recurrent"])),
        Point::Sent {
            bytes: 1,
            duration_ns: 1,
        },
    ]
}

fn difference(recorded: &[Point]) -> Option<Difference> {
    let compared = compare(recorded, &mk_replayed(), PAGE_SIZE);
    compared.expect("the replay has a prompt").difference
}

#[test]
fn equal_legs_are_equal_and_all_of_them_was_compared() {
    let compared = compare(&mk_recorded(), &mk_replayed(), PAGE_SIZE);
    let expected = Comparison {
        pages: 6,
        states: 4 + 4,
        steps: 4,
        difference: None,
    };
    assert_eq!(compared, Some(expected));
    assert_eq!(compare(&mk_recorded(), &[mk_step(3)], PAGE_SIZE), None);
}

/// Spoils one thing of a record.
fn spoiled(place: usize, spoil: impl FnOnce(&mut Point)) -> Vec<Point> {
    let mut recorded = mk_recorded();
    spoil(&mut recorded[place]);
    recorded
}

fn spoil_page(point: &mut Point, place: usize) {
    match point {
        Point::Computed(payload) | Point::BeforeSend(payload) | Point::AfterRestore(payload) => {
            payload.pages[place] = mk_hash("spoiled");
        }
        Point::Admitted(_) | Point::Sent { .. } | Point::Step { .. } => panic!("it has no pages"),
    }
}

fn spoil_state(point: &mut Point, place: usize) {
    match point {
        Point::Computed(Payload { states, .. })
        | Point::BeforeSend(Payload { states, .. })
        | Point::AfterRestore(Payload { states, .. })
        | Point::Step { states, .. } => states[place] = mk_hash("spoiled"),
        Point::Admitted(_) | Point::Sent { .. } => panic!("it has no states"),
    }
}

#[test]
fn pages_that_part_are_named_with_their_tokens_and_who_did_it() {
    let page = |at, page, first_token, last_token| {
        Some(Difference::Page {
            at,
            page,
            first_token,
            last_token,
        })
    };
    let computed = spoiled(4, |point| spoil_page(point, 1));
    assert_eq!(difference(&computed), page(Place::BeforeSend, 1, 16, 31));
    let moved = spoiled(0, |point| spoil_page(point, 2));
    let restored = |was_right| Place::AfterRestore { was_right };
    assert_eq!(difference(&moved), page(restored(true), 2, 32, 39));
    let said = difference(&moved).expect("they differ").to_string();
    assert_eq!(
        said,
        "after restore, page 2 (tokens 32 to 39): it was right before it was sent, so its bits changed on their way"
    );
    let of_decode = &moved[..4];
    assert_eq!(difference(of_decode), page(restored(false), 2, 32, 39));
    // What went wrong first counts, in the order of a life, not of files.
    let mut both = moved;
    spoil_page(&mut both[6], 0);
    assert_eq!(difference(&both), page(Place::BeforeSend, 2, 32, 39));
}

#[test]
fn states_that_part_are_named_by_their_place() {
    let moved = spoiled(0, |point| spoil_state(point, 1));
    let at = Place::AfterRestore { was_right: true };
    assert_eq!(difference(&moved), Some(Difference::State { at, state: 1 }));
    let computed = spoiled(6, |point| spoil_state(point, 0));
    let at = Place::BeforeSend;
    assert_eq!(
        difference(&computed),
        Some(Difference::State { at, state: 0 })
    );
    let position = PROMPT_LEN + 1;
    let stepped = spoiled(2, |point| spoil_state(point, 0));
    assert_eq!(
        difference(&stepped),
        Some(Difference::StepState { position, state: 0 })
    );
}

#[test]
fn steps_that_part_are_named_by_their_position() {
    let position = PROMPT_LEN + 1;
    let kv_of = |point: &mut Point| {
        let Point::Step { kv, .. } = point else {
            panic!("it is a step");
        };
        *kv = mk_hash("spoiled");
    };
    assert_eq!(
        difference(&spoiled(2, kv_of)),
        Some(Difference::StepKv { position })
    );
    let drawn = |point: &mut Point| {
        let Point::Step { token, .. } = point else {
            panic!("it is a step");
        };
        *token = 7;
    };
    let token = Difference::Token {
        position,
        recorded: 7,
        replayed: 41,
    };
    assert_eq!(difference(&spoiled(2, drawn)), Some(token));
    let mut longer = mk_recorded();
    longer.push(mk_step(PROMPT_LEN + 3));
    let position = PROMPT_LEN + 3;
    assert_eq!(difference(&longer), Some(Difference::NoStep { position }));
}

#[test]
fn places_beyond_any_request_differ_and_harm_nothing() {
    let far = spoiled(4, |point| {
        let Point::BeforeSend(payload) = point else {
            panic!("it is sent");
        };
        payload.first_page = usize::MAX - 1;
    });
    let expected = Difference::Page {
        at: Place::BeforeSend,
        page: usize::MAX - 1,
        first_token: usize::MAX,
        last_token: 31,
    };
    assert_eq!(difference(&far), Some(expected));
}
