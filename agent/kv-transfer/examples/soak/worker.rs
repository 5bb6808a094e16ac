//! One side of the soak, a process: it takes orders on standard input and reports how each
//! request ended on standard output.

use crate::epoch::{Epoch, Request, Side, WINDOW};
use crate::rank::{HOST, Memory, Rank};
use anyhow::{Context, bail, ensure};
use pd_kv_transfer::{
    BootstrapAddr, BootstrapServer, KvReceiver, KvSender, LastChunk, MetadataIndexAllocator, Peers,
    ReceiverRequest, SenderRequest, Waker,
};
use pd_protocol::layout::RankId;
use pd_protocol::metadata::MetadataRow;
use pd_protocol::{BootstrapRoom, KvPoll};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What the process is report.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Ranks of a pool; decode gets the address of prefill's bootstrap server.
    Start { epoch: Epoch, bootstrap_port: u16 },
    /// The requests of an epoch.
    Run { first: u64, count: u64 },
    /// The router gives a request up.
    Cancel { room: u64 },
    /// The ranks end; nothing of them may be left.
    Stop,
}

/// A report of the process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    Ready { bootstrap_port: u16 },
    Ended(Ended),
    Done,
    Stopped(Footprint),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) room: u64,
    /// Why it failed, if it did.
    pub(crate) failure: Option<String>,
    pub(crate) unix_ns: u64,
}

/// What the process holds of the system.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Footprint {
    pub(crate) files: u64,
    pub(crate) threads: u64,
    pub(crate) rss_kib: u64,
}

enum News {
    Order(Order),
    Wake,
}

/// A rank's end of a request.
enum End {
    Sender(KvSender),
    Receiver(KvReceiver),
}

struct Live {
    request: Request,
    memory: Memory,
    /// Numbers of ranks, and their ends.
    ends: Vec<(usize, End)>,
    is_sent: bool,
    is_cancelled: bool,
    has_ended: bool,
}

struct Pool {
    epoch: Epoch,
    side: Side,
    bootstrap: BootstrapAddr,
    ranks: Vec<Rank>,
    /// By data-parallel group.
    free: Vec<Free>,
    next: u64,
    end: u64,
    live: BTreeMap<u64, Live>,
    _server: Option<(BootstrapServer, tokio::runtime::Runtime)>,
}

/// What requests of a group can have.
struct Free {
    pages: Vec<u32>,
    rows: MetadataIndexAllocator,
}

/// Runs until standard input ends.
pub(crate) fn run(side: Side) -> anyhow::Result<()> {
    let (news, inbox) = channel();
    let orders = news.clone();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let order = serde_json::from_str(&line).expect("the parent speaks our language");
            if orders.send(News::Order(order)).is_err() {
                break;
            }
        }
        // Without a parent there is nothing to do and no reader for an error.
        std::process::exit(0);
    });
    let mut pool = None;
    loop {
        match inbox.recv()? {
            News::Wake => {}
            News::Order(order) => on_order(order, side, &mut pool, &news)?,
        }
        drain(&inbox, side, &mut pool, &news)?;
        if let Some(pool) = &mut pool {
            pool.step()?;
        }
    }
}

/// Wakes come in crowds; one look is enough for all.
fn drain(
    inbox: &Receiver<News>,
    side: Side,
    pool: &mut Option<Pool>,
    news: &Sender<News>,
) -> anyhow::Result<()> {
    while let Ok(next) = inbox.try_recv() {
        if let News::Order(order) = next {
            on_order(order, side, pool, news)?;
        }
    }
    Ok(())
}

fn on_order(
    order: Order,
    side: Side,
    pool: &mut Option<Pool>,
    news: &Sender<News>,
) -> anyhow::Result<()> {
    match (order, pool.as_mut()) {
        (
            Order::Start {
                epoch,
                bootstrap_port,
            },
            None,
        ) => {
            let news = news.clone();
            let waker: Waker = Arc::new(move || {
                let _ = news.send(News::Wake);
            });
            let started = Pool::start(epoch, side, bootstrap_port, &waker)?;
            report(&Report::Ready {
                bootstrap_port: started.bootstrap.port,
            })?;
            *pool = Some(started);
        }
        (Order::Run { first, count }, Some(pool)) => {
            (pool.next, pool.end) = (first, first + count);
        }
        (Order::Cancel { room }, Some(pool)) => {
            if let Some(live) = pool.live.get_mut(&room) {
                live.cancel();
            }
        }
        (Order::Stop, Some(stopped)) => {
            stopped.check_all_free()?;
            *pool = None;
            report(&Report::Stopped(Footprint::settled()?))?;
        }
        (order, _) => bail!("{order:?} at the wrong time"),
    }
    Ok(())
}

fn report(report: &Report) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, report)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

// === impl End ===

impl End {
    fn poll(&self) -> KvPoll {
        match self {
            Self::Sender(sender) => sender.poll(),
            Self::Receiver(receiver) => receiver.poll(),
        }
    }

    fn abort(&self) {
        match self {
            Self::Sender(sender) => sender.abort(),
            Self::Receiver(receiver) => receiver.abort(),
        }
    }

    fn released(&self) -> bool {
        match self {
            Self::Sender(sender) => sender.released(),
            Self::Receiver(receiver) => receiver.released(),
        }
    }

    fn failure(&self) -> Option<String> {
        let reason = match self {
            Self::Sender(sender) => sender.failure_reason(),
            Self::Receiver(receiver) => receiver.failure_reason(),
        };
        reason.map(|reason| reason.to_string())
    }
}

// === impl Live ===

impl Live {
    fn poll(&self) -> KvPoll {
        KvPoll::consensus(self.ends.iter().map(|(_, end)| end.poll()))
    }

    fn cancel(&mut self) {
        self.is_cancelled = true;
        self.ends.iter().for_each(|(_, end)| end.abort());
    }
}

// === impl Pool ===

impl Pool {
    fn start(epoch: Epoch, side: Side, port: u16, waker: &Waker) -> anyhow::Result<Self> {
        let boot_id = format!("soak-{side:?}-{}-{}", std::process::id(), epoch.number);
        let (server, port) = match side {
            Side::Decode => (None, port),
            Side::Prefill => {
                let runtime = tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(1)
                    .enable_all()
                    .build()?;
                let entered = runtime.enter();
                let listener = TcpListener::bind((HOST, 0))?;
                let server = BootstrapServer::start(listener, &Peers::Plain, &boot_id, "soak")?;
                let port = server.local_addr().port();
                drop(entered);
                (Some((server, runtime)), port)
            }
        };
        let bootstrap = BootstrapAddr {
            host: HOST.to_string(),
            port,
        };
        let pool = epoch.pool(side);
        let mut ranks = Vec::new();
        for dp_rank in 0..pool.dp_size {
            for tp_rank in 0..pool.tp_size {
                for pp_rank in 0..pool.pp_size {
                    let id = RankId {
                        dp_rank,
                        cp_rank: 0,
                        tp_rank,
                        pp_rank,
                    };
                    let addr = (side == Side::Prefill).then(|| bootstrap.clone());
                    let names = (boot_id.as_str(), addr);
                    let id = (id, ranks.len() as u64);
                    ranks.push(Rank::start(&epoch, side, id, names, Arc::clone(waker))?);
                }
            }
        }
        let free = || Free {
            pages: (0..Epoch::pool_pages()).collect(),
            rows: MetadataIndexAllocator::new(u32::try_from(WINDOW).expect("few")),
        };
        Ok(Self {
            free: (0..pool.dp_size).map(|_| free()).collect(),
            epoch,
            side,
            bootstrap,
            ranks,
            next: 0,
            end: 0,
            live: BTreeMap::new(),
            _server: server,
        })
    }

    /// Opens what there is place for, and looks after what is open.
    fn step(&mut self) -> anyhow::Result<()> {
        let had_work = self.next < self.end || !self.live.is_empty();
        while self.next < self.end && self.live.len() < WINDOW {
            self.open(self.next)?;
            self.next += 1;
        }
        let mut live = std::mem::take(&mut self.live);
        for (&room, live) in &mut live {
            self.tend(room, live)?;
        }
        let released = |live: &Live| live.has_ended && live.ends.iter().all(|(_, e)| e.released());
        let over: Vec<u64> = live
            .iter()
            .filter(|(_, l)| released(l))
            .map(|(r, _)| *r)
            .collect();
        for room in over {
            let Live { memory, .. } = live.remove(&room).expect("it is one of them");
            let group = self.group(room);
            let free = &mut self.free[group];
            free.pages.extend(memory.pages);
            free.rows.free(memory.row);
        }
        self.live = live;
        if had_work && self.next == self.end && self.live.is_empty() {
            report(&Report::Done)?;
        } else if self.next < self.end && self.live.len() < WINDOW {
            return self.step();
        }
        Ok(())
    }

    /// The data-parallel group that serves a room.
    fn group(&self, room: u64) -> usize {
        let groups = self.epoch.pool(self.side).dp_size;
        usize::try_from(room % u64::from(groups)).expect("few groups")
    }

    fn open(&mut self, room: u64) -> anyhow::Result<()> {
        let request = self.epoch.request(room);
        let group = self.group(room);
        let free = &mut self.free[group];
        let row = free.rows.alloc().context("no row is free")?;
        let kept = free.pages.len() - request.pages as usize;
        let memory = Memory {
            // Those that were used last.
            pages: free.pages.split_off(kept),
            slot: row,
            row,
        };
        let id = BootstrapRoom::new(room)?;
        let mut ends = Vec::new();
        for (nr, rank) in self.ranks.iter().enumerate() {
            if rank.id.dp_rank as usize != group {
                continue;
            }
            let end = match self.side {
                Side::Prefill => {
                    let request = SenderRequest {
                        room: id,
                        fake: false,
                    };
                    End::Sender(rank.manager.sender(request)?)
                }
                Side::Decode => {
                    let receiver = rank.manager.receiver(ReceiverRequest {
                        bootstrap_addr: self.bootstrap.clone(),
                        room: id,
                        prefill_dp_rank: None,
                    })?;
                    receiver.init(&memory.pages, row, &rank.items(&memory));
                    End::Receiver(receiver)
                }
            };
            ends.push((nr, end));
        }
        let live = Live {
            request,
            memory,
            ends,
            is_sent: false,
            is_cancelled: false,
            has_ended: false,
        };
        self.live.insert(room, live);
        Ok(())
    }

    fn tend(&self, room: u64, live: &mut Live) -> anyhow::Result<()> {
        let poll = live.poll();
        let gives_up = live.request.given_up_by == Some(self.side);
        if !live.is_cancelled
            && (poll == KvPoll::Failed || (gives_up && poll >= KvPoll::WaitingForInput))
        {
            live.cancel();
        }
        if self.side == Side::Prefill
            && !live.is_cancelled
            && !live.is_sent
            && poll >= KvPoll::WaitingForInput
        {
            self.send(room, live)?;
            live.is_sent = true;
        }
        let all_ended = live.ends.iter().all(|(_, end)| end.poll().is_terminal());
        if !all_ended || live.has_ended {
            return Ok(());
        }
        live.has_ended = true;
        let failures: Vec<String> = live
            .ends
            .iter()
            .filter_map(|(_, end)| end.failure())
            .collect();
        let failed = live
            .ends
            .iter()
            .filter(|(_, end)| end.poll() == KvPoll::Failed);
        ensure!(
            failures.len() == failed.count(),
            "room {room}: a failure without a reason, or a reason without a failure"
        );
        if self.side == Side::Decode && failures.is_empty() {
            for (nr, _) in &live.ends {
                self.verify(room, &self.ranks[*nr], &live.memory)?;
            }
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        // The first reason says more than the failures that follow from it.
        let aborted = |reason: &String| reason.ends_with("was aborted by its request");
        let cause = failures.iter().find(|reason| !aborted(reason));
        report(&Report::Ended(Ended {
            room,
            failure: cause.or(failures.first()).cloned(),
            unix_ns: u64::try_from(now.as_nanos())?,
        }))
    }

    fn send(&self, room: u64, live: &Live) -> anyhow::Result<()> {
        let Live {
            request, memory, ..
        } = live;
        for (nr, end) in &live.ends {
            let (rank, End::Sender(sender)) = (&self.ranks[*nr], end) else {
                bail!("prefill has senders only");
            };
            rank.fill(room, memory)?;
            let row = MetadataRow::new(sender.room(), token(room));
            rank.metadata().write_row(memory.row, &row)?;
            sender.init(memory.pages.len(), memory.row);
            let chunks: Vec<&[u32]> = memory.pages.chunks(request.chunk).collect();
            for (i, pages) in chunks.iter().enumerate() {
                let last = (i + 1 == chunks.len()).then(|| LastChunk {
                    state_indices: rank.items(memory),
                });
                sender.send(pages, last);
            }
        }
        Ok(())
    }

    fn verify(&self, room: u64, rank: &Rank, memory: &Memory) -> anyhow::Result<()> {
        rank.verify(room, memory)?;
        let row = rank
            .metadata()
            .read_row(memory.row, BootstrapRoom::new(room)?)?;
        ensure!(
            row.output_ids == [token(room)],
            "room {room}: the row is another's"
        );
        Ok(())
    }

    /// No request holds anything.
    fn check_all_free(&self) -> anyhow::Result<()> {
        let (pages, rows) = (Epoch::pool_pages() as usize, WINDOW);
        for free in &self.free {
            let (pages_free, rows_free) = (free.pages.len(), free.rows.available());
            ensure!(
                pages_free == pages,
                "{pages_free} of {pages} pages are free"
            );
            ensure!(rows_free == rows, "{rows_free} of {rows} rows are free");
        }
        for rank in &self.ranks {
            let late = rank.manager.take_reclaimed();
            ensure!(
                late.is_empty(),
                "memory came back of receivers that were not dropped: {late:?}"
            );
        }
        Ok(())
    }
}

fn token(room: u64) -> i32 {
    i32::try_from(room % 50_000).expect("it fits")
}

// === impl Footprint ===

impl Footprint {
    fn now() -> anyhow::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let word = line.and_then(|line| line.split_whitespace().next());
            word.context("a line of /proc/self/status")?
                .parse::<u64>()
                .context("a number")
        };
        Ok(Self {
            files: std::fs::read_dir("/proc/self/fd")?.count() as u64,
            threads: field("Threads:")?,
            rss_kib: field("VmRSS:")?,
        })
    }

    /// After what runs down in the background has ended: unchanged for a while.
    #[expect(
        clippy::disallowed_methods,
        reason = "that nothing more ends has no event"
    )]
    fn settled() -> anyhow::Result<Self> {
        let began = Instant::now();
        let mut last = (Self::now()?, began);
        while last.1.elapsed() < Duration::from_millis(300)
            && began.elapsed() < Duration::from_secs(10)
        {
            std::thread::sleep(Duration::from_millis(50));
            let now = Self::now()?;
            if (now.files, now.threads) != (last.0.files, last.0.threads) {
                last = (now, Instant::now());
            }
        }
        Self::now()
    }
}
