//! Decode's rails by session: it asks a prefill rank for them, waits for the first that carries, and passes
//! on what prefill says of them.

use super::receiver::{RdmaReceiver, refusal};
use crate::control::outbox::Outbox;
use crate::metrics::PeerMetrics;
use crate::shared::Shared;
use parking_lot::Mutex;
use pd_protocol::control::{
    ControlMessage, NicInfo, RailClosed, RailDown, RailOffer, RailsWanted, SessionId,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// A rail that does not carry is found in two seconds; then negotiation falls back.
const RAILS_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct RailSessions {
    shared: Arc<Shared>,
    /// From when rails are wanted, with the control queue to their prefill.
    open: Mutex<HashMap<SessionId, (Arc<RdmaReceiver>, Outbox)>>,
}

// === impl RailSessions ===

impl RailSessions {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            open: Mutex::default(),
        }
    }

    /// What opens rails to a prefill rank; `None` where this side has no NICs.
    pub(crate) fn opener(
        &self,
        id: &SessionId,
        outbox: &Outbox,
        metrics: &Arc<PeerMetrics>,
    ) -> Option<impl Future<Output = Result<Arc<RdmaReceiver>, String>>> {
        let fabric = self.shared.fabric.clone()?;
        let rails = RdmaReceiver::new(fabric, id.clone(), Arc::clone(metrics));
        let resend = self.shared.config.transfer.resend_interval;
        Some(async move {
            let entry = (Arc::clone(&rails), outbox.clone());
            self.open.lock().insert(id.clone(), entry);
            let opened = open(&rails, outbox, resend).await;
            opened.inspect_err(|_| self.close(id))?;
            Ok(rails)
        })
    }

    /// Ends a session's rails: nothing of them can land after this.
    pub(crate) fn close(&self, id: &SessionId) {
        let known = self.open.lock().remove(id);
        if let Some((rails, _)) = known {
            rails.close();
        }
    }

    /// Prefill offers a rail; `outbox` is the session's, if there is one.
    pub(crate) fn on_offer(&self, offer: RailOffer, outbox: Option<&Outbox>) {
        let known = self.open.lock().get(&offer.session_id).cloned();
        if let Some((rails, outbox)) = known {
            return rails.on_offer(&self.shared.tasks, offer, outbox);
        }
        if let Some(outbox) = outbox {
            let refused = refusal(&offer, "decode wants no rails".to_owned());
            // Offered again if this is lost.
            let _ = outbox.send(&ControlMessage::RailAnswer(refused));
        }
    }

    /// Prefill has given up a rail; `outbox` as above.
    pub(crate) fn on_down(&self, down: RailDown, outbox: Option<&Outbox>) {
        let known = self.open.lock().get(&down.session_id).cloned();
        let closed = |down: RailDown| RailClosed {
            session_id: down.session_id,
            rail: down.rail,
            epoch: down.epoch,
            waiting: Vec::new(),
        };
        // Said again by prefill if the answer is lost.
        if let Some((rails, outbox)) = known {
            let _ = outbox.send(&ControlMessage::RailClosed(rails.on_down(down)));
        } else if let Some(outbox) = outbox {
            let _ = outbox.send(&ControlMessage::RailClosed(closed(down)));
        }
    }
}

/// Asks for rails until the first carries.
///
/// # Errors
/// Why none of them carries.
async fn open(rails: &RdmaReceiver, outbox: &Outbox, resend: Duration) -> Result<(), String> {
    let session_id = rails.session_id();
    let wanted = |nics: Vec<NicInfo>| {
        ControlMessage::RailsWanted(RailsWanted {
            session_id: session_id.clone(),
            nics,
        })
    };
    let mut status = rails.status();
    let first = async {
        loop {
            let asked = outbox.send(&wanted(rails.nics()));
            asked.map_err(|error| error.to_string())?;
            let decided =
                status.wait_for(|status| status.is_up || status.no_rail_possible().is_some());
            if let Ok(Ok(status)) = timeout(resend, decided).await {
                return status.no_rail_possible().map_or(Ok(()), Err);
            }
        }
    };
    let silent = || Err(format!("no rail came up in {RAILS_TIMEOUT:?}"));
    let opened = timeout(RAILS_TIMEOUT, first).await;
    let opened = opened.unwrap_or_else(|_| silent());
    if let Err(why) = opened {
        rails.close();
        // Prefill finds out by itself if this is lost.
        let _ = outbox.send(&wanted(Vec::new()));
        return Err(why);
    }
    Ok(())
}
