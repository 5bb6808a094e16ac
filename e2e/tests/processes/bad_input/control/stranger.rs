//! A decode rank by hand: it learns prefill's layout from a refusal, registers with it, and offers
//! what it likes.

use super::super::Served;
use anyhow::{Context, Result, ensure};
use pd_e2e::attacks::zmtp::{control, handshake, read_message, welcome};
use pd_e2e::client::Client;
use pd_protocol::Role;
use pd_protocol::Transport;
use pd_protocol::bootstrap::RankAddr;
use pd_protocol::control::{
    Generation, Kind, KvArgsRegisterInfo, RegisterAck, SessionId, Status, TransferInfo,
};
use pd_protocol::layout::{KvLayout, PAGE_ORDER, ParallelLayout, RankId};
use pd_protocol::metadata::MetadataLayout;
use pd_protocol::{BootstrapRoom, KvPoll, ports};
use serde::de::DeserializeOwned;
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Prefill answers a control message within this.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// A registered decode rank.
pub(super) struct Stranger {
    pub(super) layout: KvLayout,
    session_id: SessionId,
    /// Our PUSH, prefill's PUSH, and the link that says that we live.
    to_prefill: TcpStream,
    from_prefill: TcpStream,
    liveness: TcpStream,
    rooms: u64,
}

// === impl Stranger ===

impl Stranger {
    pub(super) async fn meet(served: &Served) -> Result<Self> {
        let host = served.fleet.worker(Role::Prefill).address;
        let control_port = control_port(&served.fleet.client, host).await?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let mut to_prefill = TcpStream::connect((host, control_port)).await?;
        to_prefill.write_all(&handshake("PUSH")).await?;

        let first = registration("first", &listener, nothing(), "")?;
        let (refusal, _) = register(&mut to_prefill, &listener, &first).await?;
        let why = refusal.refused.context("an empty layout is taken")?;
        ensure!(why.contains("KV layout"), "refused because {why}");

        let RegisterAck {
            layout, kv_compat, ..
        } = refusal;
        let second = registration("second", &listener, layout.clone(), &kv_compat)?;
        let (ack, from_prefill) = register(&mut to_prefill, &listener, &second).await?;
        ensure!(ack.refused.is_none(), "refused: {:?}", ack.refused);
        let liveness = TcpStream::connect((host, ack.liveness_port)).await?;
        let mut stranger = Self {
            layout,
            session_id: second.session_id,
            to_prefill,
            from_prefill,
            liveness,
            rooms: 0,
        };
        stranger.open_liveness().await?;
        Ok(stranger)
    }

    async fn open_liveness(&mut self) -> Result<()> {
        let session = self.session_id.0.as_bytes();
        let mut hello = b"PDSVLNK1\x01".to_vec();
        hello.extend(u16::try_from(session.len())?.to_le_bytes());
        hello.extend(session);
        Ok(self.liveness.write_all(&hello).await?)
    }

    /// Offers memory for a room of its own; gives the reason for which prefill refuses it.
    pub(super) async fn offer(&mut self, pages: &[u32], row: u32, slots: &[u32]) -> Result<String> {
        self.rooms += 1;
        let room = BootstrapRoom::new(self.rooms)?;
        let info = TransferInfo {
            session_id: self.session_id.clone(),
            room,
            generation: Generation(self.rooms),
            transport: Transport::Shm,
            metadata_buffer_index: row,
            required_dst_info_num: 1,
            decode_prefix_len: 0,
            is_dummy: false,
            page_indices: Vec::new(),
            state_indices: Vec::new(),
        };
        let message = control(Kind::TransferInfo, &info, &[pages, slots])?;
        self.to_prefill.write_all(&message).await?;
        let status: Status = answer(&mut self.from_prefill, Kind::Status).await?;
        ensure!(status.room == room, "an answer about room {}", status.room);
        ensure!(
            status.poll == KvPoll::Failed,
            "room {room} is {:?}",
            status.poll
        );
        status.reason.context("a failure has a reason")
    }

    /// Closes the liveness link, by which prefill knows that the session is over.
    pub(super) async fn leave(mut self) -> Result<()> {
        Ok(self.liveness.shutdown().await?)
    }
}

/// Where prefill's bootstrap server says that its rank listens.
async fn control_port(client: &Client, host: Ipv4Addr) -> Result<u16> {
    let rank = "prefill_dp_rank=0&prefill_cp_rank=0&target_tp_rank=0&target_pp_rank=0";
    let url = format!("http://{host}:{}/route?{rank}", ports::BOOTSTRAP);
    let rank: RankAddr = serde_json::from_value(client.get(&url).await?.json()?)?;
    Ok(rank.rank_port)
}

/// A layout of no groups, which every prefill refuses.
fn nothing() -> KvLayout {
    KvLayout {
        order: PAGE_ORDER.to_owned(),
        page_size: 16,
        pages: 1,
        groups: Vec::new(),
        states: Vec::new(),
        metadata: MetadataLayout {
            hidden_size: 1,
            hidden_dtype: pd_protocol::layout::KvDtype::Float32,
        },
        metadata_rows: 1,
    }
}

fn registration(
    boot_id: &str,
    listener: &TcpListener,
    layout: KvLayout,
    kv_compat: &str,
) -> Result<KvArgsRegisterInfo> {
    let at = listener.local_addr()?;
    Ok(KvArgsRegisterInfo {
        session_id: SessionId::new(boot_id, RankId::default(), 1, 7),
        endpoint: at.ip().to_string(),
        dst_port: at.port(),
        data_port: at.port(),
        rank: RankId::default(),
        parallel: ParallelLayout::SINGLE,
        layout,
        kv_compat: kv_compat.to_owned(),
    })
}

/// Registers, and takes the connection over which the answer comes.
async fn register(
    to_prefill: &mut TcpStream,
    listener: &TcpListener,
    info: &KvArgsRegisterInfo,
) -> Result<(RegisterAck, TcpStream)> {
    to_prefill
        .write_all(&control(Kind::Register, info, &[])?)
        .await?;
    let connected = timeout(ANSWERED_WITHIN, listener.accept()).await;
    let (mut from_prefill, _) = connected.context("prefill does not call back")??;
    welcome(&mut from_prefill).await?;
    let ack = answer(&mut from_prefill, Kind::RegisterAck).await?;
    Ok((ack, from_prefill))
}

/// The body of the next message, which must be of `kind`.
async fn answer<T: DeserializeOwned>(from_prefill: &mut TcpStream, kind: Kind) -> Result<T> {
    let message = timeout(ANSWERED_WITHIN, read_message(from_prefill)).await;
    let message = message.with_context(|| format!("no {}", kind.name()))??;
    let [_, _, found, body, ..] = message.as_slice() else {
        anyhow::bail!("a message of {} frames", message.len());
    };
    ensure!(
        found == kind.name().as_bytes(),
        "{:?} came",
        String::from_utf8_lossy(found)
    );
    Ok(rmp_serde::from_slice(body)?)
}
