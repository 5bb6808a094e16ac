//! Connections of many addresses that say something and stay.

use super::{Extent, Outcomes};
use anyhow::Result;
use bytes::Bytes;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

/// Addresses that an attack comes from, so that it is not held up by bounds of one address.
const SOURCES: u32 = 16;
const FIRST_SOURCE: Ipv4Addr = Ipv4Addr::new(127, 250, 0, 1);
/// Connections begun in each tick: an attacker as fast as loopback would measure the machine's cores.
const TICK: Duration = Duration::from_millis(10);
const PER_TICK: usize = 10;
/// Of an answer, as much as is read to know it.
const ANSWER_BYTES: usize = 1024;

/// What connection `nr` does: where it goes, what it says, and whether it reads.
pub(super) struct Member {
    pub(super) to: SocketAddr,
    pub(super) says: Bytes,
    pub(super) reads: bool,
}

/// Opens a crowd; `member` makes each.
pub(super) async fn crowd(
    Extent { count, hold }: Extent,
    mut member: impl FnMut(usize) -> Member,
) -> Result<Outcomes> {
    let mut tasks = JoinSet::new();
    let mut outcomes = Outcomes::default();
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for nr in 0..count {
        if nr % PER_TICK == 0 {
            tick.tick().await;
        }
        tasks.spawn(visit(nr, member(nr), hold));
        while let Some(ended) = tasks.try_join_next() {
            outcomes.add(ended?);
        }
    }
    while let Some(ended) = tasks.join_next().await {
        outcomes.add(ended?);
    }
    Ok(outcomes)
}

async fn visit(nr: usize, member: Member, hold: Duration) -> String {
    let until = Instant::now() + hold;
    let Member { to, says, reads } = member;
    let visit = async {
        let mut stream = match connect(nr, to, reads).await {
            Ok(stream) => stream,
            Err(error) => return format!("not connected: {}", error.kind()),
        };
        // The other side may close before all is written.
        let _written = stream.write_all(&says).await;
        if !reads {
            std::future::pending::<()>().await;
        }
        end_of(stream).await
    };
    match timeout_at(until, visit).await {
        Ok(outcome) => outcome,
        Err(_) => "open".to_owned(),
    }
}

async fn connect(nr: usize, to: SocketAddr, reads: bool) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    let offset = u32::try_from(nr).unwrap_or(0) % SOURCES;
    let source = Ipv4Addr::from(u32::from(FIRST_SOURCE) + offset);
    socket.bind((source, 0).into())?;
    if !reads {
        // What the kernel would read in place of the client.
        socket.set_recv_buffer_size(4096)?;
    }
    socket.connect(to).await
}

/// How the other side ended it.
async fn end_of(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    let mut chunk = [0; ANSWER_BYTES];
    let is_reset = loop {
        match stream.read(&mut chunk).await {
            Ok(0) => break false,
            Ok(len) if answer.len() < ANSWER_BYTES => answer.extend_from_slice(&chunk[..len]),
            Ok(_) => {}
            Err(_) => break true,
        }
    };
    match status(&answer) {
        Some(status) => format!("answered {status}"),
        None if is_reset => "reset".to_owned(),
        None => "closed".to_owned(),
    }
}

fn status(answer: &[u8]) -> Option<String> {
    let answer = String::from_utf8_lossy(answer);
    let status = answer.strip_prefix("HTTP/1.1 ")?.get(..3)?;
    Some(status.to_owned())
}
