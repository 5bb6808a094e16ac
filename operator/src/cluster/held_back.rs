//! Which departures wait for admissions: a worker goes only after its successor serves.

use super::facts::PodFacts;
use crate::controller::build::Resources;
use crate::controller::build::component::Component;
use pd_crds::node_disposition::NodeDisposition;

/// Which admissions hold a worker back that is to leave, while they take no effect: its successor may be among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeldBackBy {
    /// It does not serve, or is lost.
    None,
    /// It is more than its pool needs.
    OwnPool,
    /// It is replaced: prefill and decode are, in step.
    AnyPool,
}

// === impl HeldBackBy ===

impl HeldBackBy {
    pub(crate) fn of(facts: &PodFacts, resources: Option<&Resources>) -> Self {
        let serves = facts.ready() && facts.routable();
        if !serves || facts.disposition == NodeDisposition::Lost {
            return Self::None;
        }
        let pool = resources.zip(facts.component.pool_role());
        let wanted = pool.map(|(resources, role)| &resources.pool(role).revision);
        let is_as_wanted = facts.disposition == NodeDisposition::Keep
            && !facts.holds_old_token
            && wanted == Some(&facts.revision());
        if is_as_wanted {
            Self::OwnPool
        } else {
            Self::AnyPool
        }
    }

    /// Whether a worker stays while those of these components are not admitted.
    pub(crate) fn holds_back(self, worker: Component, unadmitted: &[Component]) -> bool {
        match self {
            Self::None => false,
            Self::OwnPool => unadmitted.contains(&worker),
            Self::AnyPool => !unadmitted.is_empty(),
        }
    }
}
