//! Drafts in the loop: how many are right, what they cost, and when they are left out.

use super::device::{guess, mistake, next_token};
use super::*;
use crate::speculate::ngram::Ngram;
use crate::speculate::switch::Lately;
use crate::speculate::{DraftSource, Drafter, Speculation};
use std::sync::Arc;

/// How an engine of these tests speculates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drafts {
    pub(super) num_steps: usize,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Right,
    Wrong,
    /// Three of four are right.
    Mixed,
    /// Right behind so many tokens.
    RightFrom(usize),
    Ngram,
    /// A draft model is the same device again, so that what it drafts is right if it finds the right KV.
    Model,
    /// Another model, which is wrong where [`Kind::Mixed`] is.
    MistakenModel,
    /// A model that is never right.
    WrongModel,
    /// The device's own draft layer, which is right if it finds the right entries.
    Layer,
}

/// Drafts of requests without penalties.
#[derive(Debug)]
struct Knowing(Kind);

// === impl Drafts ===

impl Drafts {
    pub(super) fn speculation(self, overlaps: bool) -> Speculation {
        let Self { num_steps, kind } = self;
        let source = match kind {
            Kind::Ngram => DraftSource::Drafters(Arc::new(|| Box::new(Ngram::default()))),
            Kind::Right | Kind::Wrong | Kind::Mixed | Kind::RightFrom(_) => {
                DraftSource::Drafters(Arc::new(move || Box::new(Knowing(kind))))
            }
            Kind::Model | Kind::MistakenModel | Kind::WrongModel | Kind::Layer => {
                DraftSource::Model(Lately::default())
            }
        };
        Speculation {
            num_steps,
            source,
            overlaps,
        }
    }

    /// Also for requests with penalties.
    pub(super) fn are_always_right(self) -> bool {
        matches!(self.kind, Kind::Model | Kind::Layer)
    }

    pub(super) fn are_of_layer(self) -> bool {
        matches!(self.kind, Kind::Layer)
    }

    /// The draft model, if one drafts.
    pub(super) fn model(self, sizes: &Sizes) -> Option<DraftModel> {
        let sizes = &Sizes {
            window: None,
            ..sizes.clone()
        };
        let device = match self.kind {
            Kind::Model => Device::new(sizes),
            Kind::MistakenModel => Device::new(sizes).make_mistaken(guess),
            Kind::WrongModel => Device::new(sizes).make_mistaken(mistake),
            Kind::Right
            | Kind::Wrong
            | Kind::Mixed
            | Kind::RightFrom(_)
            | Kind::Ngram
            | Kind::Layer => {
                return None;
            }
        };
        Some(DraftModel::new(Box::new(device), DRAFT_STEP_TOKENS))
    }
}

// === impl Knowing ===

impl Drafter for Knowing {
    fn propose(&mut self, tokens: &[u32], max: usize) -> Vec<u32> {
        let mut tokens = tokens.to_vec();
        let from = tokens.len();
        for _ in 0..max {
            let right = next_token(&tokens);
            let wrong = mistake(right);
            tokens.push(match self.0 {
                Kind::Right => right,
                Kind::Mixed => guess(right),
                Kind::RightFrom(len) if tokens.len() >= len => right,
                Kind::RightFrom(_) | Kind::Wrong => wrong,
                Kind::Ngram
                | Kind::Model
                | Kind::MistakenModel
                | Kind::WrongModel
                | Kind::Layer => wrong,
            });
        }
        tokens.split_off(from)
    }
}

/// Answers of `len` tokens in turn, each by itself, with these drafts.
fn answers(count: usize, len: u32, drafts: Option<Drafts>) -> Stand {
    let mut stand = Stand::new(&Sizes { drafts, ..ROOMY });
    for _ in 0..count {
        stand.submit(Asked {
            stops: false,
            ..mk_asked(16, len)
        });
        stand.finish();
    }
    for (asked, answer) in std::mem::take(&mut stand.asked) {
        asked.check(answer, false, &stand);
    }
    stand
}

/// Drafts, and those that were accepted.
pub(super) fn drafted(stand: &Stand) -> (u64, u64) {
    let metrics = &stand.event_loop.resources.recorder.metrics.speculation;
    (metrics.draft_tokens.get(), metrics.accepted_tokens.get())
}

#[test]
fn drafts_that_are_right_give_a_token_each_beside_the_one_of_the_step() {
    for kind in [Kind::Right, Kind::Model, Kind::Layer] {
        // Steps beyond the fewest, for one without drafts, which shows what they cost; with one or two drafts the last
        // step has room for it.
        let bare = [1, 2, 3].map(|num_steps| {
            // Too short for the switch, which measures, to decide anything.
            let stand = answers(10, 20, Some(Drafts { num_steps, kind }));
            let (drafts, accepted) = drafted(&stand);
            assert_eq!(drafts, accepted);
            assert_eq!(steps(&stand), (10 + 190 - accepted, 0));
            190 - accepted - 10 * 19usize.div_ceil(num_steps + 1) as u64
        });
        assert_eq!(bare, [0, 0, 1], "{kind:?}");
    }
}

#[test]
fn drafts_that_are_wrong_take_nothing_and_are_soon_left_out() {
    let kind = Kind::Wrong;
    let stand = answers(1, 300, Some(Drafts { num_steps: 3, kind }));
    let (drafts, accepted) = drafted(&stand);
    assert_eq!((steps(&stand).0, accepted), (300, 0));
    assert_eq!(
        drafts,
        4 * 18,
        "a window, and trials after 32, 64 and 128 tokens"
    );
}

/// Drafts of ten answers in turn, each of which ends in its second window if it begins afresh.
fn drafts_of_ten(kind: Kind) -> u64 {
    let stand = answers(10, 60, Some(Drafts { num_steps: 3, kind }));
    let (drafts, accepted) = drafted(&stand);
    assert_eq!(accepted, 0);
    drafts
}

#[test]
fn what_a_model_drafts_is_tried_less_often_by_all_requests() {
    // A window, and trials after 32, 64, 128 and 256 tokens of all, with what answers cut short.
    assert_eq!(drafts_of_ten(Kind::WrongModel), 96);
}

#[test]
fn each_request_tries_its_own_drafter() {
    assert_eq!(drafts_of_ten(Kind::Wrong), 10 * 2 * 18);
}

#[test]
fn drafts_that_come_to_be_right_are_switched_on_again() {
    let kind = Kind::RightFrom(100);
    let stand = answers(1, 300, Some(Drafts { num_steps: 3, kind }));
    let (drafts, accepted) = drafted(&stand);
    assert!(
        accepted > 50 && drafts - accepted <= 3 * 18,
        "{accepted} of {drafts}"
    );
    assert!(
        steps(&stand).1 > 50,
        "steps overlap while there are no drafts"
    );
}

/// How many requests were retracted by the end of each turn, and how many pages are held then.
fn turn_by_turn(requests: usize, num_pages: usize, drafts: Option<Drafts>) -> Vec<(u64, usize)> {
    let mut stand = Stand::new(&Sizes {
        overlaps: false,
        page_size: 1,
        num_pages,
        drafts,
        ..ROOMY
    });
    for _ in 0..requests {
        stand.submit(Asked {
            stops: false,
            ..mk_asked(12, 30)
        });
    }
    let mut turns = Vec::new();
    while stand.turn() == Turn::Worked {
        let resources = &stand.event_loop.resources;
        let counters = &resources.recorder.metrics.counters;
        let held = resources.cache.usage().pages.held;
        turns.push((counters.retractions.get(), held));
    }
    for (asked, answer) in std::mem::take(&mut stand.asked) {
        asked.check(answer, false, &stand);
    }
    turns
}

const WRONG: Option<Drafts> = Some(Drafts {
    num_steps: 3,
    kind: Kind::Wrong,
});

#[test]
fn no_request_loses_its_pages_to_drafts() {
    let retractions = |drafts| {
        let turns = turn_by_turn(3, 76, drafts).into_iter();
        turns
            .map(|(retractions, _)| retractions)
            .collect::<Vec<_>>()
    };
    let plain = retractions(None);
    assert!(plain.last() > Some(&0), "{plain:?}");
    assert_eq!(retractions(WRONG), plain);
}

#[test]
fn pages_behind_wrong_drafts_are_given_back() {
    let plain = turn_by_turn(1, 100, None);
    let with_drafts = turn_by_turn(1, 100, WRONG);
    assert_eq!(plain.len(), with_drafts.len());
    for ((_, plain), (_, held)) in plain.into_iter().zip(with_drafts) {
        // That of the next token is there already.
        assert!(held <= plain + 1, "{held}, not {plain}");
    }
}

#[test]
fn a_draft_model_finds_its_kv_right_behind_drafts_that_were_wrong() {
    let drafts_by = |kind| {
        let mut stand = Stand::new(&Sizes {
            drafts: Some(Drafts { num_steps: 2, kind }),
            ..ROOMY
        });
        // Too short for the switch to decide anything.
        for prompt_len in 1..24 {
            stand.submit(mk_asked(prompt_len, 8));
            stand.finish();
        }
        for (asked, answer) in std::mem::take(&mut stand.asked) {
            asked.check(answer, false, &stand);
        }
        drafted(&stand)
    };
    let (drafts, accepted) = drafts_by(Kind::Mixed);
    assert!(accepted > 0 && accepted < drafts, "{accepted} of {drafts}");
    assert_eq!(drafts_by(Kind::MistakenModel), (drafts, accepted));
}
