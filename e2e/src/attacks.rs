//! What hostile clients and strangers do to a router and its workers, over and over: each attack against real
//! processes, at any count, with what became of each try.
//!
//! `http` holds those of clients, `strangers` those of all who reach a worker's ports, and `crowd` the connections that
//! they open. [`Target`] says where.

mod crowd;
pub mod garbage;
mod http;
mod outcome;
mod strangers;
pub mod usage;
pub mod zmtp;

pub use outcome::Outcomes;
pub use strangers::keyless_frames;

use crate::fleet::Fleet;
use anyhow::{Result, ensure};
use pd_protocol::{Role, ports};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// `st` of a listening socket in `/proc/net/tcp`.
const LISTENS: &str = "0A";

/// Where the attacked listen.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub router: SocketAddr,
    pub prefill: Ipv4Addr,
    pub decode: Ipv4Addr,
}

/// How often something is tried, and how long its connections stay.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub count: usize,
    /// What is still open after this is closed by the attacker.
    pub hold: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// Requests whose head stops in its middle.
    HalfHeads,
    /// Connections that say nothing.
    IdleConnections,
    /// Requests with ten thousand headers, or with one of a megabyte.
    HeaderFloods,
    /// Prompts of 32 MB.
    LongPrompts,
    /// Bodies that stop after their first mebibyte.
    UnfinishedBodies,
    /// Streams with log probabilities that are not read.
    UnreadStreams,
    /// Streams that are left after their first event.
    AbandonedStreams,
    /// Half greetings on the control, connection and bootstrap ports.
    UnfinishedGreetings,
    /// Control messages that stop in their middle.
    UnfinishedMessages,
    /// Noise, greetings, frames and messages that are wrong in one place.
    Garbage,
    /// `PUT /route` in the name of a rank, with the boot id that everyone can read.
    StolenRegistrations,
    /// Aborts of rooms in use, by sessions that take no part in them.
    StrangersAborts,
}

// === impl Attack ===

impl Attack {
    pub const ALL: [Self; 12] = [
        Self::HalfHeads,
        Self::IdleConnections,
        Self::HeaderFloods,
        Self::LongPrompts,
        Self::UnfinishedBodies,
        Self::UnreadStreams,
        Self::AbandonedStreams,
        Self::UnfinishedGreetings,
        Self::UnfinishedMessages,
        Self::Garbage,
        Self::StolenRegistrations,
        Self::StrangersAborts,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::HalfHeads => "half heads",
            Self::IdleConnections => "idle connections",
            Self::HeaderFloods => "header floods",
            Self::LongPrompts => "32 MB prompts",
            Self::UnfinishedBodies => "unfinished bodies",
            Self::UnreadStreams => "unread streams",
            Self::AbandonedStreams => "abandoned streams",
            Self::UnfinishedGreetings => "unfinished greetings",
            Self::UnfinishedMessages => "unfinished messages",
            Self::Garbage => "garbage frames",
            Self::StolenRegistrations => "stolen registrations",
            Self::StrangersAborts => "strangers' aborts",
        }
    }

    /// Runs it, and says what became of each try.
    ///
    /// # Errors
    /// When the target does not answer what the attack has to ask first.
    pub async fn run(self, target: &Target, extent: Extent) -> Result<Outcomes> {
        match self {
            Self::HalfHeads => http::half_heads(target, extent).await,
            Self::IdleConnections => http::idle_connections(target, extent).await,
            Self::HeaderFloods => http::header_floods(target, extent).await,
            Self::LongPrompts => http::long_prompts(target, extent).await,
            Self::UnfinishedBodies => http::unfinished_bodies(target, extent).await,
            Self::UnreadStreams => http::unread_streams(target, extent).await,
            Self::AbandonedStreams => http::abandoned_streams(target, extent).await,
            Self::UnfinishedGreetings => strangers::unfinished_greetings(target, extent).await,
            Self::UnfinishedMessages => strangers::unfinished_messages(target, extent).await,
            Self::Garbage => strangers::garbage(target, extent).await,
            Self::StolenRegistrations => strangers::stolen_registrations(target, extent).await,
            Self::StrangersAborts => strangers::aborts(target, extent).await,
        }
    }
}

// === impl Target ===

impl Target {
    /// The router and the first pair of a fleet.
    pub fn of(fleet: &Fleet) -> Self {
        Self {
            router: (fleet.router_address, ports::HTTP).into(),
            prefill: fleet.worker(Role::Prefill).address,
            decode: fleet.worker(Role::Decode).address,
        }
    }

    fn generate(&self) -> String {
        format!("http://{}/generate", self.router)
    }

    fn bootstrap(&self) -> SocketAddr {
        (self.prefill, ports::BOOTSTRAP).into()
    }

    /// Control and connection ports of both workers.
    fn unnamed_ports(&self) -> Result<Vec<SocketAddr>> {
        Ok([unnamed_ports(self.prefill)?, unnamed_ports(self.decode)?].concat())
    }
}

/// Every TCP port on which a process listens at `address`, which is one process's own.
///
/// # Errors
/// When the kernel has no table of them.
pub fn listening(address: Ipv4Addr) -> Result<Vec<SocketAddr>> {
    let table = std::fs::read_to_string("/proc/net/tcp")?;
    let host = format!("{:08X}", u32::from_ne_bytes(address.octets()));
    let rows = table.lines().map(|row| row.split_whitespace());
    let found = rows.filter_map(|mut row| {
        let (ip, port) = row.nth(1)?.split_once(':')?;
        let state = row.nth(1)?;
        let port = u16::from_str_radix(port, 16).ok()?;
        (ip == host && state == LISTENS).then(|| SocketAddr::from((address, port)))
    });
    Ok(found.collect())
}

/// Ports of a worker that no flag names: control messages, and connections.
///
/// # Errors
/// When there are not two.
pub fn unnamed_ports(worker: Ipv4Addr) -> Result<Vec<SocketAddr>> {
    let named = [ports::HTTP, ports::ADMIN, ports::BOOTSTRAP];
    let mut found = listening(worker)?;
    found.retain(|at| !named.contains(&at.port()));
    ensure!(
        found.len() == 2,
        "{worker} has a control and a connection port, not {found:?}"
    );
    Ok(found)
}
