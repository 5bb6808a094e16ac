//! Masks: which tokens the rows of a step may draw. They are computed on threads of their own from the moment that the
//! step is scheduled, while the device computes it, and are waited for where the step samples.

use super::compile::Compiled;
use crossbeam_channel::{Receiver, Sender};
use llguidance::Matcher;
use llguidance::toktrie::SimpleVob;
use parking_lot::Mutex;
use prometheus::Histogram;
use std::fmt::{Debug, Formatter, Result as FmtResult};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};
use std::time::Instant;

/// Computes the mask of one row.
pub(crate) struct MaskJob {
    pub(super) grammar: Arc<Compiled>,
    pub(super) matcher: Arc<Mutex<Matcher>>,
    /// Tokens in front of the row's that the matcher has not taken.
    pub(super) ahead: Vec<u32>,
    pub(super) withheld: Vec<u32>,
}

/// The masks of a step in the making, one for each row that has a grammar.
#[derive(Debug, Default)]
pub(crate) struct Masks {
    len: usize,
    parts: Option<Parts>,
}

#[derive(Debug)]
struct Parts {
    workers: MaskWorkers,
    done_rx: Receiver<(usize, Vec<u32>)>,
    words: usize,
}

/// Threads that compute masks, which start with the first. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct MaskWorkers {
    started: Arc<Once>,
    tasks_tx: Sender<Task>,
    tasks_rx: Receiver<Task>,
    seconds: Histogram,
}

struct Task {
    job: MaskJob,
    place: usize,
    done_tx: Sender<(usize, Vec<u32>)>,
}

/// Beside the scheduler's thread, which computes masks while it waits for some.
const THREADS_MAX: usize = 4;

// === impl MaskJob ===

impl MaskJob {
    /// No token is allowed where the grammar fails; [`super::GrammarState::why_none`] then says why.
    pub(super) fn run(&self) -> Vec<u32> {
        let vocabulary = self.grammar.vocabulary();
        // A panic that the crate has caught leaves its lexer's lock poisoned, which others unwrap.
        let mask = catch_unwind(AssertUnwindSafe(|| {
            self.grammar.note_size();
            self.mask()
        }));
        let mut words = match mask.ok().flatten() {
            Some(mask) => vocabulary.words_of(mask.as_slice()),
            None => vocabulary.words_of(&[]),
        };
        withhold(&mut words, &self.withheld);
        words
    }

    fn mask(&self) -> Option<SimpleVob> {
        let mut matcher = self.matcher.lock();
        if self.ahead.is_empty() {
            return matcher.compute_mask_or_eos().ok();
        }
        // Not every grammar takes tokens back.
        let mut ahead = matcher.clone();
        drop(matcher);
        ahead.consume_tokens(&self.ahead).ok()?;
        ahead.compute_mask_or_eos().ok()
    }
}

/// Takes `ids` out, unless nothing is left then.
fn withhold(words: &mut Vec<u32>, ids: &[u32]) {
    if ids.is_empty() {
        return;
    }
    let mut others = words.clone();
    for id in ids {
        if let Some(word) = others.get_mut(*id as usize / 32) {
            *word &= !(1 << (id % 32));
        }
    }
    if others.iter().any(|word| *word != 0) {
        *words = others;
    }
}

// === impl Masks ===

impl Masks {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Words of all.
    pub(crate) fn words_len(&self) -> usize {
        let words = self.parts.as_ref().map_or(0, |parts| parts.words);
        self.len * words
    }

    /// All masks, one after another.
    pub(crate) fn wait(&self) -> Vec<u32> {
        let Some(parts) = &self.parts else {
            return Vec::new();
        };
        // Those that the threads have not begun.
        while let Ok(task) = parts.workers.tasks_rx.try_recv() {
            task.run(&parts.workers.seconds);
        }
        let mut all = vec![0; self.words_len()];
        // A mask whose thread failed allows nothing.
        for (place, words) in &parts.done_rx {
            all[place * parts.words..][..words.len()].copy_from_slice(&words);
        }
        all
    }
}

// === impl MaskWorkers ===

impl MaskWorkers {
    pub(crate) fn new(seconds: Histogram) -> Self {
        // Bounded by the rows of the steps in flight.
        let (tasks_tx, tasks_rx) = crossbeam_channel::unbounded();
        Self {
            started: Arc::new(Once::new()),
            tasks_tx,
            tasks_rx,
            seconds,
        }
    }

    /// Begins to compute masks, which have their places in this order.
    pub(crate) fn begin(&self, jobs: Vec<MaskJob>) -> Masks {
        let Some(first) = jobs.first() else {
            return Masks::default();
        };
        self.started.call_once(|| self.start());
        let (len, words) = (jobs.len(), first.grammar.vocabulary().mask_words());
        let (done_tx, done_rx) = crossbeam_channel::bounded(len);
        for (place, job) in jobs.into_iter().enumerate() {
            let done_tx = done_tx.clone();
            // The other end is ours.
            let _ = self.tasks_tx.send(Task {
                job,
                place,
                done_tx,
            });
        }
        Masks {
            len,
            parts: Some(Parts {
                workers: self.clone(),
                done_rx,
                words,
            }),
        }
    }

    fn start(&self) {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..cores.saturating_sub(1).clamp(1, THREADS_MAX) {
            let (tasks_rx, seconds) = (self.tasks_rx.clone(), self.seconds.clone());
            let thread = std::thread::Builder::new().name("pd-masks".to_owned());
            let spawned = thread.spawn(move || tasks_rx.iter().for_each(|task| task.run(&seconds)));
            if let Err(error) = spawned {
                tracing::warn!(%error, "cannot start a thread for masks; the scheduler's computes them");
            }
        }
    }
}

// === impl Task ===

impl Task {
    fn run(self, seconds: &Histogram) {
        let began = Instant::now();
        let words = self.job.run();
        seconds.observe(began.elapsed().as_secs_f64());
        // The step may have been given up.
        let _ = self.done_tx.send((self.place, words));
    }
}

impl Debug for MaskJob {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        f.debug_struct("MaskJob").finish_non_exhaustive()
    }
}
