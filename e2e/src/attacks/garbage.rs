//! What strangers write to a port: from noise to messages that are wrong in one place only.

use super::zmtp::{COMMAND, MORE, control, frame, greeting, handshake, header, message, ready};
use anyhow::Result;
use pd_protocol::Transport;
use pd_protocol::control::guard::{FRAME_BYTES_MAX, FRAMES_MAX};
use pd_protocol::control::{
    Abort, ChunkReady, GUARD, Generation, Kind, SessionId, Status, TransferInfo, VERSION,
};
use pd_protocol::{BootstrapRoom, KvPoll};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Longest frame that a gate passes on. Source: `pd_protocol::control::guard`.
const BEYOND: u64 = FRAME_BYTES_MAX as u64 + 1;

/// Bytes of one connection, and a name for messages.
pub type Garbage = (&'static str, Vec<u8>);

pub fn all() -> Result<Vec<Garbage>> {
    Ok([noise(), greetings(), frames(), control_messages()?].concat())
}

fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = StdRng::seed_from_u64(seed);
    (0..len).map(|_| rng.random()).collect()
}

fn noise() -> Vec<Garbage> {
    vec![
        ("nothing", Vec::new()),
        ("one byte", vec![0xff]),
        ("64 random bytes", random(1, 64)),
        ("200,000 random bytes", random(2, 200_000)),
        ("zeros", vec![0; 4096]),
        (
            "an HTTP request",
            b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec(),
        ),
        (
            "a TLS hello",
            [&[0x16, 3, 1, 2, 0, 1][..], &random(3, 507)].concat(),
        ),
        (
            "a link of an unknown kind",
            b"PDSVLNK1\x09\x01\x00x".to_vec(),
        ),
        (
            "a link with a long session id",
            b"PDSVLNK1\x01\xff\xff".to_vec(),
        ),
        (
            "a liveness connection of no session",
            b"PDSVLNK1\x01\x06\x00no-one".to_vec(),
        ),
        (
            "a data connection of no session",
            [&b"PDSVLNK1\x02\x06\x00no-one"[..], &random(4, 5000)].concat(),
        ),
    ]
}

fn greetings() -> Vec<Garbage> {
    let after = |first: Vec<u8>, rest: &[u8]| [first, rest.to_vec()].concat();
    vec![
        ("half a greeting", greeting(3, "NULL")[..30].to_vec()),
        (
            "another version",
            after(greeting(1, "NULL"), &ready("PUSH")),
        ),
        (
            "another mechanism",
            after(greeting(3, "CURVE"), &ready("PUSH")),
        ),
        (
            "noise after a greeting",
            after(greeting(3, "NULL"), &random(5, 3000)),
        ),
        ("another socket type", handshake("REP")),
        (
            "a socket type that is none",
            after(greeting(3, "NULL"), &ready("\u{7f}\u{80}")),
        ),
        (
            "a command that is none",
            after(
                greeting(3, "NULL"),
                &frame(COMMAND, b"\x05REAGY\xff\xff\xff"),
            ),
        ),
        (
            "a property longer than its command",
            after(
                greeting(3, "NULL"),
                &frame(COMMAND, b"\x05READY\x0bSocket-Type\xff\xff\xff\xffPUSH"),
            ),
        ),
        (
            "a message before the handshake",
            after(
                greeting(3, "NULL"),
                &message(&[GUARD, VERSION, b"ABORT", b""]),
            ),
        ),
    ]
}

fn frames() -> Vec<Garbage> {
    let sends = |parts: &[&[u8]]| [handshake("PUSH"), message(parts)].concat();
    vec![
        (
            "no guard",
            sends(&[b"WrongGuard", VERSION, b"ABORT", b"\x80"]),
        ),
        (
            "another wire version",
            sends(&[GUARD, b"99", b"ABORT", b"\x80"]),
        ),
        (
            "an unknown kind",
            sends(&[GUARD, VERSION, b"EXPLODE", b"\x80"]),
        ),
        ("too few frames", sends(&[GUARD, VERSION])),
        ("an empty frame", sends(&[b""])),
        ("as many frames as fit", sends(&[GUARD; 8])),
        (
            "a body that is no map",
            sends(&[GUARD, VERSION, b"REGISTER", &random(6, 300)]),
        ),
        (
            "an empty map",
            sends(&[GUARD, VERSION, b"TRANSFER_INFO", b"\x80"]),
        ),
        (
            "a map that states four billion entries",
            sends(&[GUARD, VERSION, b"REGISTER", b"\xdf\xff\xff\xff\xff"]),
        ),
        (
            "nested lists without end",
            sends(&[GUARD, VERSION, b"STATUS", &[0x91; 50_000]]),
        ),
        (
            "half a message",
            [handshake("PUSH"), frame(MORE, GUARD)].concat(),
        ),
        (
            "half a frame",
            [handshake("PUSH"), vec![0, 200, 1, 2, 3]].concat(),
        ),
        (
            "noise as frames",
            [handshake("PUSH"), random(7, 20_000)].concat(),
        ),
    ]
}

/// Frames for which a connection must be closed, before anything is kept for them.
pub fn beyond_bounds() -> Vec<Garbage> {
    let sends = |bytes: Vec<u8>| [handshake("PUSH"), bytes].concat();
    vec![
        ("a frame of 2^64 - 1 bytes", sends(header(0, u64::MAX))),
        ("a frame of 2^62 bytes", sends(header(MORE, 1 << 62))),
        ("a frame just beyond the bound", sends(header(0, BEYOND))),
        ("a huge command", sends(header(COMMAND, 1 << 40))),
        (
            "a message without end",
            sends(frame(MORE, GUARD).repeat(FRAMES_MAX + 1)),
        ),
        (
            "a huge frame in place of a handshake",
            [greeting(3, "NULL"), header(0, u64::MAX)].concat(),
        ),
    ]
}

/// Well-formed messages of no session, with numbers from nowhere.
fn control_messages() -> Result<Vec<Garbage>> {
    let session_id = SessionId("stranger/0.0.0.0/7".to_owned());
    let room = BootstrapRoom::new(77)?;
    let generation = Generation(u64::MAX);
    let info = TransferInfo {
        session_id: session_id.clone(),
        room,
        generation,
        transport: Transport::Shm,
        metadata_buffer_index: u32::MAX,
        required_dst_info_num: u32::MAX,
        decode_prefix_len: u32::MAX,
        is_dummy: false,
        page_indices: Vec::new(),
        state_indices: Vec::new(),
    };
    let ready = ChunkReady {
        session_id: session_id.clone(),
        room,
        generation,
        lease_idx: u32::MAX,
        lease: u64::MAX,
        first_page: u32::MAX,
        last: None,
        page_indices: Vec::new(),
        state_indices: Vec::new(),
    };
    let status = Status {
        session_id: session_id.clone(),
        room,
        generation,
        poll: KvPoll::Success,
        reason: None,
    };
    let abort = Abort {
        session_id,
        room,
        generation,
        reason: "for no reason".to_owned(),
    };
    let wild: &[u32] = &[0, u32::MAX, 1 << 31];
    let body = rmp_serde::to_vec_named(&info)?;
    let kind = Kind::TransferInfo.name().as_bytes();
    let odd_list = message(&[GUARD, VERSION, kind, &body, &[1, 2, 3]]);
    let sends = |bytes: Vec<u8>| [handshake("PUSH"), bytes].concat();
    Ok(vec![
        (
            "a TransferInfo of no session",
            sends(control(Kind::TransferInfo, &info, &[wild, wild])?),
        ),
        ("a page list of three bytes", sends(odd_list)),
        (
            "a ChunkReady of no session",
            sends(control(Kind::ChunkReady, &ready, &[wild, wild])?),
        ),
        (
            "a Status of no session",
            sends(control(Kind::Status, &status, &[])?),
        ),
        (
            "an Abort of no session",
            sends(control(Kind::Abort, &abort, &[])?),
        ),
        (
            "a body of another kind",
            sends(control(Kind::RegisterAck, &abort, &[])?),
        ),
    ])
}
