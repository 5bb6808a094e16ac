//! Asks a prefill rank for rails and waits for the first that carries.

use super::receiver::RdmaReceiver;
use crate::control::socket::Outbox;
use pd_protocol::control::{ControlMessage, NicInfo, RailsWanted};
use std::time::Duration;
use tokio::time::timeout;

/// A rail that does not carry is found in two seconds; then negotiation falls back.
const RAILS_TIMEOUT: Duration = Duration::from_secs(5);

/// # Errors
/// Why none of them carries.
pub(crate) async fn open(
    rails: &RdmaReceiver,
    outbox: &Outbox,
    resend: Duration,
) -> Result<(), String> {
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
