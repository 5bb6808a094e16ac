//! Garbage on every port that a worker listens on, the ZMQ control ports above all, and a decode
//! rank that registers properly and then offers memory that it does not have.

mod stranger;

use super::{Served, says};
use anyhow::{Context, Result};
use futures_util::future::try_join_all;
use pd_e2e::attacks::garbage::{self, Garbage};
use pd_e2e::attacks::zmtp;
use pd_e2e::attacks::{listening, unnamed_ports};
use pd_e2e::binaries;
use pd_e2e::fleet::{FleetSpec, eventually};
use pd_protocol::Role;
use std::net::SocketAddr;
use std::time::Duration;
use stranger::Stranger;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A worker that closes a connection does it within this.
const CLOSED_WITHIN: Duration = Duration::from_secs(2);
/// What was written has reached its parser within this.
const READ_WITHIN: Duration = Duration::from_secs(5);
/// Writes and stays: a connection that is closed at once may take with it what was not read yet.
async fn throw(at: SocketAddr, bytes: &[u8]) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(at).await?;
    // The peer may close before all is written.
    let _written = timeout(CLOSED_WITHIN, stream.write_all(bytes)).await?;
    Ok(stream)
}

/// Writes and waits until the other side closes.
async fn closes(at: SocketAddr, (name, bytes): &Garbage) -> Result<()> {
    let mut stream = TcpStream::connect(at).await?;
    stream.write_all(bytes).await?;
    let mut answer = Vec::new();
    // Greetings come first; a reset is a close too.
    let _ended = timeout(CLOSED_WITHIN, stream.read_to_end(&mut answer))
        .await
        .with_context(|| format!("{at} keeps the connection after {name}"))?;
    Ok(())
}

fn spec(transport: &str) -> FleetSpec {
    let mut spec = FleetSpec::new(binaries::tiny_model("tiny-llama"));
    spec.agent_args = super::words(&format!("--disaggregation-transfer-backend {transport}"));
    spec
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_on_any_port_changes_no_answer_and_holds_nothing() -> Result<()> {
    for transport in ["shm", "tcp"] {
        let served = Served::start(spec(transport)).await?;
        let mut thrown = Vec::new();
        for role in [Role::Prefill, Role::Decode] {
            for at in listening(served.fleet.worker(role).address)? {
                for (name, bytes) in garbage::all()? {
                    let stream = throw(at, &bytes).await;
                    thrown.push(stream.with_context(|| format!("{role:?} {at}: {name}"))?);
                }
            }
            has_read_it(&served, role).await?;
        }
        served.unharmed().await?;
        drop(thrown);
        served.unharmed().await?;
    }
    Ok(())
}

/// Without this, garbage that went past every parser would pass for harmless.
async fn has_read_it(served: &Served, role: Role) -> Result<()> {
    eventually(READ_WITHIN, || async {
        let log = served.fleet.worker(role).process.log();
        says(
            &log,
            &[
                "the first frame is not the guard of this protocol",
                "wire version is \"99\", but this side speaks \"1\"",
                "kind \"EXPLODE\" is not known",
                "body of REGISTER: ",
                "a page list of 3 bytes is no list of u32",
                "not a connection of this protocol",
                "closed the connection of an unknown session",
            ],
        )
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_beyond_the_bounds_close_their_connection() -> Result<()> {
    let served = Served::start(spec("auto")).await?;
    let huge = garbage::beyond_bounds();
    for role in [Role::Prefill, Role::Decode] {
        for at in unnamed_ports(served.fleet.worker(role).address)? {
            try_join_all(huge.iter().map(|garbage| closes(at, garbage))).await?;
        }
    }
    served.unharmed().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_peers_hold_up_no_other() -> Result<()> {
    let served = Served::start(spec("auto")).await?;
    let mut silent = Vec::new();
    for role in [Role::Prefill, Role::Decode] {
        for at in unnamed_ports(served.fleet.worker(role).address)? {
            for said in [
                &b""[..],
                &zmtp::greeting(3, "NULL"),
                &zmtp::handshake("PUSH"),
            ] {
                let mut stream = TcpStream::connect(at).await?;
                stream.write_all(said).await?;
                silent.push(stream);
            }
        }
    }
    served.unharmed().await?;
    drop(silent);
    served.unharmed().await
}

/// The stranger speaks the protocol and has the right layout; only its numbers are wild.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_that_a_decode_rank_does_not_have_is_refused_by_its_number() -> Result<()> {
    let served = Served::start(spec("auto")).await?;
    let mut stranger = Stranger::meet(&served).await?;
    let pages = stranger.layout.pages;
    let rows = stranger.layout.metadata_rows;
    let cases: [(&[u32], u32, &[u32], String); 4] = [
        (
            &[u32::MAX],
            0,
            &[],
            format!("page 4294967295 where there are {pages}"),
        ),
        (
            &[0, 1, pages],
            0,
            &[],
            format!("page {pages} where there are {pages}"),
        ),
        (
            &[0],
            rows,
            &[],
            format!("metadata row {rows} where there are {rows}"),
        ),
        (
            &[0],
            0,
            &[5, 6],
            "1 lists of items where there are 0 states".to_owned(),
        ),
    ];
    for (pages, row, slots, reason) in cases {
        let refusal = stranger.offer(pages, row, slots).await?;
        says(&refusal, &["decode offers ", &reason])?;
    }
    stranger.leave().await?;
    served.unharmed().await
}
