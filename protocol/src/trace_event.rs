//! Timelines as Chrome's Trace Event Format, which Perfetto and chrome://tracing open. Source: "Trace Event Format", Google.

use crate::timeline::{RequestTimeline, Stage, StageEvent};
use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};
use std::collections::BTreeMap;

/// Spans on tracks of processes. On one track they lie one after another or one in another.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    processes: Vec<Process>,
    spans: Vec<Span>,
    /// Spans that had no room.
    pub left_out: u64,
}

/// A row of spans in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Track {
    process: usize,
    thread: usize,
}

/// What took from `begin_unix_ns` to `end_unix_ns`, nanoseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub track: Track,
    pub name: &'static str,
    pub begin_unix_ns: u64,
    pub end_unix_ns: u64,
    /// Shown with it, by name.
    pub args: Vec<(&'static str, u64)>,
}

#[derive(Clone, Debug)]
struct Process {
    name: String,
    tracks: Vec<String>,
}

/// An event of the format. `ts` and `dur` are microseconds.
#[derive(Serialize)]
struct TraceEvent<'a, A> {
    ph: &'static str,
    name: &'a str,
    pid: usize,
    tid: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    args: A,
}

/// The name of a span that holds all phases of a request.
const WHOLE: &str = "request";

// === impl Span ===

impl Span {
    /// Whether it is the request itself, in one process.
    pub fn is_whole(&self) -> bool {
        self.name == WHOLE
    }
}

// === impl Trace ===

impl Trace {
    /// One request in the processes that served it: what it waited for in each, one phase after another, and below it
    /// what was computed and sent, which overlaps.
    pub fn of_request(timelines: &[RequestTimeline]) -> Self {
        let mut trace = Self::default();
        for timeline in timelines {
            let process = trace.process(&timeline.process);
            trace.add_request(process, "request", &timeline.events);
        }
        trace
    }

    /// A process, below those that are there. Names need not differ.
    pub fn process(&mut self, name: &str) -> usize {
        self.processes.push(Process {
            name: name.to_owned(),
            tracks: Vec::new(),
        });
        self.processes.len() - 1
    }

    /// A track below those of its process.
    ///
    /// # Panics
    /// If the trace has no such process.
    pub fn track(&mut self, process: usize, name: &str) -> Track {
        let tracks = &mut self.processes[process].tracks;
        tracks.push(name.to_owned());
        Track {
            process,
            thread: tracks.len() - 1,
        }
    }

    pub fn push(&mut self, span: Span) {
        self.spans.push(span);
    }

    /// In no particular order.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// A request's stages in one process, on tracks whose names begin with its.
    pub fn add_request(&mut self, process: usize, name: &str, events: &[StageEvent]) {
        let mut events: Vec<&StageEvent> = events.iter().collect();
        events.sort_by_key(|event| event.at_unix_ns);
        self.add_phases(process, name, &events);
        for (stage, what, names) in [
            (Stage::ChunkComputed, "compute", "chunk"),
            (Stage::ChunkSent, "transfer", "send"),
        ] {
            let spans = events.iter().filter(|event| event.stage == stage);
            let spans: Vec<_> = spans.map(|event| (begin(event), *event)).collect();
            self.add_lanes(process, &format!("{name}: {what}"), names, spans);
        }
    }

    /// The request, and in it its phases, each from the end of the one before.
    fn add_phases(&mut self, process: usize, name: &str, events: &[&StageEvent]) {
        let ends = phase_ends(events);
        let (Some(first), Some(last)) = (ends.first(), ends.last()) else {
            return;
        };
        let (begin_all, end_all) = (begin(first).min(first.at_unix_ns), last.at_unix_ns);
        let track = self.track(process, name);
        self.push(Span {
            track,
            name: WHOLE,
            begin_unix_ns: begin_all,
            end_unix_ns: end_all,
            args: Vec::new(),
        });
        let mut begin_unix_ns = begin_all;
        for event in ends {
            if let Some(name) = phase(event.stage) {
                self.push(Span {
                    track,
                    name,
                    begin_unix_ns,
                    end_unix_ns: event.at_unix_ns,
                    args: args(event),
                });
            }
            begin_unix_ns = event.at_unix_ns;
        }
    }

    /// On as many tracks as spans overlap.
    fn add_lanes(
        &mut self,
        process: usize,
        track: &str,
        name: &'static str,
        mut spans: Vec<(u64, &StageEvent)>,
    ) {
        spans.sort_by_key(|(begin, event)| (*begin, event.at_unix_ns));
        let mut lanes: Vec<(Track, u64)> = Vec::new();
        for (begin_unix_ns, event) in spans {
            let free = lanes.iter_mut().find(|(_, until)| *until <= begin_unix_ns);
            let track = match free {
                Some((track, until)) => {
                    *until = event.at_unix_ns;
                    *track
                }
                None => {
                    let track = self.track(process, track);
                    lanes.push((track, event.at_unix_ns));
                    track
                }
            };
            self.push(Span {
                track,
                name,
                begin_unix_ns,
                end_unix_ns: event.at_unix_ns,
                args: args(event),
            });
        }
    }
}

/// The last chunk alone ends the phase of computing.
fn phase_ends<'a>(events: &[&'a StageEvent]) -> Vec<&'a StageEvent> {
    let is_chunk = |event: &&StageEvent| event.stage == Stage::ChunkComputed;
    let last_chunk = events.iter().rposition(is_chunk);
    let ends = events.iter().enumerate().filter(|(place, event)| {
        event.stage != Stage::ChunkSent && (!is_chunk(event) || Some(*place) == last_chunk)
    });
    ends.map(|(_, event)| *event).collect()
}

/// The phase that ends with a stage, but for those with which a process begins.
fn phase(stage: Stage) -> Option<&'static str> {
    match stage {
        Stage::RouterAccepted | Stage::PrefillQueued | Stage::DecodeQueued | Stage::ChunkSent => {
            None
        }
        Stage::RouterDispatched => Some("choose a pair"),
        Stage::RouterFirstByte => Some("wait for the first token"),
        Stage::RouterDone => Some("relay"),
        Stage::PrefillBootstrapped => Some("wait for decode's pages"),
        Stage::ChunkComputed => Some("compute the prompt"),
        Stage::LastWrite => Some("send the rest"),
        Stage::DecodePreallocated => Some("reserve pages"),
        Stage::TransferDone => Some("receive"),
        Stage::FirstStep => Some("first step"),
        Stage::LastToken => Some("decode"),
    }
}

fn begin(event: &StageEvent) -> u64 {
    event
        .at_unix_ns
        .saturating_sub(event.duration_ns.unwrap_or(0))
}

fn args(event: &StageEvent) -> Vec<(&'static str, u64)> {
    let args = [
        ("tokens", event.tokens),
        ("bytes", event.bytes),
        ("state_bytes", event.state_bytes),
    ];
    let there = args
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)));
    there.collect()
}

impl Serialize for Trace {
    /// As an object with `traceEvents`; times begin with the first span's.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let start = self.spans.iter().map(|span| span.begin_unix_ns).min();
        let start = start.unwrap_or(0);
        let mut trace = serializer.serialize_struct("Trace", 3)?;
        trace.serialize_field("displayTimeUnit", "ms")?;
        let mut data = BTreeMap::from([("began_at_unix_ns", start.to_string())]);
        if self.left_out > 0 {
            data.insert("spans_left_out", self.left_out.to_string());
        }
        trace.serialize_field("otherData", &data)?;
        trace.serialize_field("traceEvents", &Events { trace: self, start })?;
        trace.end()
    }
}

struct Events<'a> {
    trace: &'a Trace,
    start: u64,
}

// === impl Events ===

impl Serialize for Events<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { trace, start } = self;
        let named = |what, name: &str, pid, tid| TraceEvent {
            ph: "M",
            name: what,
            pid,
            tid,
            ts: None,
            dur: None,
            args: BTreeMap::from([("name", name.to_owned())]),
        };
        let names = trace
            .processes
            .iter()
            .enumerate()
            .flat_map(|(pid, process)| {
                let own = named("process_name", &process.name, pid + 1, 0);
                let tracks = process.tracks.iter().enumerate();
                let tracks =
                    tracks.map(move |(tid, name)| named("thread_name", name, pid + 1, tid + 1));
                std::iter::once(own).chain(tracks)
            });
        let spans = trace.spans.iter().map(|span| TraceEvent {
            ph: "X",
            name: span.name,
            pid: span.track.process + 1,
            tid: span.track.thread + 1,
            ts: Some(micros(span.begin_unix_ns.saturating_sub(*start))),
            dur: Some(micros(span.end_unix_ns.saturating_sub(span.begin_unix_ns))),
            args: span.args.iter().copied().collect::<BTreeMap<_, _>>(),
        });
        let names = names.map(Either::Name);
        serializer.collect_seq(names.chain(spans.map(Either::Span)))
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum Either<N, S> {
    Name(N),
    Span(S),
}

#[allow(
    clippy::cast_precision_loss,
    reason = "a trace lasts less than the 104 days after which a nanosecond is lost"
)]
fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

#[cfg(test)]
mod tests;
