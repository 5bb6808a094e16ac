//! Holds what was recorded of a request against what an engine computes that does all of it, in the order of a
//! request's life, so that what differs first is what went wrong.

use super::{Payload, PayloadHash, Point};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;

/// What was compared, up to the first difference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    pub pages: usize,
    pub states: usize,
    pub steps: usize,
    pub difference: Option<Difference>,
}

/// Where a record and its replay part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Pages are counted from the request's first, as its tokens are.
    Page {
        at: Place,
        page: usize,
        first_token: usize,
        last_token: usize,
    },
    /// Of the states behind the prompt, by their place among the model's.
    State { at: Place, state: usize },
    /// Of the position that a step computed.
    StepKv { position: usize },
    /// Of the states behind that position.
    StepState { position: usize, state: usize },
    /// KV and state are equal, and another token was drawn behind the position.
    Token {
        position: usize,
        recorded: u32,
        replayed: u32,
    },
    /// The replay's answer ended before the position.
    NoStep { position: usize },
}

/// Where the prompt's pages and states were looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In an engine that does both.
    Computed,
    BeforeSend,
    AfterRestore {
        /// They were recorded before they were sent, too, and were as they should be.
        was_right: bool,
    },
}

/// What the replay found behind a position.
struct Step<'a> {
    kv: PayloadHash,
    states: &'a [PayloadHash],
    token: u32,
}

struct Comparer<'a> {
    prompt: &'a Payload,
    steps: BTreeMap<usize, Step<'a>>,
    page_size: usize,
    found: Comparison,
    /// Pages that were right before they were sent.
    sent: BTreeSet<usize>,
    states_sent: bool,
}

/// Compares points of both legs of a request, in any order, with those of one unified engine of the same page size.
/// `None`: the replay did not get as far as its prompt.
pub fn compare(recorded: &[Point], replayed: &[Point], page_size: usize) -> Option<Comparison> {
    let prompt = replayed.iter().find_map(|point| match point {
        Point::Computed(payload) => Some(payload),
        Point::Admitted(_)
        | Point::BeforeSend(_)
        | Point::Sent { .. }
        | Point::AfterRestore(_)
        | Point::Step { .. } => None,
    })?;
    let mut recorded: Vec<&Point> = recorded.iter().collect();
    recorded.sort_by_key(|point| place_in_life(point, prompt.tokens));
    let mut comparer = Comparer {
        prompt,
        steps: steps(replayed),
        page_size,
        found: Comparison::default(),
        sent: BTreeSet::new(),
        states_sent: false,
    };
    for point in recorded {
        comparer.found.difference = comparer.point(point);
        if comparer.found.difference.is_some() {
            break;
        }
    }
    Some(comparer.found)
}

/// Prefill computes, draws the first token and sends; decode restores and steps on.
fn place_in_life(point: &Point, prompt_len: usize) -> (u8, usize) {
    match point {
        Point::Admitted(_) => (0, 0),
        Point::Computed(payload) | Point::BeforeSend(payload) => (1, payload.first_page),
        Point::Step { position, .. } if *position < prompt_len => (2, *position),
        Point::Sent { .. } => (3, 0),
        Point::AfterRestore(payload) => (4, payload.first_page),
        Point::Step { position, .. } => (5, *position),
    }
}

/// Each page with its place in the request, which a file may claim to be any.
fn places(payload: &Payload) -> impl Iterator<Item = (usize, &PayloadHash)> {
    let pages = payload.pages.iter().enumerate();
    pages.map(|(nr, hash)| (payload.first_page.saturating_add(nr), hash))
}

fn steps(points: &[Point]) -> BTreeMap<usize, Step<'_>> {
    let step = |point| match point {
        &Point::Step {
            position,
            kv,
            ref states,
            token,
        } => Some((position, Step { kv, states, token })),
        Point::Admitted(_)
        | Point::Computed(_)
        | Point::BeforeSend(_)
        | Point::Sent { .. }
        | Point::AfterRestore(_) => None,
    };
    points.iter().filter_map(step).collect()
}

// === impl Comparer ===

impl Comparer<'_> {
    fn point(&mut self, point: &Point) -> Option<Difference> {
        match point {
            Point::Admitted(_) | Point::Sent { .. } => None,
            Point::Computed(payload) => self.payload(payload, |_| Place::Computed),
            Point::BeforeSend(payload) => {
                let found = self.payload(payload, |_| Place::BeforeSend);
                self.sent.extend(places(payload).map(|(page, _)| page));
                self.states_sent |= !payload.states.is_empty();
                found
            }
            Point::AfterRestore(payload) => {
                self.payload(payload, |was_right| Place::AfterRestore { was_right })
            }
            Point::Step {
                position,
                kv,
                states,
                token,
            } => self.step(*position, *kv, states, *token),
        }
    }

    fn payload(&mut self, payload: &Payload, at: impl Fn(bool) -> Place) -> Option<Difference> {
        for (page, hash) in places(payload) {
            if self.prompt.pages.get(page) != Some(hash) {
                let tokens = self.tokens_of(page, payload.tokens);
                return Some(Difference::Page {
                    at: at(self.sent.contains(&page)),
                    page,
                    first_token: tokens.start,
                    last_token: tokens.end.saturating_sub(1),
                });
            }
            self.found.pages += 1;
        }
        let expected = &self.prompt.states;
        let state = self.unequal_state(&payload.states, expected)?;
        let at = at(self.states_sent);
        Some(Difference::State { at, state })
    }

    fn tokens_of(&self, page: usize, tokens: usize) -> Range<usize> {
        let first = page.saturating_mul(self.page_size);
        first..tokens.min(first.saturating_add(self.page_size))
    }

    /// The first of the recorded states that differs; those before it count as compared.
    fn unequal_state(
        &mut self,
        recorded: &[PayloadHash],
        expected: &[PayloadHash],
    ) -> Option<usize> {
        let unequal = |&state: &usize| expected.get(state) != Some(&recorded[state]);
        let first = (0..recorded.len()).find(unequal);
        self.found.states += first.unwrap_or(recorded.len());
        first
    }

    fn step(
        &mut self,
        position: usize,
        kv: PayloadHash,
        states: &[PayloadHash],
        token: u32,
    ) -> Option<Difference> {
        let Some(replayed) = self.steps.get(&position) else {
            return Some(Difference::NoStep { position });
        };
        let (expected_kv, expected, replayed) = (replayed.kv, replayed.states, replayed.token);
        if kv != expected_kv {
            return Some(Difference::StepKv { position });
        }
        if let Some(state) = self.unequal_state(states, expected) {
            return Some(Difference::StepState { position, state });
        }
        if token != replayed {
            return Some(Difference::Token {
                position,
                recorded: token,
                replayed,
            });
        }
        self.found.steps += 1;
        None
    }
}

// === impl Place ===

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Computed => "where it was computed",
            Self::BeforeSend => "before send",
            Self::AfterRestore { .. } => "after restore",
        })
    }
}

impl Place {
    /// What follows from a difference there.
    fn verdict(self) -> &'static str {
        match self {
            Self::Computed => "its engine computed something else",
            Self::BeforeSend => "prefill computed something else",
            Self::AfterRestore { was_right: true } => {
                "it was right before it was sent, so its bits changed on their way"
            }
            Self::AfterRestore { was_right: false } => {
                "prefill computed something else, or its bits changed on their way: prefill's file shows which"
            }
        }
    }
}

// === impl Difference ===

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Page {
                at,
                page,
                first_token,
                last_token,
            } => {
                let verdict = at.verdict();
                write!(
                    f,
                    "{at}, page {page} (tokens {first_token} to {last_token}): {verdict}"
                )
            }
            Self::State { at, state } => {
                let verdict = at.verdict();
                write!(f, "{at}, state {state} behind the prompt: {verdict}")
            }
            Self::StepKv { position } => write!(
                f,
                "in the step of position {position}, its KV: the step computed something else"
            ),
            Self::StepState { position, state } => write!(
                f,
                "in the step of position {position}, state {state} behind it: the step computed something else"
            ),
            Self::Token {
                position,
                recorded,
                replayed,
            } => write!(
                f,
                "in the step of position {position}, the token behind it: {recorded} was drawn, and {replayed} in the \
                 replay, from equal KV and state"
            ),
            Self::NoStep { position } => write!(
                f,
                "in the step of position {position}: the replay's answer ended before it"
            ),
        }
    }
}

#[cfg(test)]
mod tests;
