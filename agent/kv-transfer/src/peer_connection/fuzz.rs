//! Any bytes at the connection port.

use super::*;
use futures_util::FutureExt;
use pd_fuzz::{Memory, fuzz};

const MEMORY: Memory = Memory {
    base: 4096,
    per_byte: 0,
};

#[test]
fn hello() {
    fuzz!("hello", MEMORY, |bytes| {
        let mut stream = bytes;
        let read = read_hello(&mut stream).now_or_never();
        let Ok(hello) = read.expect("bytes in memory are never waited for") else {
            return;
        };
        assert!(hello.session_id.0.len() <= SESSION_ID_BYTES_MAX);
        let written = hello.encode().expect("its length fits");
        assert_eq!([written.as_slice(), stream].concat(), bytes);
    });
}
