//! Facts about frames that the thread which sends writes itself.

use super::super::frame::{FrameHeader, HEADER_BYTES};
use super::*;
use crate::control::listener::tests::mk_tasks;
use crate::control::outbox::Outbox;
use crate::metrics::TransferMetrics;
use crate::net::set_send_buffer_size;
use crate::plan::{End, TransferPlan};
use crate::tests::fixture::{mk_kv, mk_layout, mk_room};
use pd_identity::Peers;
use pd_protocol::BootstrapRoom;
use pd_protocol::control::{Generation, SessionId};
use pd_protocol::layout::{ParallelLayout, RankId};
use std::sync::Weak;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Pages of a frame: 120 KiB, which `DIRECT_BYTES_MAX` allows.
const PAGES: Range<u32> = 3..23;

struct Room {
    fence: Fence,
    reports: AtomicUsize,
}

impl OutboundRoom for Room {
    fn id(&self) -> BootstrapRoom {
        mk_room(7)
    }

    fn fence(&self) -> &Fence {
        &self.fence
    }

    fn report(&self, _bytes: u64, _duration: Duration, _last: bool) {
        self.reports.fetch_add(1, Ordering::Relaxed);
    }

    fn fail(&self, reason: FailureReason) {
        panic!("{reason}");
    }
}

/// An idle stream and what is behind it.
struct Writer {
    lane: Lane,
    peer: OutboundPeer,
    room: Arc<Room>,
    regions: Vec<Region>,
    stream: Stream,
    reader: crate::net::TcpStream,
}

impl Writer {
    async fn new() -> Self {
        let listener = crate::net::listen([127, 0, 0, 1].into()).await.unwrap();
        let stream = crate::net::connect(listener.local_addr().unwrap()).await;
        let stream = stream.unwrap();
        set_send_buffer_size(&stream, 8 << 10).unwrap();
        let (reader, _) = listener.accept().await.unwrap();
        let metrics = TransferMetrics::default();
        let fence = Fence::new(Arc::new(|| {}), metrics.fences().clone());
        let kv = mk_kv(&mk_layout());
        for (i, region) in kv.kv.iter().enumerate() {
            let word = |at: usize| u8::try_from((at + i) % 251).unwrap();
            let bytes: Vec<u8> = (0..region.len()).map(word).collect();
            region.write(0, &bytes).unwrap();
        }
        Self {
            lane: Lane::default(),
            peer: mk_peer(&metrics),
            room: Arc::new(Room {
                fence,
                reports: AtomicUsize::new(0),
            }),
            regions: kv.kv,
            stream: Stream::Plain(stream),
            reader,
        }
    }

    fn mk_job(&self) -> FrameJob {
        FrameJob {
            room: Arc::clone(&self.room) as Arc<dyn OutboundRoom>,
            generation: Generation(1),
            first_page: 0,
            pages: PAGES.collect(),
            range: 0..PAGES.len(),
            tail: None,
            meter: Arc::new(ChunkMeter::new(1, false)),
        }
    }

    /// For good: what ends the loan ends with the test.
    fn lend(&self) {
        std::mem::forget(self.lane.lend(duplicate(&self.stream)));
    }

    /// Whether the lane took a frame.
    fn write(&self) -> bool {
        let refused = self.lane.write(self.mk_job(), &self.peer, &self.regions);
        refused.is_none()
    }

    /// Writes frames until the socket takes no whole one; how many it took, with the one that has begun.
    fn fill_socket(&self) -> usize {
        let mut frames = 0;
        while self.write() {
            frames += 1;
        }
        frames
    }

    fn expected_payload(&self) -> Vec<u8> {
        let mut cursor = SpanCursor::new(self.peer.plan.src_page_spans(&PAGES.collect::<Vec<_>>()));
        let mut payload = vec![0; usize::try_from(cursor.left()).unwrap()];
        let copied = cursor.copy_out(&mut payload, &self.regions).unwrap();
        assert_eq!(copied, payload.len());
        payload
    }
}

fn mk_peer(metrics: &TransferMetrics) -> OutboundPeer {
    let layout = mk_layout();
    let info = KvArgsRegisterInfo {
        session_id: SessionId::new("boot", RankId::default(), 1, 7),
        endpoint: "127.0.0.1".to_owned(),
        dst_port: 1,
        data_port: 1,
        rank: RankId::default(),
        parallel: ParallelLayout::SINGLE,
        layout: layout.clone(),
        kv_compat: String::new(),
    };
    let end = || End {
        layout: &layout,
        parallel: &ParallelLayout::SINGLE,
        rank: RankId::default(),
    };
    let outbox = Outbox::connect(&mk_tasks(), &Peers::Plain, &"127.0.0.1:1");
    let events: Weak<crate::prefill_side::PrefillSide> = Weak::new();
    OutboundPeer::new(
        info,
        TransferPlan::new(end(), end()),
        outbox,
        metrics.enter("decode"),
        events,
    )
}

/// Payload and trailer of the next frame.
async fn read_frame(reader: &mut crate::net::TcpStream) -> (Vec<u8>, u8) {
    let mut header = [0; HEADER_BYTES];
    reader.read_exact(&mut header).await.unwrap();
    let header = FrameHeader::decode(&header).unwrap();
    let mut payload = vec![0; usize::try_from(header.payload_bytes).unwrap()];
    reader.read_exact(&mut payload).await.unwrap();
    (payload, reader.read_u8().await.unwrap())
}

/// Runs the stream's task until `frames` have been read.
async fn drain(writer: Writer, frames: usize) -> Vec<(Vec<u8>, u8)> {
    let Writer {
        lane,
        peer,
        regions,
        stream,
        mut reader,
        ..
    } = writer;
    let (_jobs, queue) = mpsc::channel(1);
    let queue = Arc::new(Mutex::new(queue));
    let read = async {
        let mut found = Vec::new();
        for _ in 0..frames {
            found.push(read_frame(&mut reader).await);
        }
        found
    };
    tokio::select! {
        found = read => found,
        ended = run(stream, (&queue, &lane), &peer, &regions) => panic!("{ended:?}"),
    }
}

#[tokio::test]
async fn the_task_ends_the_frame_that_a_full_socket_did_not_take() {
    let writer = Writer::new().await;
    writer.lend();
    let (frames, expected) = (writer.fill_socket(), writer.expected_payload());
    let room = Arc::clone(&writer.room);
    assert_eq!(room.reports.load(Ordering::Relaxed), frames - 1);
    for (payload, trailer) in drain(writer, frames).await {
        assert!(payload == expected && trailer == VALID);
    }
    assert_eq!(room.reports.load(Ordering::Relaxed), frames);
}

#[tokio::test]
async fn a_frame_that_has_begun_is_void_once_its_room_is_closed() {
    let writer = Writer::new().await;
    writer.lend();
    let frames = writer.fill_socket();
    let room = Arc::clone(&writer.room);
    room.fence.close();
    assert!(room.fence.is_released(), "no one waits for the peer");
    let found = drain(writer, frames).await;
    let trailers: Vec<u8> = found.into_iter().map(|(_, trailer)| trailer).collect();
    assert_eq!(trailers.last(), Some(&VOID));
    assert_eq!(room.reports.load(Ordering::Relaxed), frames - 1);
}

#[tokio::test]
async fn a_lane_that_its_task_has_claimed_is_left_alone() {
    let writer = Writer::new().await;
    assert!(!writer.write(), "nothing is lent yet");
    let loan = writer.lane.lend(duplicate(&writer.stream));
    let claim = writer.lane.claim();
    assert!(!writer.write());
    drop(claim);
    assert!(writer.write());
    drop(loan);
    assert!(!writer.write(), "the connection is gone");
}
