//! What is done to a worker's ports by those who reach them and have no part in a transfer.

use super::crowd::{Member, crowd};
use super::{Extent, Outcomes, Target, garbage as thrown, zmtp};
use crate::client::{Client, EventStream};
use crate::prompts::{greedy, ids};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use hyper::Method;
use pd_protocol::bootstrap::{PrefillServerInfo, RankAddr, RouteQuery};
use pd_protocol::control::guard::FRAME_BYTES_MAX;
use pd_protocol::control::{Abort, Generation, Kind, SessionId};
use pd_protocol::labels::{HEADER_BOOT_ID, HEADER_ROOM};
use pd_protocol::layout::RankId;
use pd_protocol::{BootstrapRoom, ports};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// Of a control message that stops, what comes of its one large frame.
const MESSAGE_PART_BYTES: usize = 256 << 10;
/// Streams whose rooms strangers try to end.
const VICTIMS: u64 = 2;
const VICTIM_TOKENS: u32 = 200;
/// Over one connection of [`keyless_frames`].
const FRAMES: usize = 64;

/// A crowd over several ports, each of which hears several things.
async fn say_to(ports: &[SocketAddr], said: &[Bytes], extent: Extent) -> Result<Outcomes> {
    crowd(extent, |nr| Member {
        to: ports[nr % ports.len()],
        says: said[nr / ports.len() % said.len()].clone(),
        reads: true,
    })
    .await
}

pub(super) async fn unfinished_greetings(target: &Target, extent: Extent) -> Result<Outcomes> {
    let mut ports = target.unnamed_ports()?;
    ports.push(target.bootstrap());
    let greeting = zmtp::greeting(3, "NULL");
    let said = [
        Bytes::new(),
        greeting[..30].to_vec().into(),
        greeting.into(),
        b"PDSVLNK1\x01\x20".to_vec().into(),
        b"PUT /route HT".to_vec().into(),
    ];
    say_to(&ports, &said, extent).await
}

pub(super) async fn unfinished_messages(target: &Target, extent: Extent) -> Result<Outcomes> {
    let mut large = zmtp::handshake("PUSH");
    large.extend(zmtp::header(0, FRAME_BYTES_MAX as u64));
    large.resize(large.len() + MESSAGE_PART_BYTES, 0);
    let mut many = zmtp::handshake("PUSH");
    many.extend(zmtp::frame(zmtp::MORE, b"part"));
    let said = [large.into(), many.into()];
    say_to(&target.unnamed_ports()?, &said, extent).await
}

pub(super) async fn garbage(target: &Target, extent: Extent) -> Result<Outcomes> {
    let mut ports = target.unnamed_ports()?;
    ports.push(target.bootstrap());
    let all = [thrown::all()?, thrown::beyond_bounds()].concat();
    let said: Vec<Bytes> = all.into_iter().map(|(_, bytes)| bytes.into()).collect();
    say_to(&ports, &said, extent).await
}

/// What strangers throw at all ports of workers that have a key: `count` frames, several over each connection, as control
/// messages, registrations, requests to end a worker, greetings of the connection port, and noise.
///
/// # Errors
/// When the workers' ports are not as expected.
pub async fn keyless_frames(target: &Target, Extent { count, hold }: Extent) -> Result<Outcomes> {
    let mut all_ports = target.unnamed_ports()?;
    all_ports.push(target.bootstrap());
    for worker in [target.prefill, target.decode] {
        all_ports.extend([ports::HTTP, ports::ADMIN].map(|port| SocketAddr::from((worker, port))));
    }
    let room = BootstrapRoom::new(7)?;
    let control = [zmtp::handshake("PUSH"), abort_message(room)?.repeat(FRAMES)].concat();
    let route = request(
        "PUT",
        "/route",
        r#"{"rank_ip":"127.250.0.1","rank_port":9}"#,
    );
    let drain = request("POST", "/drain", "");
    let said = [
        control,
        route.repeat(FRAMES),
        drain.repeat(FRAMES),
        b"PDSVLNK1\x01\x20".repeat(FRAMES),
        b"\x16\x03\x01\x00\x05hello".repeat(FRAMES),
    ]
    .map(Bytes::from);
    let extent = Extent {
        count: count.div_ceil(FRAMES),
        hold,
    };
    say_to(&all_ports, &said, extent).await
}

fn request(method: &str, path: &str, body: &str) -> Vec<u8> {
    let len = body.len();
    format!("{method} {path} HTTP/1.1\r\nhost: worker\r\ncontent-length: {len}\r\n\r\n{body}")
        .into_bytes()
}

pub(super) async fn stolen_registrations(target: &Target, extent: Extent) -> Result<Outcomes> {
    let base = format!("http://{}", target.bootstrap());
    let route = |query| format!("{base}{}", route(query));
    let topology = route(RouteQuery::TOPOLOGY);
    let asks = Client::new();
    let answer = asks.get(&topology).await?;
    let boot_id = answer.headers.get(HEADER_BOOT_ID).context("no boot id")?;
    let client = asks
        .clone()
        .with_header(HEADER_BOOT_ID, boot_id.to_str()?)?;
    let info: PrefillServerInfo = serde_json::from_value(answer.json()?)?;
    let rank = route(RouteQuery::rank(RankId::default()));
    let address = async || -> Result<RankAddr> {
        Ok(serde_json::from_value(asks.get(&rank).await?.json()?)?)
    };
    let before = address().await?;
    let mut outcomes = Outcomes::default();
    for nr in 0..extent.count {
        let port = u16::try_from(nr % 60_000)?.max(1);
        let stolen = registration(&info, "127.250.0.1", port).to_string();
        let answer = client
            .send(Method::PUT, &format!("{base}/route"), stolen)
            .await?;
        outcomes.add(format!("answered {}", answer.status.as_u16()));
    }
    let after = address().await?;
    ensure!(
        after == before,
        "the rank is at {after:?} instead of {before:?}"
    );
    Ok(outcomes)
}

fn registration(info: &PrefillServerInfo, ip: &str, port: u16) -> Value {
    json!({
        "attn_tp_size": 1, "attn_tp_rank": 0, "attn_cp_size": 1, "attn_cp_rank": 0,
        "attn_dp_size": 1, "attn_dp_rank": 0, "pp_size": 1, "pp_rank": 0,
        "system_dp_size": 1, "system_dp_rank": 0, "rank_ip": ip, "rank_port": port,
        "page_size": info.page_size, "kv_cache_dtype": info.kv_cache_dtype,
    })
}

fn route(query: RouteQuery) -> String {
    format!(
        "/route?prefill_dp_rank={}&prefill_cp_rank={}&target_tp_rank={}&target_pp_rank={}",
        query.prefill_dp_rank,
        query.prefill_cp_rank.unwrap_or(-1),
        query.target_tp_rank,
        query.target_pp_rank
    )
}

/// Streams run meanwhile, whose rooms the strangers know; each must have all of its tokens.
pub(super) async fn aborts(target: &Target, extent: Extent) -> Result<Outcomes> {
    let mut victims = Vec::new();
    let mut rooms = Vec::new();
    for seed in 0..VICTIMS {
        let mut request = greedy(&ids(seed, 24), VICTIM_TOKENS);
        request["stream"] = json!(true);
        let stream = Client::new().stream(&target.generate(), &request).await?;
        rooms.push(room_of(&stream)?);
        victims.push(stream);
    }
    let said = rooms.iter().map(|room| abort(*room));
    let said = said.collect::<Result<Vec<Bytes>>>()?;
    let outcomes = say_to(&target.unnamed_ports()?, &said, extent).await?;
    for mut victim in victims {
        let events = victim.rest().await?;
        let tokens = events
            .last()
            .map(|last| &last["meta_info"]["completion_tokens"]);
        ensure!(
            tokens == Some(&json!(VICTIM_TOKENS)),
            "a stranger ended a stream after {tokens:?} tokens: {:?}",
            events.last()
        );
    }
    Ok(outcomes)
}

fn room_of(stream: &EventStream) -> Result<BootstrapRoom> {
    let room = stream.headers.get(HEADER_ROOM);
    let room = room.with_context(|| format!("no {HEADER_ROOM} in {:?}", stream.headers))?;
    let room: u64 = room.to_str()?.parse()?;
    Ok(BootstrapRoom::new(room)?)
}

fn abort(room: BootstrapRoom) -> Result<Bytes> {
    Ok([zmtp::handshake("PUSH"), abort_message(room)?]
        .concat()
        .into())
}

fn abort_message(room: BootstrapRoom) -> Result<Vec<u8>> {
    let abort = Abort {
        session_id: SessionId("stranger/0.0.0.0/7".to_owned()),
        room,
        generation: Generation(1),
        reason: "a stranger wants it".to_owned(),
    };
    zmtp::control(Kind::Abort, &abort, &[])
}
