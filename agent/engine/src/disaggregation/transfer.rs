//! `Transfer`: an ended request's end of its KV transfer, on either side.

use pd_kv_transfer::{FailureReason, KvReceiver, KvSender};

pub(crate) enum Transfer {
    Sender(KvSender),
    Receiver(KvReceiver),
}

// === impl Transfer ===

impl Transfer {
    pub(crate) fn abort(&self) {
        match self {
            Self::Sender(sender) => sender.abort(),
            Self::Receiver(receiver) => receiver.abort(),
        }
    }

    /// No peer can touch the request's memory any more.
    pub(crate) fn released(&self) -> bool {
        match self {
            Self::Sender(sender) => sender.released(),
            Self::Receiver(receiver) => receiver.released(),
        }
    }
}

impl From<KvSender> for Transfer {
    fn from(sender: KvSender) -> Self {
        Self::Sender(sender)
    }
}

impl From<KvReceiver> for Transfer {
    fn from(receiver: KvReceiver) -> Self {
        Self::Receiver(receiver)
    }
}

/// Why a transfer polls as `Failed`, as a message.
pub(crate) fn failure(reason: Option<FailureReason>) -> String {
    reason.map_or_else(
        || "the KV transfer failed".to_owned(),
        |reason| format!("the KV transfer failed: {reason}"),
    )
}
