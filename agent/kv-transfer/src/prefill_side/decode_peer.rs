//! Prefill's view of one registered decode rank. A peer that is lost stays lost: its rooms fail, its
//! connections close, and decode registers again as a new peer, so nothing half-broken is reused.

use crate::shared::Shared;
use crate::transport::outbound::Outbound;
use crate::transport::outgoing::OutboundPeer;
use pd_identity::PeerId;
use pd_protocol::control::SessionId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) struct DecodePeer {
    pub(crate) remote: Arc<OutboundPeer>,
    pub(crate) outbound: Outbound,
    /// The process that registered, where peers have a key: all of the session comes from it.
    pub(crate) process: Option<PeerId>,
    /// The liveness connection is open.
    attached: AtomicBool,
}

// === impl DecodePeer ===

impl DecodePeer {
    pub(crate) fn new(shared: &Arc<Shared>, remote: OutboundPeer, process: Option<PeerId>) -> Self {
        let remote = Arc::new(remote);
        Self {
            outbound: Outbound::new(Arc::clone(shared), Arc::clone(&remote)),
            remote,
            process,
            attached: AtomicBool::new(false),
        }
    }

    pub(crate) fn id(&self) -> &SessionId {
        self.remote.id()
    }

    pub(crate) fn attach(&self) {
        self.attached.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_attached(&self) -> bool {
        self.attached.load(Ordering::Relaxed)
    }
}
