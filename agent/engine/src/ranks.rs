//! `Ranks`: those who carry out steps. The scheduler sends them plans and gets what was drawn; it knows neither the
//! device nor the model. One rank runs on the scheduler's own backend ([`local::LocalRank`]).

pub(crate) mod local;

use crate::kvcache::{KvPlaces, PageIdx, StateSlot, WindowPageIdx};
use crate::observe::PayloadHash;
use crate::step::{StepOutput, StepPlan};
use pd_compute::ComputeError;
use std::fmt::Debug;
use std::ops::Range;

/// Carries out steps, in the order of their launches.
pub(crate) trait Ranks: Debug + Send {
    /// Enqueues a step and returns without waiting for it.
    ///
    /// # Errors
    /// If allocating larger tables fails.
    fn launch(&mut self, plan: &StepPlan) -> Result<(), ComputeError>;

    /// Waits for the oldest step in flight.
    ///
    /// # Errors
    /// When a device faulted; it executes nothing more.
    fn wait(&mut self) -> Result<StepOutput, ComputeError>;

    /// Copies a request's KV to host memory and waits for the copy, so that its places may be reused.
    ///
    /// # Errors
    /// When there is too little host memory, or the device faulted.
    fn offload(&mut self, places: &KvPlaces) -> Result<HostKv, ComputeError>;

    /// Enqueues copies of offloaded KV back into as many places, and does not wait for them. They are in order with the
    /// steps: the next one finds them done. A fault shows in the next [`Self::wait`].
    ///
    /// # Errors
    /// If allocating the indices fails.
    fn reload(&mut self, kv: HostKv, places: &KvPlaces) -> Result<(), ComputeError>;

    /// Hashes of the slots of pages as they are behind the steps in flight.
    ///
    /// # Errors
    /// When the device faulted.
    fn hash_pages(&mut self, spans: &[PageSpan]) -> Result<Vec<PayloadHash>, ComputeError>;

    /// Hashes of the states in a slot, one per state of the model, as they are behind the steps in flight.
    ///
    /// # Errors
    /// When the device faulted.
    fn hash_states(&mut self, slot: StateSlot) -> Result<Vec<PayloadHash>, ComputeError>;

    /// Frees the host memory of KV that is not needed any more.
    fn forget(&mut self, kv: HostKv);
}

/// Some slots of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageSpan {
    pub(crate) page: PageIdx,
    /// The page of the same tokens in the window space, where it is there and counts.
    pub(crate) window: Option<WindowPageIdx>,
    pub(crate) slots: Range<usize>,
}

/// KV of a request in host memory. Goes back by [`Ranks::reload`] or [`Ranks::forget`].
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct HostKv(pub(crate) u64);
