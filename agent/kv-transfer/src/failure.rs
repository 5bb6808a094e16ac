//! Why a room failed: the layer that failed and a sentence for people.

use crate::memory::RegionError;
use pd_protocol::BootstrapRoom;
use serde::{Deserialize, Serialize};

/// Where a failure arose, so that its reader knows whom to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureLayer {
    /// Memory or device of this process.
    Device,
    /// A connection was refused, broke or stalled.
    Network,
    /// The other side said so, died or restarted.
    Peer,
    /// The caller aborted, misused a room, or asked for a test failure.
    Application,
}

/// Reported once per room and side, beside `KvPoll::Failed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{layer}: {message}")]
pub struct FailureReason {
    pub layer: FailureLayer,
    pub message: String,
}

impl FailureReason {
    pub fn new(layer: FailureLayer, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { layer, message }
    }

    pub(crate) fn device(message: impl Into<String>) -> Self {
        Self::new(FailureLayer::Device, message)
    }

    pub(crate) fn network(message: impl Into<String>) -> Self {
        Self::new(FailureLayer::Network, message)
    }

    pub(crate) fn peer(message: impl Into<String>) -> Self {
        Self::new(FailureLayer::Peer, message)
    }

    pub(crate) fn application(message: impl Into<String>) -> Self {
        Self::new(FailureLayer::Application, message)
    }

    /// Bytes of a room could not be copied: the device refuses, or what the peer has does not fit.
    pub(crate) fn copy(room: BootstrapRoom, error: &RegionError) -> Self {
        let layer = match error {
            RegionError::Device { .. } | RegionError::System { .. } => FailureLayer::Device,
            RegionError::FileTooShort { .. }
            | RegionError::NotSealed
            | RegionError::OutOfRange { .. }
            | RegionError::OtherKind { .. } => FailureLayer::Peer,
        };
        Self::new(layer, format!("room {room}: {error}"))
    }

    pub(crate) fn aborted(room: BootstrapRoom) -> Self {
        Self::application(format!("room {room} was aborted by its request"))
    }
}

impl FailureLayer {
    pub(crate) const ALL: [Self; 4] = [Self::Device, Self::Network, Self::Peer, Self::Application];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Network => "network",
            Self::Peer => "peer",
            Self::Application => "application",
        }
    }
}

impl std::fmt::Display for FailureLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
