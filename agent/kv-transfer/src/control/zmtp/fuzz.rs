//! Any bytes at the control port: messages, and greetings before them.

use super::*;
use crate::admission::tests::mk_memory;
use pd_fuzz::fuzz;
use std::io::Cursor;

/// A runtime of its own, and a frame in a buffer that doubles.
const MEMORY: pd_fuzz::Memory = pd_fuzz::Memory {
    base: 128 << 10,
    per_byte: 16,
};

/// Runs at once: what would be waited for is over.
fn run<T>(task: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(task)
}

#[test]
fn zmtp_messages() {
    fuzz!("zmtp_messages", MEMORY, |bytes| {
        let budget = mk_memory(1000, 1000);
        let read = async {
            let (mut peer, mut messages) = (bytes, Vec::new());
            while let Ok(Some((frames, _held))) = read_message(&mut peer, &budget).await {
                assert!(frames.len() <= FRAMES_MAX);
                messages.push(frames);
            }
            let mut written = Vec::new();
            for frames in &messages {
                let wrote = write_message(&mut written, frames).await;
                wrote.expect("memory takes all");
            }
            let mut again = written.as_slice();
            for frames in &messages {
                let read = read_message(&mut again, &budget).await;
                let (read, _held) = read.expect("what was written reads").expect("a message");
                assert_eq!(&read, frames);
            }
        };
        run(read);
    });
}

#[test]
fn zmtp_greeting() {
    fuzz!("zmtp_greeting", MEMORY, |bytes| {
        for own in [SocketType::Push, SocketType::Pull] {
            let mut stream = tokio::io::join(Cursor::new(bytes), Vec::new());
            if run(greet(&mut stream, own)).is_ok() {
                assert_eq!((bytes[0], bytes[9]), (0xff, 0x7f));
            }
        }
    });
}
