//! Which way a pair's bytes take: shared memory where both sides want it and it works, else tcp.
//! Where neither is left, the error names what each side has and the flag that decides it.

use crate::backend::shm::mapping::ShmMapping;
use crate::config::Transport;
use pd_protocol::control::RegisterAck;
use pd_protocol::control::transfer_info::TransferMode;

/// Known as soon as prefill has answered; both sides would wait in vain.
#[derive(Debug, thiserror::Error)]
#[error(
    "no transport in common: prefill offers [{offered}], decode takes [{taken}]{why_not_shm}; \
     start both with --disaggregation-transfer-backend auto"
)]
pub(super) struct NoCommonTransport {
    offered: &'static str,
    taken: &'static str,
    /// Set if both have it.
    why_not_shm: String,
}

/// `prefill` names the other side in the log.
///
/// # Errors
/// When nothing that decode takes is offered, or only shared memory is and it does not work.
pub(super) async fn choose(
    wanted: Transport,
    ack: &RegisterAck,
    prefill: &str,
) -> Result<(TransferMode, Option<ShmMapping>), NoCommonTransport> {
    let mut shm_error = None;
    if let (Transport::Auto | Transport::Shm, Some(offer)) = (wanted, &ack.shm) {
        match ShmMapping::open(offer, &ack.layout).await {
            Ok(mapping) => {
                tracing::info!(prefill, "transport shm: same host and user");
                return Ok((TransferMode::Shm, Some(mapping)));
            }
            Err(error) => shm_error = Some(error),
        }
    }
    let offered = names(ack.shm.is_some(), ack.tcp);
    if ack.tcp && matches!(wanted, Transport::Auto | Transport::Tcp) {
        let why = shm_error.map(|error| error.to_string());
        tracing::info!(prefill, offered, why, "transport tcp");
        return Ok((TransferMode::Tcp, None));
    }
    Err(NoCommonTransport {
        offered,
        taken: match wanted {
            Transport::Auto => names(true, true),
            Transport::Shm => names(true, false),
            Transport::Tcp => names(false, true),
            Transport::Fake => names(false, false),
        },
        why_not_shm: shm_error.map_or_else(String::new, |error| {
            format!(", and shm does not work: {error}")
        }),
    })
}

fn names(shm: bool, tcp: bool) -> &'static str {
    match (shm, tcp) {
        (true, true) => "shm, tcp",
        (true, false) => "shm",
        (false, true) => "tcp",
        (false, false) => "",
    }
}

#[cfg(test)]
mod tests;
