//! What decode has of a room's pages does not move, and a prefix that cannot be right fails its room.

use super::fixture::{Fixture, dst_items};
use crate::config::TransportChoice;
use crate::failure::FailureLayer;
use crate::{KvReceiver, KvSender};
use pd_protocol::{KvPoll, Transport};

const PAGE_SIZE: u32 = 16;

/// Both ends of a room of which decode has the first pages.
fn open_behind(
    pair: &Fixture,
    (prefix_len, dst_pages): (u32, &[u32]),
    row: u32,
) -> (KvSender, KvReceiver) {
    let (sender, receiver) = (pair.sender(7), pair.receiver(7));
    pair.decode.wait("prefill is known", || {
        receiver.poll() == KvPoll::WaitingForInput
    });
    assert!(receiver.honours_prefix());
    receiver.init_behind(prefix_len, dst_pages, row, &dst_items());
    (sender, receiver)
}

fn only_the_rest_moves(transport: Transport, chunk: usize) {
    let pair = Fixture::new(TransportChoice::Only(transport));
    pair.decode.fill(9);
    let before = pair.decode.snapshot();
    let src: Vec<u32> = vec![9, 10, 11, 2, 40, 41, 5, 63, 0];
    let (prefix_pages, dst) = (5, [41, 8, 50, 1]);
    let (sender, receiver) = open_behind(&pair, (5 * PAGE_SIZE, &dst), 4);
    pair.prefill.wait("the TransferInfo is in", || {
        sender.poll() == KvPoll::WaitingForInput
    });
    pair.send(&sender, &src, chunk, 2);
    pair.wait_end(&sender, &receiver);
    assert_eq!(
        (sender.poll(), receiver.poll()),
        (KvPoll::Success, KvPoll::Success),
        "{:?}",
        receiver.failure_reason()
    );
    pair.assert_arrived(7, &src[prefix_pages..], &dst, 4);
    for (cut, before) in before[..2].iter().enumerate() {
        let page_len = before.len() / 64;
        for page in (0..64).filter(|page| !dst.contains(page)) {
            let at = page as usize * page_len;
            let kept = pair.decode.page(cut, page) == before[at..at + page_len];
            assert!(kept, "page {page} of cut {cut} was not offered");
        }
    }
    let page_bytes: usize = before[..2].iter().map(|region| region.len() / 64).sum();
    let skipped = pair
        .prefill
        .figures
        .get("kv_transfer_skipped_bytes_total", &[]);
    assert_eq!(skipped, Some((prefix_pages * page_bytes) as f64));
    let reports = sender.take_reports();
    let sent: u64 = reports.iter().map(|report| report.bytes).sum();
    assert_eq!(sent, receiver.report().unwrap().bytes);
}

#[test]
fn only_what_decode_lacks_moves_over_every_transport_in_chunks_and_whole() {
    for transport in [Transport::Tcp, Transport::Shm, Transport::Rdma] {
        for chunk in [2, 100] {
            only_the_rest_moves(transport, chunk);
        }
    }
}

#[test]
fn a_prefix_that_is_not_of_the_request_fails_its_room_on_both_sides() {
    for (prefix_len, dst_pages, said) in [
        (
            8 * PAGE_SIZE,
            &[1u32][..],
            "decode offers 1 pages behind 8 that it has, but the request has 2",
        ),
        (
            PAGE_SIZE,
            &[1, 2],
            "decode offers 2 pages behind 1 that it has, but the request has 2",
        ),
    ] {
        let pair = Fixture::new(TransportChoice::Only(Transport::Tcp));
        let (sender, receiver) = open_behind(&pair, (prefix_len, dst_pages), 0);
        pair.prefill.wait("the TransferInfo is in", || {
            sender.poll() == KvPoll::WaitingForInput
        });
        sender.init(2, 0);
        pair.wait_end(&sender, &receiver);
        assert_eq!(sender.poll(), KvPoll::Failed);
        let reason = receiver.failure_reason().unwrap();
        assert!(reason.message.contains(said), "{reason}");
    }
}

#[test]
fn a_prefix_of_half_a_page_or_of_the_whole_prompt_is_not_offered() {
    for (prefix_len, dst_pages, said) in [
        (
            PAGE_SIZE + 1,
            &[1u32][..],
            "what follows 17 tokens where pages have 16",
        ),
        (
            PAGE_SIZE,
            &[],
            "no page behind 16 tokens; the last page comes in any case",
        ),
    ] {
        let pair = Fixture::new(TransportChoice::Only(Transport::Tcp));
        let (_sender, receiver) = open_behind(&pair, (prefix_len, dst_pages), 0);
        assert_eq!(receiver.poll(), KvPoll::Failed);
        let reason = receiver.failure_reason().unwrap();
        assert_eq!(reason.layer, FailureLayer::Application);
        assert!(reason.message.contains(said), "{reason}");
    }
}
