//! Loopback addresses: each process gets one of its own, so that all can use the same ports.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A loopback address that no other process of this or another test run uses now.
pub fn fresh() -> Ipv4Addr {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    loop {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let host = 1 + u8::try_from(n % 250).expect("below 250");
        let lap = u8::try_from(n / 250 % 32).expect("below 32");
        let address = Ipv4Addr::new(127, 32 + (high ^ lap) % 192, low, host);
        if TcpListener::bind((address, pd_protocol::ports::HTTP)).is_ok() {
            return address;
        }
    }
}
