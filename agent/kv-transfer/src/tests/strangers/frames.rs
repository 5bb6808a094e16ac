//! Frames of the tcp transport: late, wrong, without a room.

use super::*;

impl Stranger {
    fn frame(&self, room: u64, generation: Generation, pages: u32, last: bool) -> FrameHeader {
        let KvArgsRegisterInfo {
            layout,
            parallel,
            rank,
            ..
        } = &self.registration;
        let end = End {
            layout,
            parallel,
            rank: *rank,
        };
        let plan = TransferPlan::new(end, end);
        let tail = plan.dst_tail_spans(Tail {
            state_indices: &dst_items(),
            metadata_buffer_index: 0,
        });
        let tail: u64 = tail.iter().filter(|_| last).map(|span| span.len).sum();
        FrameHeader {
            room: mk_room(room),
            generation,
            first_page: 0,
            page_count: pages,
            last,
            payload_bytes: u64::from(pages) * plan.page_bytes() + tail,
        }
    }

    async fn write(&mut self, header: &FrameHeader, payload: &[u8]) {
        self.data().write_all(&header.encode()).await.unwrap();
        self.data().write_all(payload).await.unwrap();
    }

    /// A whole room over the same connection: everything written before it has been read.
    async fn settle(&mut self, room: u64) {
        let (receiver, generation) = self.room(room, &[63]).await;
        let header = self.frame(room, generation, 1, true);
        let row_bytes = mk_layout().metadata.row_bytes();
        let mut payload = vec![0; usize::try_from(header.payload_bytes).unwrap() - row_bytes];
        let row = MetadataRow::new(mk_room(room), 1);
        payload.extend(row.encode(&mk_layout().metadata).unwrap());
        self.write(&header, &payload).await;
        self.data().write_all(&[VALID]).await.unwrap();
        self.decode
            .wait("the last room ends", || receiver.poll() == KvPoll::Success);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rest_of_a_frame_never_lands_after_an_abort() {
    let mut stranger = mk_stranger().await;
    let (receiver, generation) = stranger.room(7, &[1, 2, 3]).await;
    let header = stranger.frame(7, generation, 3, false);
    let payload = vec![0xee; usize::try_from(header.payload_bytes).unwrap()];
    let half = payload.len() / 2;
    stranger.write(&header, &payload[..half]).await;
    stranger.decode.wait("the frame has begun", || {
        receiver.poll() == KvPoll::Transferring
    });
    receiver.abort();
    // The stranger hangs in the middle of a frame; that holds nothing back.
    stranger
        .decode
        .wait("the pages are free", || receiver.released());
    stranger.decode.fill(5);
    let before = stranger.decode.snapshot();
    stranger.data().write_all(&payload[half..]).await.unwrap();
    stranger.data().write_all(&[VALID]).await.unwrap();
    stranger.settle(8).await;
    let after = stranger.decode.snapshot();
    let page = before[0].len() / 64;
    assert!(
        before[0][..63 * page] == after[0][..63 * page],
        "late bytes landed"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_without_a_room_are_dropped() {
    let mut stranger = mk_stranger().await;
    let (receiver, generation) = stranger.room(7, &[1, 2]).await;
    let before = stranger.decode.snapshot();
    let unknown = stranger.frame(99, generation, 2, false);
    let stale = stranger.frame(7, Generation(generation.0 + 1000), 2, false);
    for header in [unknown, stale] {
        let payload = vec![0xee; usize::try_from(header.payload_bytes).unwrap()];
        stranger.write(&header, &payload).await;
        stranger.data().write_all(&[VALID]).await.unwrap();
    }
    stranger.settle(8).await;
    let after = stranger.decode.snapshot();
    let page = before[0].len() / 64;
    assert!(before[0][..63 * page] == after[0][..63 * page]);
    assert_eq!(receiver.poll(), KvPoll::WaitingForInput);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_beyond_the_offer_fail_their_room_only() {
    let mut stranger = mk_stranger().await;
    let mut room = 10;
    for (first_page, page_count, extra) in [(0, 3, 0), (u32::MAX, 1, 0), (2, 1, 0), (0, 2, 1)] {
        room += 1;
        let (receiver, generation) = stranger.room(room, &[1, 2]).await;
        let mut header = stranger.frame(room, generation, page_count, false);
        header.first_page = first_page;
        header.payload_bytes += extra;
        let payload = vec![0xee; usize::try_from(header.payload_bytes).unwrap()];
        stranger.write(&header, &payload).await;
        stranger.data().write_all(&[VALID]).await.unwrap();
        stranger
            .decode
            .wait("the room fails", || receiver.poll() == KvPoll::Failed);
    }
    stranger.settle(8).await;
    let page = stranger.decode.snapshot()[0].len() / 64;
    assert!(!stranger.decode.snapshot()[0][..63 * page].starts_with(&[0xee; 16]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_sent_twice_fails_the_room() {
    let mut stranger = mk_stranger().await;
    let (receiver, generation) = stranger.room(7, &[1, 2]).await;
    let header = stranger.frame(7, generation, 1, false);
    let payload = vec![0xee; usize::try_from(header.payload_bytes).unwrap()];
    for _ in 0..2 {
        stranger.write(&header, &payload).await;
        stranger.data().write_all(&[VALID]).await.unwrap();
    }
    stranger
        .decode
        .wait("the room fails", || receiver.poll() == KvPoll::Failed);
    let reason = receiver.failure_reason().unwrap().to_string();
    assert!(reason.contains("twice"), "{reason}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_of_another_room_is_corruption() {
    let mut stranger = mk_stranger().await;
    let (receiver, generation) = stranger.room(7, &[1]).await;
    let header = stranger.frame(7, generation, 1, true);
    let row_bytes = mk_layout().metadata.row_bytes();
    let mut payload = vec![0; usize::try_from(header.payload_bytes).unwrap() - row_bytes];
    payload.extend(
        MetadataRow::new(mk_room(6), 1)
            .encode(&mk_layout().metadata)
            .unwrap(),
    );
    stranger.write(&header, &payload).await;
    stranger.data().write_all(&[VALID]).await.unwrap();
    stranger
        .decode
        .wait("the room fails", || receiver.poll() == KvPoll::Failed);
    let reason = receiver.failure_reason().unwrap().to_string();
    assert!(reason.contains("corrupt transfer"), "{reason}");
    stranger
        .decode
        .wait("its memory is free", || receiver.released());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_on_a_data_connection_ends_the_session() {
    let mut stranger = mk_stranger().await;
    let (receiver, _) = stranger.room(7, &[1]).await;
    stranger.data().write_all(&[0x55; 200]).await.unwrap();
    stranger
        .decode
        .wait("the room fails", || receiver.poll() == KvPoll::Failed);
    stranger
        .decode
        .wait("its memory is free", || receiver.released());
    let reason = receiver.failure_reason().unwrap().to_string();
    assert!(reason.contains("no data frame starts here"), "{reason}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prefill_that_freezes_fails_its_rooms_within_the_heartbeat_bound() {
    let mut stranger = mk_stranger_to(TransferConfig {
        heartbeat_interval: Duration::from_millis(500),
        heartbeat_failures: 2,
        ..mk_transfer(TransportChoice::Only(Transport::Tcp))
    })
    .await;
    let (receiver, generation) = stranger.room(7, &[1]).await;
    let header = stranger.frame(7, generation, 1, false);
    stranger.write(&header, &[0xee; 100]).await;
    stranger
        .decode
        .wait("its memory is free", || receiver.released());
    let reason = receiver.failure_reason().unwrap().to_string();
    assert!(reason.contains("was silent for 1s"), "{reason}");
}
