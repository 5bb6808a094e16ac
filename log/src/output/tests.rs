//! Sinks that take nothing, some, or everything.

use super::*;
use std::sync::mpsc::{Receiver, Sender, channel};

const LONG: Duration = Duration::from_secs(60);

/// Hands over what is written, after each leave that it gets.
struct Stepped {
    leave: Receiver<io::Result<()>>,
    written: Sender<Vec<u8>>,
}

impl Write for Stepped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.leave.recv() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(error),
            Err(_) => return Ok(bytes.len()),
        }
        self.written
            .send(bytes.to_vec())
            .map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn stepped() -> (Output, Sender<io::Result<()>>, Receiver<Vec<u8>>) {
    let (leave_tx, leave) = channel();
    let (written, written_rx) = channel();
    let sink = Sink::Test(Box::new(Stepped { leave, written }));
    (Output::start("test", sink), leave_tx, written_rx)
}

#[test]
fn a_reader_that_reads_nothing_costs_lines_and_no_time() {
    let (output, leave, written) = stepped();
    let line = format!("{}\n", "x".repeat(1023));
    // What waits, what is being written, and one line that is beyond both.
    let lines = 2 * PENDING_BYTES_MAX / line.len() + 1;
    for _ in 0..lines {
        output.push(&line);
    }
    assert!(output.dropped() > 0);
    output.flush(Duration::from_millis(1));
    let kept = lines as u64 - output.dropped();
    drop(leave);
    output.flush(LONG);
    assert!(kept > 0);
    drop(written);
}

#[test]
fn what_a_full_disk_does_not_take_is_counted_and_the_next_line_is_whole() {
    let (output, leave, written) = stepped();
    output.push("lost\n");
    let full = io::Error::from(ErrorKind::StorageFull);
    leave.send(Err(full)).expect("the sink waits");
    output.flush(LONG);
    assert_eq!(output.dropped(), 1);
    output.push("kept\n");
    leave.send(Ok(())).expect("the sink waits");
    assert_eq!(written.recv().expect("it is written"), b"kept\n");
    output.flush(LONG);
    assert_eq!(output.dropped(), 1);
}

#[test]
fn lines_are_written_in_their_order() {
    let (output, leave, written) = stepped();
    output.push("a\n");
    leave.send(Ok(())).expect("the sink waits");
    assert_eq!(written.recv().expect("it is written"), b"a\n");
    output.push("b\nc\n");
    leave.send(Ok(())).expect("the sink waits");
    assert_eq!(written.recv().expect("it is written"), b"b\nc\n");
}
