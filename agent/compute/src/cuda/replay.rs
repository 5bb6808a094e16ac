//! Steps that come again. The kernels of such a step are noted first and enqueued together: one by one
//! when the step is new, as a graph when the same kernels have come before with the same arguments.
//! What is replayed is thus exactly what would have been enqueued.

use super::driver::{Driver, DriverError, Gemm, Graph, Launch, Work};
use super::kernels::Kernel;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// Steps that are remembered; beyond it the one that was not used for longest is forgotten.
const STEPS_MAX: usize = 128;

/// What one step enqueues.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Step {
    notes: Vec<Note>,
    /// Of all kernels, one after another.
    args: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
enum Note {
    Launch {
        kernel: Kernel,
        grid: [u32; 3],
        shared_bytes: u32,
        args_bytes: usize,
    },
    Gemm(Gemm),
}

/// The step that is being noted, if one is.
#[derive(Debug, Default)]
pub(super) struct Recording(Mutex<Option<Noted>>);

#[derive(Debug, Default)]
struct Noted {
    step: Step,
    /// Some of it had to be enqueued at once.
    is_cut: bool,
}

/// The steps before, the latest in front.
#[derive(Debug)]
pub(super) struct Steps {
    driver: Arc<dyn Driver>,
    known: Mutex<VecDeque<Known>>,
}

#[derive(Debug)]
struct Known {
    step: Step,
    form: Form,
}

#[derive(Debug)]
enum Form {
    /// It came once.
    Seen,
    Graph(Graph),
    /// The driver makes no graph of it.
    Plain,
}

// === impl Step ===

impl Step {
    fn note(&mut self, work: &Work<'_>) {
        self.notes.push(match *work {
            Work::Gemm(gemm) => Note::Gemm(gemm),
            Work::Launch(Launch {
                kernel,
                grid,
                shared_bytes,
                args,
            }) => {
                self.args.extend(args);
                Note::Launch {
                    kernel,
                    grid,
                    shared_bytes,
                    args_bytes: args.len(),
                }
            }
        });
    }

    fn works(&self) -> Vec<Work<'_>> {
        let mut args = self.args.as_slice();
        let work = |note: &Note| match *note {
            Note::Gemm(gemm) => Work::Gemm(gemm),
            Note::Launch {
                kernel,
                grid,
                shared_bytes,
                args_bytes,
            } => {
                let (own, rest) = args.split_at(args_bytes);
                args = rest;
                Work::Launch(Launch {
                    kernel,
                    grid,
                    shared_bytes,
                    args: own,
                })
            }
        };
        self.notes.iter().map(work).collect()
    }

    fn enqueue(&self, driver: &dyn Driver) -> Result<(), DriverError> {
        let works = self.works();
        // SAFETY: the caller that noted them vouched for them.
        works
            .iter()
            .try_for_each(|work| unsafe { driver.enqueue(work) })
    }
}

// === impl Recording ===

impl Recording {
    /// # Panics
    /// When a step is being noted already.
    pub(super) fn begin(&self) {
        let before = self.0.lock().replace(Noted::default());
        assert!(before.is_none(), "a replayed step within another");
    }

    pub(super) fn is_on(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Notes it; false where no step is being noted.
    pub(super) fn note(&self, work: &Work<'_>) -> bool {
        let mut noted = self.0.lock();
        if let Some(noted) = &mut *noted {
            noted.step.note(work);
        }
        noted.is_some()
    }

    /// Enqueues what was noted so far, for memory that it uses is to go.
    pub(super) fn cut(&self, driver: &dyn Driver) -> Result<(), DriverError> {
        let mut noted = self.0.lock();
        noted.as_mut().map_or(Ok(()), |noted| {
            noted.is_cut = true;
            std::mem::take(&mut noted.step).enqueue(driver)
        })
    }

    /// Enqueues the rest, unless the stream has faulted meanwhile; whether it was as a graph.
    ///
    /// # Panics
    /// When no step is being noted.
    pub(super) fn end(&self, steps: &Steps, is_healthy: bool) -> Result<bool, DriverError> {
        let noted = self.0.lock().take();
        let Noted { step, is_cut } = noted.expect("a step that ends has begun");
        if !is_healthy {
            Ok(false)
        } else if is_cut {
            step.enqueue(&*steps.driver).map(|()| false)
        } else {
            steps.enqueue(step)
        }
    }
}

// === impl Steps ===

impl Steps {
    pub(super) fn new(driver: &Arc<dyn Driver>) -> Self {
        Self {
            driver: Arc::clone(driver),
            known: Mutex::default(),
        }
    }

    /// Whether it was as a graph.
    fn enqueue(&self, step: Step) -> Result<bool, DriverError> {
        let mut known = self.known.lock();
        let Some(place) = known.iter().position(|known| known.step == step) else {
            step.enqueue(&*self.driver)?;
            let form = Form::Seen;
            known.push_front(Known { step, form });
            while known.len() > STEPS_MAX
                && let Some(oldest) = known.pop_back()
            {
                self.forget(oldest);
            }
            return Ok(false);
        };
        let mut found = known.remove(place).expect("it was just found");
        if matches!(found.form, Form::Seen) {
            found.form = self.capture(&found.step);
        }
        let enqueued = match &found.form {
            // SAFETY: what its kernels use was vouched for when they were noted just now.
            Form::Graph(graph) => unsafe { self.driver.replay(graph) }.map(|()| true),
            Form::Seen | Form::Plain => found.step.enqueue(&*self.driver).map(|()| false),
        };
        known.push_front(found);
        enqueued
    }

    fn capture(&self, step: &Step) -> Form {
        // SAFETY: as for `enqueue`.
        match unsafe { self.driver.capture(&step.works()) } {
            Ok(graph) => Form::Graph(graph),
            Err(error) => {
                tracing::warn!(%error, "could not capture a step as a graph; launching its kernels one by one");
                Form::Plain
            }
        }
    }

    fn forget(&self, old: Known) {
        if let Form::Graph(graph) = old.form {
            self.driver.destroy_graph(graph);
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        let known = std::mem::take(self.known.get_mut());
        known.into_iter().for_each(|old| self.forget(old));
    }
}
