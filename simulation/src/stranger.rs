//! Someone in the network who has no business there: looks for ports, and sends them what no peer would. It has no effect.

use crate::network::{HostId, Network};
use crate::plan::pick;
use pd_net::TcpStream;
use pd_protocol::control::{GUARD, Kind, VERSION};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

/// Between two tries.
const PAUSE_MAX_MS: u64 = 400;
/// How long it waits for an answer.
const PATIENCE_MAX_MS: u64 = 12_000;
/// Requests of no peer's.
const REQUESTS: [&str; 13] = [
    "POST /generate HTTP/1.1\r\nhost: a\r\n",
    "POST /generate HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{",
    "POST /generate HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999\r\n\r\n{}",
    "POST /generate HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 99999999\r\n\r\n",
    "GET / HTTP/9.9\r\n\r\n",
    "GET /route HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET /route?prefill_dp_rank=7&prefill_cp_rank=0&target_tp_rank=0&target_pp_rank=0 HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET /route?prefill_dp_rank=-1&prefill_cp_rank=-1&target_tp_rank=-1&target_pp_rank=-1 HTTP/1.1\r\nhost: a\r\n\r\n",
    "PUT /route HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}",
    "PUT /route HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\n{\"a\r\n0\r\n\r\n",
    "PUT /route HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999\r\n\r\n",
    "DELETE /route HTTP/1.1\r\nhost: a\r\n\r\n",
    "GET /nothing HTTP/1.1\r\nhost: a\r\n\r\n",
];
/// A PUSH socket's greeting and handshake. Source: RFC 23/ZMTP.
const GREETING: [&[u8]; 6] = [
    b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0",
    b"NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    &[0; 32],
    b"\x04\x1a\x05READY",
    b"\x0bSocket-Type\0\0\0\x04PUSH",
    b"",
];
/// How a connection for data or signs of life begins.
const HELLO: &[u8] = b"PDSVLNK1";
/// Of a message's frames: another follows.
const MORE: u8 = 1;

/// Tries so many times, at ports of `hosts`.
pub(crate) async fn run(
    network: Arc<Network>,
    hosts: Vec<(HostId, IpAddr)>,
    seed: u64,
    tries: u32,
) {
    let mut rng = StdRng::seed_from_u64(seed);
    for _ in 0..tries {
        sleep(Duration::from_millis(rng.random_range(0..PAUSE_MAX_MS))).await;
        let (host, ip) = *pick(&mut rng, &hosts);
        let ports = network.open_ports(host);
        if ports.is_empty() {
            continue;
        }
        let port = *pick(&mut rng, &ports);
        let says = says(&mut rng);
        let patience = Duration::from_millis(rng.random_range(0..PATIENCE_MAX_MS));
        tokio::spawn(timeout(patience, tried((ip, port), says)));
    }
}

async fn tried(address: (IpAddr, u16), says: Vec<u8>) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(&says).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(())
}

fn says(rng: &mut StdRng) -> Vec<u8> {
    match rng.random_range(0..4) {
        0 => noise(rng),
        1 => pick(rng, &REQUESTS).as_bytes().to_vec(),
        2 => {
            let mut says = HELLO.to_vec();
            says.push(rng.random_range(0..5));
            says.extend([4, 0]);
            says.extend(b"none");
            says.extend(noise(rng));
            says
        }
        _ => {
            let mut says = GREETING.concat();
            for _ in 0..rng.random_range(1..4) {
                says.extend(message(rng));
            }
            says
        }
    }
}

fn noise(rng: &mut StdRng) -> Vec<u8> {
    let len = rng.random_range(1..200);
    (0..len).map(|_| rng.random()).collect()
}

/// A control message that is wrong somewhere, or nowhere but in what it says.
fn message(rng: &mut StdRng) -> Vec<u8> {
    let mut frames = vec![
        GUARD.to_vec(),
        VERSION.to_vec(),
        Kind::Abort.name().as_bytes().to_vec(),
        b"\x80".to_vec(),
        vec![0; 6],
    ];
    let wrong = rng.random_range(0..=frames.len());
    if let Some(frame) = frames.get_mut(wrong) {
        *frame = noise(rng);
    }
    frames.truncate(rng.random_range(1..=frames.len()));
    let last = frames.len() - 1;
    let mut bytes = Vec::new();
    for (nr, frame) in frames.iter().enumerate() {
        bytes.push(if nr < last { MORE } else { 0 });
        bytes.push(u8::try_from(frame.len()).unwrap_or(u8::MAX));
        bytes.extend(frame);
    }
    bytes
}
