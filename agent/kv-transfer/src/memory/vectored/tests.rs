//! Facts about vectored reads and writes.

use super::*;
use crate::tests::fixture::known_byte;
use crate::tests::heap_device::{Call, HeapDevice};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

fn span(offset: u64, len: u64) -> Span {
    Span {
        region: 0,
        offset,
        len,
    }
}

#[test]
fn scattered_spans_travel_in_order() {
    let regions = [Region::allocate("test", 4096).unwrap()];
    regions[0].write(10, b"abc").unwrap();
    regions[0].write(100, b"de").unwrap();
    let (from, mut to) = UnixStream::pair().unwrap();
    let mut cursor = SpanCursor::new(vec![span(100, 2), span(0, 0), span(10, 3)]);
    assert_eq!(cursor.left(), 5);
    assert_eq!(cursor.write_some(from.as_fd(), &regions).unwrap(), 5);
    let mut bytes = [0; 5];
    to.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"deabc");
}

#[test]
fn a_cursor_goes_on_within_a_span() {
    let mut cursor = SpanCursor::new(vec![span(0, 4), span(8, 4)]);
    cursor.advance(6);
    assert_eq!(cursor.left(), 2);
    let regions = [Region::allocate("test", 4096).unwrap()];
    regions[0].write(8, b"wxyz").unwrap();
    let (from, mut to) = UnixStream::pair().unwrap();
    assert_eq!(cursor.write_some(from.as_fd(), &regions).unwrap(), 2);
    let mut bytes = [0; 2];
    to.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"yz");
    assert!(cursor.is_done());
}

#[test]
fn a_closed_socket_ends_a_read() {
    let regions = [Region::allocate("test", 4096).unwrap()];
    let (from, to) = UnixStream::pair().unwrap();
    drop(from);
    let mut cursor = SpanCursor::new(vec![span(0, 4)]);
    let error = cursor.read_some(to.as_fd(), &regions).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

/// Carries all between cursors over a socket that takes and gives a part at a time.
fn carry(
    (from, src): (&mut SpanCursor, &[Region]),
    (to, dst): (&mut SpanCursor, &[Region]),
) -> usize {
    let (tx, rx) = UnixStream::pair().unwrap();
    tx.set_nonblocking(true).unwrap();
    rx.set_nonblocking(true).unwrap();
    let moved = |result: io::Result<usize>| match result {
        Ok(_) => true,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
        Err(error) => panic!("{error}"),
    };
    let mut writes = 0;
    while !to.is_done() {
        while !from.is_done() && moved(from.write_some(tx.as_fd(), src)) {
            writes += 1;
        }
        moved(to.read_some(rx.as_fd(), dst));
    }
    assert!(from.is_done());
    writes
}

#[test]
fn spans_of_host_and_device_travel_in_order() {
    const LEN: usize = 4 << 20;
    let device = HeapDevice::default();
    let mk_regions = || {
        [
            Region::allocate("test", LEN).unwrap(),
            device.allocate(LEN),
            device.allocate(LEN),
        ]
    };
    let (src, dst) = (mk_regions(), mk_regions());
    for (seed, region) in (1..).zip(&src) {
        let bytes: Vec<u8> = (0..LEN as u64).map(|at| known_byte(seed, 0, at)).collect();
        region.write(0, &bytes).unwrap();
    }
    let at = |region, offset, len| Span {
        region,
        offset,
        len,
    };
    // What leaves from a device may land on the host; lengths lie around what is staged at once.
    let stage = STAGE_BYTES as u64;
    let sent = [
        at(1, 5, 3),
        at(2, 0, 2 * stage + 7),
        at(0, 9, stage - 10),
        at(0, 0, 0),
        at(2, 3 * stage, 11),
        at(1, stage, stage - 11),
        at(0, 3 * stage, 100),
    ];
    let landed = [
        at(0, 1, stage + 1),
        at(1, 0, 2 * stage),
        at(0, 2 * stage, 2),
        at(2, 77, stage + 97),
    ];
    let (mut from, mut to) = (
        SpanCursor::new(sent.to_vec()),
        SpanCursor::new(landed.to_vec()),
    );
    assert_eq!(from.left(), to.left());
    let writes = carry((&mut from, &src), (&mut to, &dst));
    let read = |regions: &[Region], spans: &[Span]| {
        let read = |span: &Span| {
            let mut bytes = vec![0; usize::try_from(span.len).unwrap()];
            regions[span.region].read(span.offset, &mut bytes).unwrap();
            bytes
        };
        spans.iter().flat_map(read).collect::<Vec<u8>>()
    };
    assert!(writes > sent.len(), "{writes} writes were no partial ones");
    assert!(read(&src, &sent) == read(&dst, &landed));
}

#[test]
fn a_devices_bytes_are_copied_out_once_however_few_leave_at_a_time() {
    let (source, sink) = (HeapDevice::default(), HeapDevice::default());
    let (src, dst) = ([source.allocate(STAGE_BYTES)], [sink.allocate(STAGE_BYTES)]);
    let all = || SpanCursor::new(vec![span(0, 4), span(8, STAGE_BYTES as u64 - 8)]);
    let (mut from, mut to) = (all(), all());
    assert!(carry((&mut from, &src), (&mut to, &dst)) > 2);
    assert_eq!(source.count(Call::Read), 2);
    assert!(from.staged.capacity() <= STAGE_BYTES);
}

#[test]
fn bytes_that_a_device_does_not_take_have_left_the_socket() {
    let device = HeapDevice::default();
    let regions = [device.allocate(64)];
    let (mut tx, rx) = UnixStream::pair().unwrap();
    tx.write_all(b"abcdef").unwrap();
    device.refuse(Call::Write, 0);
    let mut cursor = SpanCursor::new(vec![span(0, 4), span(8, 4)]);
    let error = cursor.read_some(rx.as_fd(), &regions).unwrap_err();
    assert!(of_memory(&error).is_some(), "{error}");
    assert_eq!(cursor.left(), 2);
}
