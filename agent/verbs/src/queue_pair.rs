//! Reliable connections as a state machine of types.
//!
//! `Reset` → [`Init`], on a port → [`Rtr`], which knows its peer and receives → [`Rts`], which also
//! sends. Any of them → [`Error`], which flushes its requests. A state has the operations that a
//! device allows in it, and each step consumes the previous one. A failing request moves the
//! device's queue pair to its error state by itself: the completion reports it, posts still
//! succeed, and every request is flushed.
//!
//! Dropping a queue pair destroys it: the device then neither sends nor accepts for it.

mod core;
mod post;

pub use post::PostError;

use self::core::Core;
use crate::completion::{Account, CompletionQueue, DepthError, Direction};
use crate::endpoint::{Endpoint, psn};
use crate::error::CallError;
use crate::ffi;
use crate::memory::ProtectionDomain;
use crate::path::{self, PathError, PathOptions, Retry};
use crate::port::LocalPort;
use crate::work_request::Chain;

/// 0.64 ms: how long a peer waits before it resends an immediate that found no receive.
const RNR_TIMER: u8 = 12;
/// Writes need none, but devices refuse zero.
const READS_IN_FLIGHT: u8 = 1;

/// Sizes of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairOptions {
    /// Writes that the device may hold; 0 for an end that never writes.
    pub send_depth: u32,
    /// Immediates that may arrive before new receives are posted; 0 for an end that only writes.
    pub receive_depth: u32,
    /// Local ranges that one write may gather.
    pub ranges_max: u32,
    /// Writes up to this many bytes are copied into the request, which saves the device a read. The
    /// device may grant less, or none.
    pub inline_bytes: u32,
}

/// A reliable connection's end in state `S`.
pub struct QueuePair<S> {
    core: Core,
    state: S,
}

/// It has its queues, but no port.
pub struct Reset(());
/// It has a port; receives may be posted.
#[derive(Clone)]
pub struct Init {
    local: LocalPort,
    psn: u32,
}
/// It knows its peer and accepts its writes.
pub struct Rtr {
    local: LocalPort,
    psn: u32,
}
/// It also writes.
pub struct Rts {
    chain: Chain,
    message_bytes_max: u32,
}
/// All its requests are flushed, each with a completion.
pub struct Error(());

/// A state in which receives may be posted.
pub trait Receives: sealed::Sealed {}
impl Receives for Init {}
impl Receives for Rtr {}
impl Receives for Rts {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Init {}
    impl Sealed for super::Rtr {}
    impl Sealed for super::Rts {}
}

/// Why a queue pair was not created.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CreateError {
    #[error(transparent)]
    Depth(#[from] DepthError),
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Why two ends were not connected.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConnectError {
    #[error(transparent)]
    Path(#[from] PathError),
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Two ends were not connected.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Unconnected {
    pub error: ConnectError,
    /// The unchanged queue pair, if resolving the peer's address timed out
    /// ([`CallError::is_unresolved`]): connecting may be retried. Otherwise it is gone.
    pub end: Option<Box<QueuePair<Init>>>,
}

// === impl QueuePair ===

impl QueuePair<Reset> {
    /// A queue pair whose writes complete on `send` and whose immediates arrive on `receive`; both
    /// may be the same queue.
    ///
    /// # Errors
    /// A completion queue has no room for it, or the device refuses its sizes.
    pub fn new(
        domain: &ProtectionDomain,
        send: &CompletionQueue,
        receive: &CompletionQueue,
        options: QueuePairOptions,
    ) -> Result<Self, CreateError> {
        let send = Account::open(send, Direction::Send, options.send_depth)?;
        let receive = Account::open(receive, Direction::Receive, options.receive_depth)?;
        let core = Core::new(domain, send, receive, options)?;
        let state = Reset(());
        Ok(Self { core, state })
    }

    /// Binds it to a port. `random` becomes the number of its first packet, which must differ
    /// between lives of a connection, so that packets of an old one are not accepted.
    /// # Errors
    /// The device refuses or does not respond; the queue pair is then gone.
    pub fn init(self, local: &LocalPort, random: u32) -> Result<QueuePair<Init>, CallError> {
        let mut attr = ffi::QpAttr {
            qp_state: ffi::IBV_QPS_INIT,
            qp_access_flags: ffi::IBV_ACCESS_REMOTE_WRITE,
            port_num: local.number,
            ..ffi::QpAttr::default()
        };
        let mask = ffi::IBV_QP_STATE
            | ffi::IBV_QP_PKEY_INDEX
            | ffi::IBV_QP_PORT
            | ffi::IBV_QP_ACCESS_FLAGS;
        self.core.modify(&mut attr, mask, "to INIT")?;
        let state = Init {
            local: local.clone(),
            psn: psn(random),
        };
        Ok(self.with(state))
    }
}

impl QueuePair<Init> {
    /// What the peer needs to know about this end.
    pub fn endpoint(&self) -> Endpoint {
        let Init { local, psn } = &self.state;
        Endpoint {
            qp_num: self.qp_num(),
            psn: *psn,
            lid: local.lid,
            gid: local.gid,
            mtu: local.mtu,
        }
    }

    /// Connects it to its peer; from now on it accepts that peer's writes.
    ///
    /// # Errors
    /// There is no route to the peer, the device refuses, or the peer's address is not resolved
    /// yet.
    pub fn connect(
        self,
        remote: &Endpoint,
        options: PathOptions,
    ) -> Result<QueuePair<Rtr>, Unconnected> {
        match self.receive_from(remote, options) {
            Ok(()) => {
                let Init { local, psn } = self.state.clone();
                Ok(self.with(Rtr { local, psn }))
            }
            // The address is resolved before the device is called, so the queue pair has not
            // changed.
            Err(ConnectError::Call(error)) if error.is_unresolved() => Err(Unconnected {
                error: error.into(),
                end: Some(Box::new(self)),
            }),
            Err(error) => Err(Unconnected { error, end: None }),
        }
    }

    fn receive_from(&self, remote: &Endpoint, options: PathOptions) -> Result<(), ConnectError> {
        let local = &self.state.local;
        let mut attr = ffi::QpAttr {
            qp_state: ffi::IBV_QPS_RTR,
            path_mtu: path::path_mtu(local, remote).code(),
            rq_psn: remote.psn,
            dest_qp_num: remote.qp_num,
            ah_attr: path::address(local, remote, options)?,
            max_dest_rd_atomic: READS_IN_FLIGHT,
            min_rnr_timer: RNR_TIMER,
            ..ffi::QpAttr::default()
        };
        let mask = ffi::IBV_QP_STATE
            | ffi::IBV_QP_AV
            | ffi::IBV_QP_PATH_MTU
            | ffi::IBV_QP_DEST_QPN
            | ffi::IBV_QP_RQ_PSN
            | ffi::IBV_QP_MAX_DEST_RD_ATOMIC
            | ffi::IBV_QP_MIN_RNR_TIMER;
        let step = format!(
            "to RTR, towards {} queue pair {}",
            remote.gid, remote.qp_num
        );
        Ok(self.core.modify(&mut attr, mask, &step)?)
    }
}

impl QueuePair<Rtr> {
    /// Allows it to write, once the peer is connected as well.
    ///
    /// # Errors
    /// The device refuses or does not respond; the queue pair is then gone.
    pub fn start(self, retry: Retry) -> Result<QueuePair<Rts>, CallError> {
        let mut attr = ffi::QpAttr {
            qp_state: ffi::IBV_QPS_RTS,
            sq_psn: self.state.psn,
            timeout: retry.ack_timeout,
            retry_cnt: retry.retries,
            rnr_retry: retry.rnr_retries,
            max_rd_atomic: READS_IN_FLIGHT,
            ..ffi::QpAttr::default()
        };
        let mask = ffi::IBV_QP_STATE
            | ffi::IBV_QP_SQ_PSN
            | ffi::IBV_QP_TIMEOUT
            | ffi::IBV_QP_RETRY_CNT
            | ffi::IBV_QP_RNR_RETRY
            | ffi::IBV_QP_MAX_QP_RD_ATOMIC;
        self.core.modify(&mut attr, mask, "to RTS")?;
        let state = Rts {
            chain: Chain::default(),
            message_bytes_max: self.state.local.message_bytes_max,
        };
        Ok(self.with(state))
    }
}

impl<S> QueuePair<S> {
    /// Its number on this device.
    pub fn qp_num(&self) -> u32 {
        self.core.qp_num()
    }

    /// Bytes that go inline; 0 if the device has no inline data.
    pub fn inline_bytes(&self) -> u32 {
        self.core.inline_bytes_max
    }

    /// Writes that the device holds.
    pub fn outstanding(&self) -> u32 {
        self.core.send.queue().lock().outstanding()
    }

    /// Receives that wait for an immediate.
    pub fn receives_posted(&self) -> u32 {
        self.core.receive.queue().lock().outstanding()
    }

    /// Ends it: every pending request completes with `IBV_WC_WR_FLUSH_ERR`, and nothing more is
    /// accepted from the peer.
    ///
    /// # Errors
    /// The device does not respond; the queue pair is then gone.
    pub fn fail(self) -> Result<QueuePair<Error>, CallError> {
        let mut attr = ffi::QpAttr {
            qp_state: ffi::IBV_QPS_ERR,
            ..ffi::QpAttr::default()
        };
        self.core.modify(&mut attr, ffi::IBV_QP_STATE, "to ERR")?;
        Ok(self.with(Error(())))
    }

    fn with<T>(self, state: T) -> QueuePair<T> {
        QueuePair {
            core: self.core,
            state,
        }
    }
}

impl<S> std::fmt::Debug for QueuePair<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "QueuePair({})", self.core.object())
    }
}

#[cfg(test)]
mod tests;
