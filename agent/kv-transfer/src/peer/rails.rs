//! Asks a prefill rank for rails and waits for the first that carries.

use crate::backend::rdma::receiver::RdmaReceiver;
use crate::control::socket::Outbox;
use crate::decode_side::DecodeSide;
use pd_protocol::control::{ControlMessage, NicInfo, RailsWanted};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// A rail that does not carry is known to in two seconds; then another way is taken.
const RAILS_TIMEOUT: Duration = Duration::from_secs(5);

/// # Errors
/// Why none of them carries.
pub(super) async fn open(
    side: Arc<DecodeSide>,
    rails: Arc<RdmaReceiver>,
    outbox: Outbox,
) -> Result<Arc<RdmaReceiver>, String> {
    let session_id = rails.session_id();
    side.enter_rails(session_id, &rails, &outbox);
    let wanted = |nics: Vec<NicInfo>| {
        ControlMessage::RailsWanted(RailsWanted {
            session_id: session_id.clone(),
            nics,
        })
    };
    let resend = side.shared.config.transfer.resend_interval;
    let mut news = rails.news();
    let first = async {
        loop {
            let asked = outbox.send(&wanted(rails.nics()));
            asked.map_err(|error| error.to_string())?;
            let decided = news.wait_for(|news| news.is_up || news.hopeless().is_some());
            if let Ok(Ok(news)) = timeout(resend, decided).await {
                return news.hopeless().map_or(Ok(()), Err);
            }
        }
    };
    let silent = || Err(format!("no rail came up in {RAILS_TIMEOUT:?}"));
    let opened = timeout(RAILS_TIMEOUT, first).await;
    let opened = opened.unwrap_or_else(|_| silent());
    if let Err(why) = opened {
        side.close_rails(session_id);
        // Prefill finds out by itself if this is lost.
        let _ = outbox.send(&wanted(Vec::new()));
        return Err(why);
    }
    Ok(rails)
}
