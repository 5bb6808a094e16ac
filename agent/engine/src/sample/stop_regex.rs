//! SGLang's `stop_regex`: regular expressions that end an answer at the first character with which its text so far has a
//! match, however the text is cut into tokens. `$` and `\b` see the end of the text so far as its end.
//!
//! The expressions are one automaton, whose states are followed side by side: time for a character is bounded by the
//! automaton's size, and nothing of the text is kept but its last character.

use super::params::ParamsError;
use regex_automata::nfa::thompson::{Compiler, NFA, State, WhichCaptures};
use regex_automata::util::look::Look;
use regex_automata::util::primitives::StateID;
use regex_syntax::hir::{Hir, HirKind};
use std::sync::Arc;

/// Expressions of a request, and bytes of each; SGLang's bounds.
pub const STOP_REGEX_MAX: usize = 32;
pub const STOP_REGEX_BYTES_MAX: usize = 256;
/// Places in all expressions of a request, with repetitions written out: a text may be at each of them, and every
/// character of it is compared at each, on the scheduler's thread: ten µs for a character at most, and a part of one
/// where few are reached.
const PLACES_MAX: usize = 1024;
/// Memory of all expressions of a request as an automaton: some 14 classes of all letters.
const AUTOMATON_BYTES_MAX: usize = 256 << 10;

/// Compiled expressions; none by default.
#[derive(Clone, Debug, Default)]
pub struct StopRegex(Option<Arc<Compiled>>);

#[derive(Debug)]
struct Compiled {
    patterns: Vec<String>,
    nfa: NFA,
}

/// Follows one answer.
#[derive(Debug)]
pub(crate) struct RegexMatcher {
    compiled: Arc<Compiled>,
    /// The answer's last character so far.
    last: Option<char>,
    /// States behind the last character, before what follows without one.
    reached: Vec<StateID>,
    closed: StateSet,
    /// States whose successors are still to be added.
    open: Vec<StateID>,
}

/// An expression that has matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RegexMatch {
    pub(crate) pattern: String,
    /// The match ends behind the character just pushed, not before it.
    pub(crate) has_last: bool,
}

/// States, in the order of their arrival.
#[derive(Debug)]
struct StateSet {
    ids: Vec<StateID>,
    has: Vec<bool>,
}

/// The characters on both sides of a place, as the automaton's assertions read them.
struct Around {
    utf8: [u8; 8],
    len: usize,
    place: usize,
}

// === impl StopRegex ===

impl StopRegex {
    /// # Errors
    /// Says which expression is too long, wrong and where, or would end every answer, and when they are too large together.
    pub fn new(patterns: Vec<String>) -> Result<Self, ParamsError> {
        if patterns.is_empty() {
            return Ok(Self::default());
        }
        let wrong = |problem: String| ParamsError {
            param: "stop_regex",
            problem,
        };
        if patterns.len() > STOP_REGEX_MAX {
            let len = patterns.len();
            return Err(wrong(format!(
                "has {len} expressions; give at most {STOP_REGEX_MAX}"
            )));
        }
        if let Some(long) = patterns.iter().find(|p| p.len() > STOP_REGEX_BYTES_MAX) {
            let len = long.len();
            return Err(wrong(format!(
                "contains an expression of {len} bytes; give at most {STOP_REGEX_BYTES_MAX}"
            )));
        }
        let hirs = patterns.iter().map(|pattern| {
            regex_syntax::parse(pattern).map_err(|why| wrong(misspelt(pattern, &why)))
        });
        let hirs = hirs.collect::<Result<Vec<_>, ParamsError>>()?;
        let places = hirs.iter().map(places).fold(0, usize::saturating_add);
        if places > PLACES_MAX {
            return Err(wrong(format!(
                "has {places} places with its repetitions written out; give at most {PLACES_MAX}"
            )));
        }
        let config = NFA::config()
            .which_captures(WhichCaptures::None)
            .nfa_size_limit(Some(AUTOMATON_BYTES_MAX));
        let nfa = Compiler::new().configure(config).build_many_from_hir(&hirs);
        let nfa = nfa.map_err(|_| {
            let kib = AUTOMATON_BYTES_MAX >> 10;
            wrong(format!(
                "takes more than {kib} KiB as an automaton; repeat less, or smaller classes"
            ))
        })?;
        let compiled = Arc::new(Compiled { patterns, nfa });
        match RegexMatcher::new(Arc::clone(&compiled)).close(None) {
            None => Ok(Self(Some(compiled))),
            Some(empty) => Err(wrong(format!(
                "contains `{}`, which an empty text matches, so that it would end every answer immediately",
                compiled.patterns[empty]
            ))),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn matcher(&self) -> Option<RegexMatcher> {
        self.0.clone().map(RegexMatcher::new)
    }
}

impl PartialEq for StopRegex {
    fn eq(&self, other: &Self) -> bool {
        let patterns = |of: &Self| of.0.as_ref().map(|compiled| compiled.patterns.clone());
        patterns(self) == patterns(other)
    }
}

// === impl RegexMatcher ===

impl RegexMatcher {
    fn new(compiled: Arc<Compiled>) -> Self {
        Self {
            closed: StateSet::new(compiled.nfa.states().len()),
            compiled,
            last: None,
            reached: Vec::new(),
            open: Vec::new(),
        }
    }

    /// Takes the answer's next character. Push nothing more after a match.
    pub(crate) fn push(&mut self, next: char) -> Option<RegexMatch> {
        // Without assertions the states are those that were found behind the last character.
        let nfa = &self.compiled.nfa;
        if (self.last.is_none() || !nfa.look_set_any().is_empty())
            && let Some(pattern) = self.close(Some(next))
        {
            return Some(self.matched(pattern, false));
        }
        let mut utf8 = [0; 4];
        for (index, byte) in next.encode_utf8(&mut utf8).bytes().enumerate() {
            if index > 0 {
                self.closed.clear();
                // Within a character: nothing begins or ends here.
                self.extend(None);
            }
            self.step(byte);
        }
        self.last = Some(next);
        let pattern = self.close(None)?;
        Some(self.matched(pattern, true))
    }

    fn matched(&self, pattern: usize, has_last: bool) -> RegexMatch {
        RegexMatch {
            pattern: self.compiled.patterns[pattern].clone(),
            has_last,
        }
    }

    /// Adds what follows, between the last character and `next`, from the states reached, and from the start: a match may
    /// begin anywhere. Returns the first of the expressions that match up to here.
    fn close(&mut self, next: Option<char>) -> Option<usize> {
        self.closed.clear();
        let around = Around::new(self.last, next);
        self.open.push(self.compiled.nfa.start_anchored());
        self.extend(Some(&around))
    }

    fn extend(&mut self, around: Option<&Around>) -> Option<usize> {
        let nfa = &self.compiled.nfa;
        let mut matched: Option<usize> = None;
        self.open.extend(&self.reached);
        while let Some(id) = self.open.pop() {
            if !self.closed.insert(id) {
                continue;
            }
            match nfa.state(id) {
                State::ByteRange { .. } | State::Sparse(_) | State::Dense(_) | State::Fail => {}
                State::Look { look, next } => {
                    if around.is_some_and(|around| around.holds(nfa, *look)) {
                        self.open.push(*next);
                    }
                }
                State::Union { alternates } => self.open.extend(alternates),
                State::BinaryUnion { alt1, alt2 } => self.open.extend([alt1, alt2]),
                State::Capture { next, .. } => self.open.push(*next),
                State::Match { pattern_id } => {
                    let pattern = pattern_id.as_usize();
                    matched = Some(matched.map_or(pattern, |first| first.min(pattern)));
                }
            }
        }
        matched
    }

    /// The states that `byte` leads to.
    fn step(&mut self, byte: u8) {
        let nfa = &self.compiled.nfa;
        self.reached.clear();
        let next = self
            .closed
            .ids
            .iter()
            .filter_map(|&id| match nfa.state(id) {
                State::ByteRange { trans } => trans.matches_byte(byte).then_some(trans.next),
                State::Sparse(transitions) => transitions.matches_byte(byte),
                State::Dense(transitions) => transitions.matches_byte(byte),
                State::Look { .. }
                | State::Union { .. }
                | State::BinaryUnion { .. }
                | State::Capture { .. }
                | State::Fail
                | State::Match { .. } => None,
            });
        self.reached.extend(next);
    }
}

// === impl StateSet ===

impl StateSet {
    fn new(states: usize) -> Self {
        Self {
            ids: Vec::new(),
            has: vec![false; states],
        }
    }

    /// Whether `id` was not there.
    fn insert(&mut self, id: StateID) -> bool {
        let is_new = !std::mem::replace(&mut self.has[id.as_usize()], true);
        if is_new {
            self.ids.push(id);
        }
        is_new
    }

    fn clear(&mut self) {
        for id in self.ids.drain(..) {
            self.has[id.as_usize()] = false;
        }
    }
}

// === impl Around ===

impl Around {
    fn new(last: Option<char>, next: Option<char>) -> Self {
        let mut utf8 = [0; 8];
        let mut len = 0;
        let mut put = |c: Option<char>| {
            len += c.map_or(0, |c| c.encode_utf8(&mut utf8[len..]).len());
            len
        };
        let (place, len) = (put(last), put(next));
        Self { utf8, len, place }
    }

    fn holds(&self, nfa: &NFA, look: Look) -> bool {
        let text = &self.utf8[..self.len];
        nfa.look_matcher().matches(look, text, self.place)
    }
}

/// Places of an expression, and the choices between them.
fn places(hir: &Hir) -> usize {
    let all = |hirs: &[Hir], each: usize| {
        let places = hirs.iter().map(|hir| places(hir).saturating_add(each));
        places.fold(0, usize::saturating_add)
    };
    match hir.kind() {
        HirKind::Empty => 0,
        HirKind::Literal(literal) => literal.0.len(),
        HirKind::Class(_) | HirKind::Look(_) => 1,
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min.saturating_add(1));
            let each = places(&repetition.sub).saturating_add(1);
            each.saturating_mul(times as usize)
        }
        HirKind::Capture(capture) => places(&capture.sub),
        HirKind::Concat(hirs) => all(hirs, 0),
        HirKind::Alternation(hirs) => all(hirs, 1),
    }
}

/// What is wrong with an expression, and where.
fn misspelt(pattern: &str, why: &regex_syntax::Error) -> String {
    let (problem, place) = match why {
        regex_syntax::Error::Parse(why) => (why.kind().to_string(), why.span().start.offset),
        regex_syntax::Error::Translate(why) => (why.kind().to_string(), why.span().start.offset),
        other => (other.to_string(), 0),
    };
    format!("contains `{pattern}`, which is wrong at byte {place}: {problem}")
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
