//! Which way a pair's bytes take: shared memory where both sides want it and it works, else their NICs,
//! else tcp. Where none is left, the error names what each side has and the flag that decides it.

use crate::backend::rdma::receiver::RdmaReceiver;
use crate::backend::shm::mapping::ShmMapping;
use crate::config::Transport;
use crate::memory::Region;
use pd_protocol::control::RegisterAck;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

/// The way that was chosen, open.
pub(super) enum Way {
    Shm(ShmMapping),
    Rdma(Arc<RdmaReceiver>),
    Tcp,
}

// === impl Way ===

impl Way {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Shm(_) => "shm",
            Self::Rdma(_) => "rdma",
            Self::Tcp => "tcp",
        }
    }
}

/// Known as soon as prefill has answered; both sides would wait in vain.
#[derive(Debug, thiserror::Error)]
#[error(
    "no transport in common: prefill offers [{offered}], decode takes [{taken}]{why_not}; start both \
     with --disaggregation-transfer-backend auto"
)]
pub(super) struct NoCommonTransport {
    offered: String,
    taken: String,
    /// Of those that both have.
    why_not: String,
}

/// `own` is the memory that bytes go to, with the directory of sockets; `prefill` names the other side in the log; `open_rails`, where this
/// side has NICs, asks it for rails. With the way comes why nothing better works of what both have.
///
/// # Errors
/// When nothing that decode takes is offered, or nothing of that works.
pub(super) async fn choose<F>(
    wanted: Transport,
    ack: &RegisterAck,
    (own, shm_dir): (&[Region], Option<&Path>),
    prefill: &str,
    open_rails: Option<F>,
) -> Result<(Way, String), NoCommonTransport>
where
    F: Future<Output = Result<Arc<RdmaReceiver>, String>>,
{
    let has_nics = open_rails.is_some();
    let mut why_not = String::new();
    let note = |why_not: &mut String, name: &str, why: &str| {
        tracing::info!(prefill, why, "transport {name} does not work");
        // Writing to a string cannot fail.
        let _ = write!(why_not, "; {name} does not work: {why}");
    };
    if let (Transport::Auto | Transport::Shm, Some(offer)) = (wanted, &ack.shm) {
        match ShmMapping::open(offer, &ack.layout, own, shm_dir).await {
            Ok(mapping) => {
                tracing::info!(prefill, "transport shm: same host and user");
                return Ok((Way::Shm(mapping), why_not));
            }
            Err(error) => note(&mut why_not, "shm", &error.to_string()),
        }
    }
    if let (Transport::Auto | Transport::Rdma, true, Some(open)) = (wanted, ack.rdma, open_rails) {
        match open.await {
            Ok(rails) => {
                tracing::info!(prefill, "transport rdma: a write has come over a rail");
                return Ok((Way::Rdma(rails), why_not));
            }
            Err(why) => note(&mut why_not, "rdma", &why),
        }
    }
    let offered = names(ack.shm.is_some(), ack.rdma, ack.tcp);
    if ack.tcp && matches!(wanted, Transport::Auto | Transport::Tcp) {
        tracing::info!(prefill, offered, "transport tcp");
        return Ok((Way::Tcp, why_not));
    }
    let taken = match wanted {
        Transport::Auto => names(true, has_nics, true),
        Transport::Shm => names(true, false, false),
        Transport::Rdma => names(false, has_nics, false),
        Transport::Tcp => names(false, false, true),
        Transport::Fake => String::new(),
    };
    Err(NoCommonTransport {
        offered,
        taken,
        why_not,
    })
}

fn names(shm: bool, rdma: bool, tcp: bool) -> String {
    let all = [(shm, "shm"), (rdma, "rdma"), (tcp, "tcp")];
    let there = all.into_iter().filter(|(is_there, _)| *is_there);
    there.map(|(_, name)| name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
