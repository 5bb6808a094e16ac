//! `Grammars`: sources wait here for one of two threads that compile them. SGLang's grammar queue, in front of the
//! scheduler.
//!
//! No source makes others wait for long. The crate cannot be interrupted, so each compiles on a thread of its own, which
//! is left behind after [`COMPILE_TIME_MAX`]. What it still does is bounded by the limits of `schema` and the crate; while
//! [`LEFT_BEHIND_MAX`] of them are not done, sources are refused, retriably, as are those that have waited too long.

use super::cache::{self, Cache, Key};
use super::compile::{self, Grammar};
use super::error::{COMPILE_TIME_MAX, GrammarError};
use super::source::GrammarSource;
use super::vocabulary::Vocabulary;
use crate::info::EngineInfo;
use crate::metrics::GrammarMetrics;
use crate::text::Tokenizer;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use parking_lot::Mutex;
use std::fmt::{Debug, Formatter, Result as FmtResult};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::Builder;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// An engine's grammars. Clones share them.
#[derive(Clone, Debug)]
pub struct Grammars {
    compiler: Arc<Compiler>,
    jobs_tx: Sender<Job>,
    jobs_rx: Receiver<Job>,
    /// Whether there is a thread.
    started: Arc<OnceLock<bool>>,
}

struct Compiler {
    tokenizer: Arc<Tokenizer>,
    vocab_size: u32,
    end_ids: Vec<u32>,
    /// Made for the first grammar.
    vocabulary: OnceLock<Result<Arc<Vocabulary>, GrammarError>>,
    cache: Mutex<Cache>,
    /// Threads that took too long, while they run.
    left_behind: Mutex<Vec<Weak<()>>>,
    metrics: GrammarMetrics,
}

struct Job {
    source: GrammarSource,
    key: Key,
    since: Instant,
    reply_tx: oneshot::Sender<Result<Grammar, GrammarError>>,
}

/// Sources that may wait for a thread.
pub const COMPILES_WAITING_MAX: usize = 64;
/// What has waited longer is refused, retriably.
const WAIT_MAX: Duration = Duration::from_secs(4);
const THREADS: usize = 2;
const LEFT_BEHIND_MAX: usize = 2;
/// The crate recurses along references, of which `schema::NODES_MAX` may be in a row. Only what is used is memory, and
/// only until the grammar is compiled.
const STACK_BYTES: usize = 256 << 20;

// === impl Grammars ===

impl Grammars {
    pub(crate) fn new(
        info: &EngineInfo,
        tokenizer: Arc<Tokenizer>,
        metrics: GrammarMetrics,
    ) -> Self {
        let (jobs_tx, jobs_rx) = crossbeam_channel::bounded(COMPILES_WAITING_MAX);
        Self {
            compiler: Arc::new(Compiler {
                tokenizer,
                vocab_size: info.vocab_size,
                end_ids: info.eos_token_ids.clone(),
                vocabulary: OnceLock::new(),
                cache: Mutex::default(),
                left_behind: Mutex::default(),
                metrics,
            }),
            jobs_tx,
            jobs_rx,
            started: Arc::default(),
        }
    }

    /// A grammar for requests of this engine: one that was compiled lately, or a new one.
    ///
    /// # Errors
    /// Says what in the source is wrong, or that there are too many others.
    pub async fn compile(&self, source: GrammarSource) -> Result<Grammar, GrammarError> {
        self.compiler.metrics.requested.inc();
        let compiled = self.compile_or_wait(source).await;
        if compiled.is_err() {
            self.compiler.metrics.failed.inc();
        }
        compiled
    }

    async fn compile_or_wait(&self, source: GrammarSource) -> Result<Grammar, GrammarError> {
        source.check_len()?;
        let key = cache::key(&source);
        if let Some(grammar) = self.compiler.cached(&key) {
            return Ok(grammar);
        }
        let (reply_tx, reply_rx) = oneshot::channel();
        let job = Job {
            source,
            key,
            since: Instant::now(),
            reply_tx,
        };
        if !self.started.get_or_init(|| self.start()) {
            return Err(GrammarError::Busy);
        }
        self.jobs_tx.try_send(job).map_err(|_| GrammarError::Busy)?;
        reply_rx.await.unwrap_or(Err(GrammarError::Stopped))
    }

    /// Whether the grammar is of this engine.
    pub(crate) fn has_made(&self, grammar: &Grammar) -> bool {
        let vocabulary = self.compiler.vocabulary.get();
        vocabulary.is_some_and(|made| {
            let made = made.as_ref().ok();
            made.is_some_and(|made| Arc::ptr_eq(made, grammar.0.vocabulary()))
        })
    }

    /// Starts the threads; `false` if there is none.
    fn start(&self) -> bool {
        let spawn = |_| {
            let (jobs_rx, compiler) = (self.jobs_rx.clone(), self.compiler.clone());
            let spawned = Builder::new()
                .name("pd-grammars".to_owned())
                .spawn(move || jobs_rx.iter().for_each(|job| compiler.answer(job)));
            spawned
                .inspect_err(|error| tracing::error!(%error, "cannot start a thread for grammars"))
        };
        (0..THREADS).map(spawn).filter(Result::is_ok).count() > 0
    }
}

#[cfg(test)]
impl Grammars {
    /// All sources wait from now on.
    pub(super) fn start_none(&self) {
        self.started.get_or_init(|| true);
    }
}

// === impl Compiler ===

impl Compiler {
    fn cached(&self, key: &Key) -> Option<Grammar> {
        let grammar = self.cache.lock().get(key)?;
        self.metrics.cache_hits.inc();
        Some(grammar)
    }

    fn answer(self: &Arc<Self>, job: Job) {
        let Job {
            source,
            key,
            since,
            reply_tx,
        } = job;
        if reply_tx.is_closed() {
            return;
        }
        let answer = if since.elapsed() > WAIT_MAX {
            Err(GrammarError::Busy)
        } else if let Some(grammar) = self.cached(&key) {
            Ok(grammar)
        } else {
            self.compile(source, key)
        };
        // The caller may have gone.
        let _ = reply_tx.send(answer);
    }

    fn compile(self: &Arc<Self>, source: GrammarSource, key: Key) -> Result<Grammar, GrammarError> {
        let vocabulary = self.vocabulary.get_or_init(|| self.vocabulary()).clone()?;
        let mut left_behind = self.left_behind.lock();
        left_behind.retain(|running| running.strong_count() > 0);
        if left_behind.len() >= LEFT_BEHIND_MAX {
            return Err(GrammarError::Busy);
        }
        drop(left_behind);
        let what = source.what();
        let began = Instant::now();
        let (done_tx, done_rx) = crossbeam_channel::bounded(1);
        let running = Arc::new(());
        let is_running = Arc::downgrade(&running);
        let thread = Builder::new().name("pd-grammar".to_owned());
        let spawned = thread.stack_size(STACK_BYTES).spawn(move || {
            // A caller that has left takes nothing.
            let _ = done_tx.send(compile::compile(&vocabulary, &source));
            drop(running);
        });
        spawned.map_err(|_| GrammarError::Busy)?;
        let compiled = done_rx.recv_timeout(COMPILE_TIME_MAX);
        self.metrics.seconds.observe(began.elapsed().as_secs_f64());
        match compiled {
            Ok(compiled) => {
                let grammar = compiled?;
                self.cache.lock().insert(key, grammar.clone());
                Ok(grammar)
            }
            Err(RecvTimeoutError::Timeout) => {
                self.left_behind.lock().push(is_running);
                self.metrics.timeouts.inc();
                tracing::warn!(what, "left a grammar behind that takes too long to compile");
                Err(GrammarError::TooSlow { what })
            }
            Err(RecvTimeoutError::Disconnected) => Err(GrammarError::Invalid {
                what,
                problem: "its compiler failed; change it".to_owned(),
            }),
        }
    }

    fn vocabulary(&self) -> Result<Arc<Vocabulary>, GrammarError> {
        if self.end_ids.is_empty() {
            return Err(GrammarError::NoEnd);
        }
        let make = || Vocabulary::new(&self.tokenizer, self.vocab_size, &self.end_ids);
        // Tokens that the crate did not expect are no reason to lose this thread.
        let made = catch_unwind(AssertUnwindSafe(make));
        let made = made.unwrap_or_else(|_| Err("its tokens fit no trie".to_owned()));
        made.map(Arc::new).map_err(|problem| GrammarError::Invalid {
            what: "the vocabulary of this model",
            problem,
        })
    }
}

impl Debug for Compiler {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        f.debug_struct("Compiler").finish_non_exhaustive()
    }
}
