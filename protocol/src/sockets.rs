//! Bytes that the kernel has not delivered yet, read from its table of TCP sockets (`/proc/net/tcp`).

use std::time::Duration;

/// States in which this end has closed and the peer has not acknowledged all: `FIN_WAIT1`,
/// `LAST_ACK`, `CLOSING`. Source: Linux, `include/net/tcp_states.h`.
const UNDELIVERED: [&str; 3] = ["04", "09", "0B"];

pub const PROC_NET_TCP: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// How many times to poll, and how long to wait in between: 3 s in all. A lost packet is sent again
/// within a second, and a peer that is gone never acknowledges.
pub const POLLS: usize = 150;
pub const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Whether peers have acknowledged all that was written to a local port's connections before they
/// were closed here, by the texts of [`PROC_NET_TCP`]. A pod's network goes with its process, and with it what
/// the kernel would send again.
pub fn is_delivered(tables: impl IntoIterator<Item = String>, port: u16) -> bool {
    let mut tables = tables.into_iter();
    tables.all(|table| !table.lines().any(|line| is_undelivered(line, port)))
}

fn is_undelivered(line: &str, port: u16) -> bool {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (local, state) = (fields.next(), fields.nth(1));
    let local = local.and_then(|local| local.rsplit_once(':'));
    let local = local.and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
    local == Some(port) && state.is_some_and(|state| UNDELIVERED.contains(&state))
}

#[cfg(test)]
mod tests {
    //! Facts about the kernel's table.

    use super::*;

    const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt
   0: 0100007F:7530 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 1 1 0 100 0 0 10 0
   1: 0100007F:7530 0100007F:B2D4 04 0000A000:00000000 01:00000014 00000000 0 0 0 2 0 21 4 30 10 -1
   2: 0100007F:7530 0100007F:B2D6 01 00000000:00000000 00:00000000 00000000 0 0 3 1 0 20 4 30 10 -1
   3: 0100007F:7531 0100007F:B2D8 04 0000A000:00000000 01:00000014 00000000 0 0 0 2 0 21 4 30 10 -1
   4: 00000000000000000000000001000000:7530 00000000000000000000000001000000:B2D8 09 00000001:00000000
";

    #[test]
    fn only_what_was_closed_before_it_had_arrived_counts() {
        let of_port = |port| TABLE.lines().filter(move |line| is_undelivered(line, port));
        assert_eq!(of_port(30000).count(), 2);
        assert_eq!(of_port(30001).count(), 1);
        assert_eq!(of_port(30002).count(), 0);
        let is_delivered = |port| is_delivered([String::new(), TABLE.to_owned()], port);
        assert!(!is_delivered(30001) && is_delivered(30002));
    }
}
