//! Chooses a pair's transport: shared memory where both sides want it and it works, else their NICs,
//! else tcp. Where none is left, the error names what each side has and the flag that decides it.

use crate::config::TransportChoice;
use crate::memory::Region;
use crate::transport::rdma::receiver::RdmaReceiver;
use crate::transport::shm::mapping::ShmMapping;
use crate::transport_report::PeerTransport;
use pd_protocol::Transport;
use pd_protocol::control::RegisterAck;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

/// The transport that was chosen, open.
pub(crate) enum NegotiatedTransport {
    Shm(ShmMapping),
    Rdma(Arc<RdmaReceiver>),
    Tcp,
}

// === impl NegotiatedTransport ===

impl NegotiatedTransport {
    pub(crate) fn transport(&self) -> Transport {
        match self {
            Self::Shm(_) => Transport::Shm,
            Self::Rdma(_) => Transport::Rdma,
            Self::Tcp => Transport::Tcp,
        }
    }

    /// As `/server_info` shows it.
    pub(crate) fn report(&self, fallback_reason: &str) -> PeerTransport {
        let nics = match self {
            Self::Rdma(rails) => rails.nics(),
            Self::Shm(_) | Self::Tcp => Vec::new(),
        };
        PeerTransport {
            transport: self.transport(),
            fallback_reason: fallback_reason.trim_start_matches("; ").to_owned(),
            nics: nics.into_iter().map(|nic| nic.device).collect(),
        }
    }
}

/// Known as soon as prefill has answered, so that neither side waits for a transfer that cannot start.
#[derive(Debug, thiserror::Error)]
#[error(
    "no transport in common: prefill offers [{offered}], decode takes [{taken}]{fallback_reason}; start both \
     with --disaggregation-transfer-backend auto"
)]
pub(crate) struct NoCommonTransport {
    offered: String,
    taken: String,
    /// Of those that both have.
    fallback_reason: String,
}

/// `own` is the memory that bytes go to, with the directory of sockets; `prefill` names the other side in the log; `open_rails`, where this
/// side has NICs, asks it for rails. With the transport comes why no faster one works of what both have.
///
/// # Errors
/// When nothing that decode takes is offered, or nothing of that works.
pub(crate) async fn choose<F>(
    wanted: TransportChoice,
    ack: &RegisterAck,
    (own, shm_dir): (&[Region], Option<&Path>),
    prefill: &str,
    open_rails: Option<F>,
) -> Result<(NegotiatedTransport, String), NoCommonTransport>
where
    F: Future<Output = Result<Arc<RdmaReceiver>, String>>,
{
    let has_nics = open_rails.is_some();
    let mut fallback_reason = String::new();
    let note = |fallback_reason: &mut String, name: &str, why: &str| {
        tracing::info!(prefill, why, "transport {name} does not work");
        // Writing to a string cannot fail.
        let _ = write!(fallback_reason, "; {name} does not work: {why}");
    };
    if let (true, Some(offer)) = (wanted.allows(Transport::Shm), &ack.shm) {
        match ShmMapping::open(offer, &ack.layout, own, shm_dir).await {
            Ok(mapping) => {
                tracing::info!(prefill, "transport shm: same host and user");
                return Ok((NegotiatedTransport::Shm(mapping), fallback_reason));
            }
            Err(error) => note(&mut fallback_reason, "shm", &error.to_string()),
        }
    }
    if let (true, true, Some(open)) = (wanted.allows(Transport::Rdma), ack.rdma, open_rails) {
        match open.await {
            Ok(rails) => {
                tracing::info!(prefill, "transport rdma: a write has come over a rail");
                return Ok((NegotiatedTransport::Rdma(rails), fallback_reason));
            }
            Err(why) => note(&mut fallback_reason, "rdma", &why),
        }
    }
    let offered = names(|transport| ack.offers(transport));
    if ack.tcp && wanted.allows(Transport::Tcp) {
        tracing::info!(prefill, offered, "transport tcp");
        return Ok((NegotiatedTransport::Tcp, fallback_reason));
    }
    let taken = names(|transport| match transport {
        Transport::Rdma => has_nics && wanted.allows(transport),
        Transport::Shm | Transport::Tcp => wanted.allows(transport),
    });
    Err(NoCommonTransport {
        offered,
        taken,
        fallback_reason,
    })
}

fn names(has: impl Fn(Transport) -> bool) -> String {
    let there = Transport::ALL.into_iter().filter(|each| has(*each));
    there.map(Transport::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
