//! A mode of serving: queues, and the rules by which requests move through them. The modes stand side by side and share
//! the parts of `schedule` and `disaggregation`.

pub(crate) mod decode;
pub(crate) mod prefill;
pub(crate) mod unified;

use crate::command::RequestId;
use crate::queues::QueueSizes;
use crate::req::Req;
use crate::resources::Resources;
use crate::step::{Settled, Step, StepPlan};

pub(crate) trait Mode {
    /// A new request.
    fn admit(&mut self, resources: &mut Resources, req: Req);

    /// The reader of a request is gone; a request that has ended is unknown.
    fn abort(&mut self, resources: &mut Resources, id: RequestId);

    /// The engine is ending.
    fn abort_all(&mut self, resources: &mut Resources, reason: &str);

    /// Moves requests from queue to queue as far as transfers and memory allow.
    fn advance(&mut self, resources: &mut Resources);

    /// The next step, over what the steps in flight leave to do. `None`: there is nothing to compute, or the outcome of
    /// the steps in flight must be known first.
    fn schedule(&mut self, resources: &mut Resources) -> Option<(Step, StepPlan)>;

    /// Advances each request of a step that has ended; requests that have ended since are unknown.
    fn settle(&mut self, resources: &mut Resources, settled: Settled);

    fn queues(&self) -> QueueSizes;
}
