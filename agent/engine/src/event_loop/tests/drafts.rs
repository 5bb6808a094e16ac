//! Drafts in the loop: how many are right, what they cost, and when they are left out.

use super::device::next_token;
use super::*;
use crate::speculate::ngram::Ngram;
use crate::speculate::{Drafter, Speculation};
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
}

/// Drafts of requests without penalties.
#[derive(Debug)]
struct Knowing(Kind);

// === impl Drafts ===

impl Drafts {
    pub(super) fn speculation(self, overlaps: bool) -> Speculation {
        let Self { num_steps, kind } = self;
        let drafter = move || -> Box<dyn Drafter> {
            match kind {
                Kind::Ngram => Box::new(Ngram::default()),
                Kind::Right | Kind::Wrong | Kind::Mixed | Kind::RightFrom(_) => {
                    Box::new(Knowing(kind))
                }
            }
        };
        Speculation {
            num_steps,
            drafter: Arc::new(drafter),
            overlaps,
        }
    }
}

// === impl Knowing ===

impl Drafter for Knowing {
    fn propose(&mut self, tokens: &[u32], max: usize) -> Vec<u32> {
        let mut tokens = tokens.to_vec();
        let from = tokens.len();
        for _ in 0..max {
            let right = next_token(&tokens);
            let is_right = match self.0 {
                Kind::Right => true,
                Kind::Mixed => !right.is_multiple_of(4),
                Kind::RightFrom(len) => tokens.len() >= len,
                Kind::Wrong | Kind::Ngram => false,
            };
            let wrong = (right + 1) % VOCAB;
            tokens.push(if is_right { right } else { wrong });
        }
        tokens.split_off(from)
    }
}

/// A request of 300 tokens by itself, with these drafts.
fn endless(drafts: Option<Drafts>) -> Stand {
    let mut stand = Stand::new(&Sizes { drafts, ..ROOMY });
    stand.submit(Asked {
        stops: false,
        ..mk_asked(16, 300)
    });
    stand.finish();
    let (asked, answer) = stand.asked.pop().unwrap();
    asked.check(answer, false, &stand);
    stand
}

/// Drafts, and those that were accepted.
fn drafted(stand: &Stand) -> (u64, u64) {
    let metrics = &stand.event_loop.resources.recorder.metrics.speculation;
    (metrics.draft_tokens.get(), metrics.accepted_tokens.get())
}

#[test]
fn drafts_that_are_right_give_a_token_each_beside_the_one_of_the_step() {
    for num_steps in 1..4 {
        let kind = Kind::Right;
        let stand = endless(Some(Drafts { num_steps, kind }));
        let behind_first = 299usize.div_ceil(num_steps + 1) as u64;
        assert_eq!(steps(&stand), (1 + behind_first, 0));
        let (drafts, accepted) = drafted(&stand);
        assert_eq!((drafts, accepted), (accepted, 299 - behind_first));
    }
}

#[test]
fn drafts_that_are_wrong_take_nothing_and_are_soon_left_out() {
    let kind = Kind::Wrong;
    let stand = endless(Some(Drafts { num_steps: 3, kind }));
    let (drafts, accepted) = drafted(&stand);
    assert_eq!((steps(&stand).0, accepted), (300, 0));
    assert_eq!(
        drafts,
        4 * 18,
        "a window, and trials after 32, 64 and 128 tokens"
    );
}

#[test]
fn drafts_that_come_to_be_right_are_switched_on_again() {
    let kind = Kind::RightFrom(100);
    let stand = endless(Some(Drafts { num_steps: 3, kind }));
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
