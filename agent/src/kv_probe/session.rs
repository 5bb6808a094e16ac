//! One decode rank of a probe.

use super::args::KvProbeArgs;
use super::channel::Channel;
use super::node::{Node, draw_boot_id};
use super::pool::Pool;
use super::wire::{Offer, SendRequest, Sent};
use crate::wiring::own_address::{address_towards, own_address};
use crate::wiring::transfer_config;
use anyhow::{Context, Result, anyhow, ensure};
use pd_identity::Peers;
use pd_kv_transfer::{
    BootstrapAddr, KvReceiver, PeerTransport, ReceiverRequest, TransferConfig, TransportReport,
};
use pd_protocol::Role;
use pd_protocol::{BootstrapRoom, KvPoll};
use std::net::IpAddr;

/// The row of a session, which has one room at a time.
const ROW: u32 = 0;

pub(super) struct Session {
    node: Node,
    channel: Channel,
    transport_report: TransportReport,
    peer: BootstrapAddr,
}

// === impl Session ===

impl Session {
    /// # Errors
    /// Prefill is not there, or the manager does not start.
    pub(super) async fn open(
        args: &KvProbeArgs,
        peer: &BootstrapAddr,
        peers: &Peers,
    ) -> Result<Self> {
        let mut channel = Channel::connect(peer, peers).await?;
        let Offer { pages } = channel.offer().await?;
        let asked = args.session_pages()? * args.sessions;
        ensure!(
            asked <= pages,
            "prefill on {peer} has {pages} pages, but {asked} were requested; give both sides the same \
             --bytes"
        );
        let host = match args.host {
            Some(host) => own_address(host)?,
            None => host_towards(peer).await?,
        };
        let pool = Pool::allocate(args.session_pages()?, ROW + 1)?;
        let transport_report = TransportReport::default();
        let transfer = TransferConfig {
            transport_report: transport_report.clone(),
            ..transfer_config::build(&args.transfer, host, peers)
        };
        Ok(Self {
            node: Node::start(Role::Decode, pool, &draw_boot_id(), None, transfer)?,
            channel,
            transport_report,
            peer: peer.clone(),
        })
    }

    /// The transport to prefill; known after the first room.
    pub(super) fn link(&self) -> Option<PeerTransport> {
        self.transport_report.snapshot().into_values().next()
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.node.pool
    }

    /// Makes prefill send pages to pages here.
    ///
    /// # Errors
    /// The room failed on either side.
    pub(super) async fn receive(&mut self, src_pages: &[u32], dst_pages: &[u32]) -> Result<Sent> {
        let room = BootstrapRoom::from_random(rand::random(), 1);
        let receiver = self.node.manager.receiver(ReceiverRequest {
            bootstrap_addr: self.peer.clone(),
            room,
            prefill_dp_rank: None,
        })?;
        receiver.init(dst_pages, ROW, &[]);
        let request = SendRequest {
            bootstrap_room: room,
            page_indices: src_pages.to_vec(),
        };
        let sent = tokio::select! {
            sent = self.channel.send(&request) => sent?,
            // Otherwise prefill would wait for this room until its timeout.
            () = self.node.until(|| receiver.poll() == KvPoll::Failed) => return Err(failure(&receiver)),
        };
        self.node.until(|| receiver.released()).await;
        match receiver.poll() {
            KvPoll::Success => Ok(sent),
            KvPoll::Failed
            | KvPoll::Bootstrapping
            | KvPoll::WaitingForInput
            | KvPoll::Transferring => Err(failure(&receiver)),
        }
    }
}

fn failure(receiver: &KvReceiver) -> anyhow::Error {
    match receiver.failure_reason() {
        Some(reason) => anyhow!("room {} failed: {reason}", receiver.room()),
        None => anyhow!("room {} ended without a reason", receiver.room()),
    }
}

/// The address of this node that prefill can dial.
async fn host_towards(peer: &BootstrapAddr) -> Result<IpAddr> {
    let mut found = tokio::net::lookup_host((peer.host.as_str(), peer.port)).await?;
    let found = found.next().context("a reached host has an address")?;
    let host = address_towards(found);
    host.with_context(|| format!("no address of this node leads to {peer}; set --host"))
}
