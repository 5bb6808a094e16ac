//! Prefill's view of one registered decode rank. A session that failed once is over: its rooms fail,
//! its connections close, and decode registers again, so nothing half-broken is reused.

use crate::control::socket::{Outbox, SendError};
use crate::failure::FailureReason;
use crate::metrics::PeerMetrics;
use crate::peer_connection::{self, ConnectionKind};
use crate::plan::TransferPlan;
use crate::prefill_side::PrefillSide;
use crate::transport::rdma::fabric::Fabric;
use crate::transport::rdma::writer::{Event, Job, WriterHandle};
use crate::transport::tcp::writer::{self, FrameJob, FrameQueue};
use parking_lot::Mutex;
use pd_protocol::control::{ControlMessage, KvArgsRegisterInfo, NicInfo, SessionId};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Frames that wait for the streams: 64 GiB of full ones. A room beyond that fails.
const FRAMES_MAX: usize = 16_384;

pub(crate) struct DecodePeer {
    pub(crate) info: KvArgsRegisterInfo,
    pub(crate) plan: Arc<TransferPlan>,
    pub(crate) lost: CancellationToken,
    pub(crate) metrics: PeerMetrics,
    outbox: Outbox,
    /// The liveness link has come.
    attached: AtomicBool,
    frames: mpsc::Sender<FrameJob>,
    /// Taken by the first room that goes over tcp.
    streams: Mutex<Option<FrameQueue>>,
    /// Once decode has asked for rails.
    rdma: OnceLock<WriterHandle>,
}

impl DecodePeer {
    pub(crate) fn new(
        info: KvArgsRegisterInfo,
        plan: TransferPlan,
        outbox: Outbox,
        metrics: PeerMetrics,
    ) -> Self {
        let (frames, queue) = mpsc::channel(FRAMES_MAX);
        let queue = Arc::new(tokio::sync::Mutex::new(queue));
        Self {
            info,
            plan: Arc::new(plan),
            lost: CancellationToken::new(),
            metrics,
            outbox,
            attached: AtomicBool::new(false),
            frames,
            streams: Mutex::new(Some(queue)),
            rdma: OnceLock::new(),
        }
    }

    pub(crate) fn id(&self) -> &SessionId {
        &self.info.session_id
    }

    pub(crate) fn attach(&self) {
        self.attached.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_attached(&self) -> bool {
        self.attached.load(Ordering::Relaxed)
    }

    pub(crate) fn send(&self, message: &ControlMessage) -> Result<(), SendError> {
        self.outbox.send(message)
    }

    /// Waits until the control connection is closed.
    pub(crate) async fn control_closed(&self) {
        self.outbox.closed().await;
    }

    /// Queues a frame; false if too many wait.
    pub(crate) fn push(&self, job: FrameJob) -> bool {
        self.frames.try_send(job).is_ok()
    }

    /// Queues a chunk to be written over rdma; false if too many wait, or decode never asked for rails.
    pub(crate) fn write(&self, job: Job) -> bool {
        self.rdma.get().is_some_and(|rdma| rdma.write(job))
    }

    /// Notifies the task of the rails; false without one.
    pub(crate) fn notify_rails(&self, event: Event) -> bool {
        self.rdma.get().is_some_and(|rdma| rdma.notify(event))
    }

    /// Offers rails, once, within the runtime.
    pub(crate) fn start_rails(
        self: &Arc<Self>,
        side: &Arc<PrefillSide>,
        fabric: &Arc<Fabric>,
        nics: &[NicInfo],
    ) {
        self.rdma
            .get_or_init(|| WriterHandle::start(side, self, fabric, nics));
    }

    /// Opens the data connections, once, within the runtime.
    pub(crate) fn start_streams(self: &Arc<Self>, side: &Arc<PrefillSide>) {
        let Some(frames) = self.streams.lock().take() else {
            return;
        };
        for _ in 0..side.shared.config.transfer.tcp_streams.max(1) {
            let (session, side) = (Arc::clone(self), Arc::clone(side));
            let frames = Arc::clone(&frames);
            let tasks = side.shared.tasks.clone();
            tasks.spawn("data connection", async move {
                let stream = session.stream(frames, &side);
                tokio::select! {
                    ended = stream => {
                        if let Err(error) = ended {
                            let to = (&session.info.endpoint, session.info.data_port);
                            let message = format!("data connection to {}:{}: {error}", to.0, to.1);
                            side.lose(&session, &FailureReason::network(message));
                        }
                    }
                    () = session.lost.cancelled() => {}
                }
            });
        }
    }

    async fn stream(&self, frames: FrameQueue, side: &PrefillSide) -> std::io::Result<()> {
        let KvArgsRegisterInfo {
            endpoint,
            data_port,
            session_id,
            ..
        } = &self.info;
        let stream =
            peer_connection::connect(endpoint, *data_port, ConnectionKind::Data, session_id)
                .await?;
        writer::run(stream, &frames, (&self.plan, side), &self.metrics).await
    }
}
