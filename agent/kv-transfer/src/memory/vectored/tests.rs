//! Facts about vectored reads and writes.

use super::*;
use std::io::Read;
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
    cursor.advance(2);
    assert!(cursor.is_done());
}

#[test]
fn a_closed_socket_ends_a_read() {
    let regions = [Region::allocate("test", 4096).unwrap()];
    let (from, to) = UnixStream::pair().unwrap();
    drop(from);
    let cursor = SpanCursor::new(vec![span(0, 4)]);
    let error = cursor.read_some(to.as_fd(), &regions).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}
