//! `Profiler`: while it is on, what the scheduler's thread does in its turns and what the device computes in steps. Off, it
//! costs a relaxed load per turn.

use crate::step::Step;
use crate::timeline::{Timelines, unix_ns};
use parking_lot::Mutex;
use pd_protocol::trace_event::{Span, Trace};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Spans of a profile; those after them are left out.
const SPANS_MAX: usize = 1 << 17;

/// Why a profile was neither begun nor ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    #[error("a profile is being recorded; stop it first")]
    IsOn,
    #[error("no profile is being recorded; start one first")]
    IsOff,
}

/// What a turn does, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Receive,
    Advance,
    Launch,
    Wait,
    Settle,
    Observe,
}

#[derive(Debug, Default)]
pub(crate) struct Profiler {
    is_on: AtomicBool,
    recording: Mutex<Option<Recording>>,
}

/// The time of a turn's phases, each from the end of the one before.
#[derive(Debug)]
pub(crate) struct PhaseClock {
    profiler: Arc<Profiler>,
    /// None while the profiler is off.
    since: Option<Instant>,
}

#[derive(Debug)]
struct Recording {
    start: Instant,
    start_unix_ns: u64,
    phases: Vec<(Phase, Instant, Instant)>,
    steps: Vec<StepSpan>,
    left_out: u64,
}

#[derive(Debug)]
struct StepSpan {
    name: &'static str,
    begin: Instant,
    end: Instant,
    requests: u64,
    tokens: u64,
    draws: u64,
}

// === impl Profiler ===

impl Profiler {
    pub(crate) fn start(&self) -> Result<(), ProfileError> {
        let mut recording = self.recording.lock();
        if recording.is_some() {
            return Err(ProfileError::IsOn);
        }
        *recording = Some(Recording {
            start: Instant::now(),
            start_unix_ns: unix_ns(),
            phases: Vec::new(),
            steps: Vec::new(),
            left_out: 0,
        });
        self.is_on.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the profile: turns, steps, and the stages of requests with rooms that were there meanwhile.
    pub(crate) fn stop(&self, timelines: &Timelines) -> Result<Trace, ProfileError> {
        self.is_on.store(false, Ordering::Relaxed);
        let recording = self.recording.lock().take().ok_or(ProfileError::IsOff)?;
        let mut trace = recording.trace();
        let requests = timelines.since(recording.start_unix_ns);
        if !requests.is_empty() {
            let process = trace.process("requests");
            for (room, events) in requests {
                trace.add_request(process, &format!("room {room}"), &events);
            }
        }
        Ok(trace)
    }
}

// === impl Phase ===

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Advance => "advance",
            Self::Launch => "schedule and launch",
            Self::Wait => "wait for the device",
            Self::Settle => "settle",
            Self::Observe => "observe",
        }
    }
}

// === impl PhaseClock ===

impl PhaseClock {
    pub(crate) fn new(profiler: Arc<Profiler>) -> Self {
        Self {
            profiler,
            since: None,
        }
    }

    /// A turn begins.
    pub(crate) fn begin(&mut self) {
        let is_on = self.profiler.is_on.load(Ordering::Relaxed);
        self.since = is_on.then(Instant::now);
    }

    /// A phase of the turn has ended.
    pub(crate) fn ended(&mut self, phase: Phase) {
        let Some(since) = self.since else { return };
        let now = Instant::now();
        self.since = Some(now);
        if let Some(recording) = &mut *self.profiler.recording.lock()
            && recording.takes_one()
        {
            recording.phases.push((phase, since, now));
        }
    }

    /// The device has computed a step.
    pub(crate) fn computed(&mut self, step: &Step, begin: Instant, end: Instant) {
        if self.since.is_none() {
            return;
        }
        let sum = |of: &dyn Fn(usize) -> usize| (0..step.rows.len()).map(of).sum::<usize>() as u64;
        let draws = sum(&|row| usize::from(step.rows[row].draws));
        let tokens = sum(&|row| step.rows[row].positions.len());
        let is_prompt = |row: &crate::step::StepRow| row.positions.len() > 1 + row.drafts.len();
        let prompts = step.rows.iter().filter(|row| is_prompt(row)).count();
        let name = match prompts {
            0 => "decode",
            all if all == step.rows.len() => "prefill",
            _ => "prefill and decode",
        };
        if let Some(recording) = &mut *self.profiler.recording.lock()
            && recording.takes_one()
        {
            recording.steps.push(StepSpan {
                name,
                begin,
                end,
                requests: step.rows.len() as u64,
                tokens,
                draws,
            });
        }
    }
}

// === impl Recording ===

impl Recording {
    /// Whether there is room for another span; one that has none is counted.
    fn takes_one(&mut self) -> bool {
        let has_room = self.phases.len() + self.steps.len() < SPANS_MAX;
        self.left_out += u64::from(!has_room);
        has_room
    }

    fn trace(&self) -> Trace {
        let mut trace = Trace::default();
        trace.left_out = self.left_out;
        let engine = trace.process("engine");
        let (scheduler, device) = (
            trace.track(engine, "scheduler"),
            trace.track(engine, "device"),
        );
        for (phase, begin, end) in &self.phases {
            trace.push(Span {
                track: scheduler,
                name: phase.name(),
                begin_unix_ns: self.unix_ns(*begin),
                end_unix_ns: self.unix_ns(*end),
                args: Vec::new(),
            });
        }
        for step in &self.steps {
            trace.push(Span {
                track: device,
                name: step.name,
                begin_unix_ns: self.unix_ns(step.begin),
                end_unix_ns: self.unix_ns(step.end),
                args: vec![
                    ("requests", step.requests),
                    ("tokens", step.tokens),
                    ("draws", step.draws),
                ],
            });
        }
        trace
    }

    /// A step may have begun before the profile.
    fn unix_ns(&self, at: Instant) -> u64 {
        let ns =
            |duration: std::time::Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        match at.checked_duration_since(self.start) {
            Some(since) => self.start_unix_ns.saturating_add(ns(since)),
            None => self
                .start_unix_ns
                .saturating_sub(ns(self.start.duration_since(at))),
        }
    }
}

#[cfg(test)]
mod tests;
