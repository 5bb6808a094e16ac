//! What a status is made of beside the pods.

use crate::weights::Progress;
use k8s_openapi::jiff::Timestamp;
use pd_crds::status::{Decision, ModelStatus};
use pd_crds::stuck::Stuck;

/// What the status says beside the pods.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StatusInputs {
    /// Routers that are ready, of those wanted.
    pub(crate) routers: (i32, i32),
    pub(crate) endpoint: String,
    /// Revision of both pools together that the spec asks for.
    pub(crate) revision: String,
    pub(crate) suspended: bool,
    /// Why the spec's last edit is not carried out, and the one before is.
    pub(crate) refused: Option<String>,
    /// The model that the spec's last edit has fetched, or is fetched for it.
    pub(crate) model: Option<ModelStatus>,
    /// Which workers run another image than new ones would.
    pub(crate) drifted: Option<String>,
    /// Whether a router runs that is not as the spec wants it.
    pub(crate) replaces_routers: bool,
    /// What the last writes ran into; nothing if all went well.
    pub(crate) trouble: Option<String>,
    /// What keeps the first pod that does not start from starting.
    pub(crate) stuck: Option<Stuck>,
    /// What holds up a gang of which only some pods have nodes, or that gave these back.
    pub(crate) half_placed: Option<String>,
    /// Why a worker that runs is not admitted: its KV reaches no peer.
    pub(crate) unpaired: Option<String>,
    /// The last decisions of the autoscaler.
    pub(crate) decisions: Vec<Decision>,
    /// Whether requests wait for slots of recurrent state while pages are free; nothing where that is not known, or the
    /// model has none.
    pub(crate) lacks_slots: Option<bool>,
    /// When something last went forward.
    pub(crate) progressed: Option<Timestamp>,
    /// How far the replacement of its peer keys is, where one was asked for.
    pub(crate) rotation: Option<KeyRotation>,
    /// How far workers are with the weights of the spec, where it names some.
    pub(crate) weights: Option<Progress>,
    /// What guards the ports of workers that do not know their peers.
    pub(crate) guard: Option<Guard>,
}

/// Who is kept from ports on which workers admit everybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// All but the deployment's own pods, by a network policy.
    OwnPolicy,
    /// None: no policies are made.
    Nothing,
    /// None: a policy does not see pods that share their node's network.
    NothingOnNodes,
}

/// How far the peer keys' replacement is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyRotation {
    Done(String),
    UnderWay(String),
    /// It goes on once someone has acted.
    Held(String),
}

// === impl StatusInputs ===

impl StatusInputs {
    /// What keeps a worker from serving, in the words of the component that knows.
    pub(super) fn obstacle(&self) -> Option<&str> {
        let stuck = self.stuck.as_ref().map(|stuck| stuck.message.as_str());
        let half_placed = self.half_placed.as_deref();
        half_placed.or(stuck).or(self.unpaired.as_deref())
    }
}
