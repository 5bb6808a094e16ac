//! What all ranks of a worker agree on; SGLang's `poll_and_all_reduce`. A room is as far as the rank that is
//! least far, and failed if it failed on one of them, so that ranks never part ways. Ranks of the scheduler's
//! own process are polled by it; those of other nodes report each change over a connection of their own, and one
//! whose connection ends or falls silent has failed every room that had not ended.
//! Source: docs/sglang-protocol.md#rank-agreement.

mod report;

use crate::failure::FailureReason;
use crate::net::Stream;
use crate::peer_connection::{self, ConnectionKind};
use crate::shared::Shared;
use parking_lot::Mutex;
use pd_protocol::control::SessionId;
use pd_protocol::{BootstrapRoom, KvPoll};
use report::{Report, ReportError};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Rooms of one rank that have not been closed; a rank with more is broken.
const ROOMS_MAX: usize = 1 << 16;
/// Reports that wait for the connection; a rank that has more is cut off.
const REPORTS_MAX: usize = 1 << 16;

/// The scheduler's view of the ranks on other nodes.
#[derive(Clone)]
pub struct PollBoard {
    board: Arc<Board>,
    port: u16,
}

/// Reports to the scheduler how far the rooms of a rank on another node are.
pub struct PollReporter {
    reports: mpsc::Sender<Report>,
    is_full: CancellationToken,
    is_lost: Arc<AtomicBool>,
}

struct Board {
    shared: Arc<Shared>,
    ranks: Vec<Mutex<Remote>>,
}

/// A rank on another node.
#[derive(Default)]
struct Remote {
    is_here: bool,
    /// Why nothing more comes of it.
    lost: Option<FailureReason>,
    rooms: HashMap<BootstrapRoom, Said>,
}

/// What a rank said of a room.
struct Said {
    poll: KvPoll,
    reason: String,
}

// === impl PollBoard ===

impl PollBoard {
    /// Waits for `ranks` other ranks, numbered from 0, on the transfer's host.
    pub(crate) async fn listen(shared: Arc<Shared>, ranks: usize) -> std::io::Result<Self> {
        let patience = shared.config.transfer.bootstrap_timeout;
        let board = Arc::new(Board {
            shared,
            ranks: std::iter::repeat_with(Mutex::default).take(ranks).collect(),
        });
        let listening = Arc::clone(&board);
        let tasks = &board.shared.tasks;
        let port = peer_connection::listen(
            tasks,
            &board.shared.config.transfer,
            move |hello, stream| {
                let board = Arc::clone(&listening);
                match hello.session_id.0.parse() {
                    Ok(rank) if hello.kind == ConnectionKind::Polls => {
                        let tasks = board.shared.tasks.clone();
                        tasks.spawn("rank", async move { board.attend(rank, stream).await });
                    }
                    _ => tracing::warn!("closed a connection that is no rank's"),
                }
            },
        )
        .await?;
        let late = Arc::clone(&board);
        tasks.spawn("patience", async move {
            tokio::time::sleep(patience).await;
            late.give_up_on_absent(patience);
        });
        Ok(Self { board, port })
    }

    /// Where the other ranks report to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What all ranks agree on of each room, given what this process's ranks say. A rank that has said nothing
    /// of a room is `Bootstrapping`.
    pub fn poll_and_all_reduce(&self, own: &[(BootstrapRoom, KvPoll)]) -> Vec<KvPoll> {
        let mut agreed: Vec<KvPoll> = own.iter().map(|(_, poll)| *poll).collect();
        for rank in &self.board.ranks {
            let rank = rank.lock();
            for (agreed, (room, _)) in agreed.iter_mut().zip(own) {
                *agreed = KvPoll::consensus([*agreed, rank.poll(*room)]);
            }
        }
        agreed
    }

    /// Why a room failed on another rank, if it did.
    pub fn failure_reason(&self, room: BootstrapRoom) -> Option<FailureReason> {
        let ranks = self.board.ranks.iter().enumerate();
        let reasons = ranks.map(|(nr, rank)| rank.lock().failure(nr, room));
        reasons.flatten().next()
    }
}

// === impl Board ===

impl Board {
    /// Hears one rank until its connection ends; that is its end.
    async fn attend(&self, nr: usize, stream: Stream) {
        let Some(rank) = self.ranks.get(nr) else {
            tracing::warn!(rank = nr, "closed the connection of an unexpected rank");
            return;
        };
        {
            let mut rank = rank.lock();
            if rank.is_here || rank.lost.is_some() {
                tracing::warn!(rank = nr, "closed the second connection of a rank");
                return;
            }
            rank.is_here = true;
        }
        let ended = self.hear(rank, stream).await;
        let why = match ended {
            Err(error) => error.to_string(),
            Ok(()) => "it closed its connection: it ended or restarted".to_owned(),
        };
        self.lose(nr, &why);
    }

    async fn hear(&self, rank: &Mutex<Remote>, stream: Stream) -> Result<(), ReportError> {
        let transfer = &self.shared.config.transfer;
        let (reader, mut writer) = tokio::io::split(stream);
        let mut reader = BufReader::new(reader);
        let mut beats = tokio::time::interval(transfer.heartbeat_interval);
        let beating = async {
            loop {
                beats.tick().await;
                writer.write_all(&Report::Beat.encode()).await?;
                writer.flush().await?;
            }
        };
        let hearing = async {
            loop {
                let report = tokio::time::timeout(transfer.patience(), Report::read(&mut reader));
                match report.await.map_err(|_| ReportError::Silent)?? {
                    Some(report) => {
                        rank.lock().take(report)?;
                        (self.shared.config.waker)();
                    }
                    None => return Ok(()),
                }
            }
        };
        tokio::select! {
            ended = beating => ended,
            ended = hearing => ended,
        }
    }

    fn give_up_on_absent(&self, patience: std::time::Duration) {
        for (nr, rank) in self.ranks.iter().enumerate() {
            let is_absent = !rank.lock().is_here;
            if is_absent {
                self.lose(nr, &format!("it did not come in {patience:?}"));
            }
        }
    }

    fn lose(&self, nr: usize, why: &str) {
        let message = format!("rank {nr} on another node is lost: {why}");
        tracing::error!("{message}");
        self.ranks[nr].lock().lost = Some(FailureReason::peer(message));
        (self.shared.config.waker)();
    }
}

// === impl Remote ===

impl Remote {
    fn poll(&self, room: BootstrapRoom) -> KvPoll {
        let said = self.rooms.get(&room).map(|said| said.poll);
        match (said, &self.lost) {
            (Some(ended), _) if ended.is_terminal() => ended,
            (_, Some(_)) => KvPoll::Failed,
            (said, None) => said.unwrap_or(KvPoll::Bootstrapping),
        }
    }

    fn failure(&self, nr: usize, room: BootstrapRoom) -> Option<FailureReason> {
        match self.rooms.get(&room) {
            Some(said) if said.poll == KvPoll::Failed => {
                let message = format!("rank {nr} on another node: {}", said.reason);
                Some(FailureReason::peer(message))
            }
            Some(said) if said.poll == KvPoll::Success => None,
            _ => self.lost.clone(),
        }
    }

    fn take(&mut self, report: Report) -> Result<(), ReportError> {
        match report {
            Report::Beat => {}
            Report::Closed(room) => {
                self.rooms.remove(&room);
            }
            Report::Poll { room, poll, reason } => {
                if self.rooms.len() >= ROOMS_MAX && !self.rooms.contains_key(&room) {
                    return Err(ReportError::TooManyRooms);
                }
                let said = self.rooms.entry(room).or_insert(Said {
                    poll: KvPoll::Bootstrapping,
                    reason: String::new(),
                });
                if said.poll.advance(poll) != said.poll {
                    *said = Said { poll, reason };
                }
            }
        }
        Ok(())
    }
}

// === impl PollReporter ===

impl PollReporter {
    /// Reports as rank `rank` to the scheduler's [`PollBoard`] at `leader`.
    pub(crate) async fn connect(
        shared: &Shared,
        (host, port): (&str, u16),
        rank: usize,
    ) -> std::io::Result<Self> {
        let name = SessionId(rank.to_string());
        let stream = peer_connection::connect(
            &shared.config.transfer,
            (host, port),
            ConnectionKind::Polls,
            &name,
        )
        .await?;
        let (reports, waiting) = mpsc::channel(REPORTS_MAX);
        let is_full = CancellationToken::new();
        let full = is_full.clone();
        let is_lost = Arc::new(AtomicBool::new(false));
        let lost = Arc::clone(&is_lost);
        let transfer = shared.config.transfer.clone();
        let waker = Arc::clone(&shared.config.waker);
        shared.tasks.spawn("reports", async move {
            let beats = (transfer.heartbeat_interval, transfer.patience());
            let ended = tokio::select! {
                ended = report_all(stream, waiting, beats) => ended,
                () = full.cancelled() => Err(ReportError::Full),
            };
            if let Err(error) = ended {
                tracing::error!(%error, "lost the scheduler's node");
            }
            lost.store(true, Ordering::Release);
            waker();
        });
        Ok(Self {
            reports,
            is_full,
            is_lost,
        })
    }

    /// How far a room is on this rank; why, if it failed.
    pub fn report(&self, room: BootstrapRoom, poll: KvPoll, reason: Option<&FailureReason>) {
        let reason = reason.map_or_else(String::new, FailureReason::to_string);
        self.send(Report::Poll { room, poll, reason });
    }

    /// This rank has let go of a room whose end all ranks agreed on.
    pub fn close(&self, room: BootstrapRoom) {
        self.send(Report::Closed(room));
    }

    /// A report that does not fit ends the connection, because a dropped one would never come. One that is not taken
    /// any more is of a scheduler that is lost, which `is_lost` says.
    fn send(&self, report: Report) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.reports.try_send(report) {
            self.is_full.cancel();
        }
    }

    /// No peer hears this rank any more.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }
}

/// Writes reports and beats until the scheduler is lost, or this rank has nothing more to say.
async fn report_all(
    stream: Stream,
    mut reports: mpsc::Receiver<Report>,
    (interval, patience): (std::time::Duration, std::time::Duration),
) -> Result<(), ReportError> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let writing = async {
        let mut beats = tokio::time::interval(interval);
        loop {
            let report = tokio::select! {
                report = reports.recv() => report,
                _ = beats.tick() => Some(Report::Beat),
            };
            match report {
                Some(report) => writer.write_all(&report.encode()).await?,
                None => return Ok(()),
            }
            writer.flush().await?;
        }
    };
    let hearing = async {
        let mut beats = [0; 64];
        loop {
            let read = tokio::time::timeout(patience, reader.read(&mut beats));
            if read.await.map_err(|_| ReportError::Silent)?? == 0 {
                return Err(ReportError::Closed);
            }
        }
    };
    tokio::select! {
        ended = writing => ended,
        ended = hearing => ended,
    }
}

#[cfg(test)]
mod tests;
