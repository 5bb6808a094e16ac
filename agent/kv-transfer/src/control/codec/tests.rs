//! Golden frames of every message, and frames of strangers.

use super::*;
use pd_protocol::Transport;
use pd_protocol::control::chunk::LastPull;
use pd_protocol::control::{
    Abort, AbortAck, ChunkDone, ChunkReady, Generation, KvArgsRegisterInfo, NicInfo, QueuePairEnd,
    RailAnswer, RailClosed, RailDown, RailOffer, RailsWanted, RegionKey, RegisterAck, SessionId,
    ShmOffer, Status, TransferInfo,
};
use pd_protocol::layout::{
    KvCut, KvDtype, KvGroup, KvLayout, PAGE_ORDER, ParallelLayout, RankId, StateLayout,
    StateTensor, StateType,
};
use pd_protocol::metadata::MetadataLayout;
use pd_protocol::{BootstrapRoom, KvPoll};
use proptest::prelude::*;

fn mk_layout() -> KvLayout {
    KvLayout {
        order: PAGE_ORDER.to_owned(),
        page_size: 16,
        pages: 1024,
        groups: vec![KvGroup {
            name: "full".to_owned(),
            dtype: KvDtype::Bfloat16,
            head_dim: 64,
            tensors: 2,
            total_heads: 8,
            head_start: 0,
            heads: 8,
            cuts: vec![KvCut {
                first_layer: 0,
                layers: 30,
            }],
        }],
        states: vec![StateLayout {
            name: "recurrent".to_owned(),
            state_type: StateType::Mamba,
            slots: 8,
            tensors: vec![StateTensor {
                name: "conv".to_owned(),
                total_dim: 16,
                dim_start: 8,
                dim: 8,
                first_layer: 0,
                layers: 4,
                layer_bytes: 128,
            }],
        }],
        metadata: MetadataLayout {
            hidden_size: 576,
            hidden_dtype: KvDtype::Bfloat16,
        },
        metadata_rows: 32,
    }
}

fn mk_session() -> SessionId {
    SessionId::new("boot-d", RankId::default(), 1, 7)
}

fn mk_registration() -> [ControlMessage; 2] {
    let session_id = mk_session();
    let info = KvArgsRegisterInfo {
        session_id: session_id.clone(),
        endpoint: "127.0.0.3".to_owned(),
        dst_port: 41_000,
        data_port: 41_001,
        rank: RankId::default(),
        parallel: ParallelLayout::SINGLE,
        layout: mk_layout(),
        kv_compat: "c0ffee".to_owned(),
    };
    let ack = RegisterAck {
        session_id,
        boot_id: "boot-p".to_owned(),
        rank: RankId::default(),
        layout: mk_layout(),
        kv_compat: "c0ffee".to_owned(),
        liveness_port: 42_001,
        shm: Some(ShmOffer {
            host_id: "host".to_owned(),
            socket_name: "pdserve-kv-boot-p".to_owned(),
            in_dir: false,
        }),
        tcp: true,
        rdma: true,
        honours_prefix: true,
        refused: None,
    };
    [
        ControlMessage::Register(Box::new(info)),
        ControlMessage::RegisterAck(Box::new(ack)),
    ]
}

fn mk_rails() -> [ControlMessage; 5] {
    let (session_id, rail, epoch) = (mk_session(), 1, 2);
    let gid = "::ffff:10.9.0.1".parse().unwrap();
    let nic = |device: &str| NicInfo {
        device: device.to_owned(),
        ethernet: true,
        gid,
        mbit_per_s: Some(400_000),
    };
    let end = QueuePairEnd {
        qp_num: 0x01_0203,
        psn: 0x0a_0b0c,
        lid: 0,
        gid,
        mtu: 4096,
    };
    [
        ControlMessage::RailsWanted(RailsWanted {
            session_id: session_id.clone(),
            nics: vec![nic("mlx5_0"), nic("mlx5_1")],
        }),
        ControlMessage::RailOffer(Box::new(RailOffer {
            session_id: session_id.clone(),
            rail,
            rails: 2,
            epoch,
            nic: 1,
            from: nic("mlx5_3"),
            ends: vec![end],
        })),
        ControlMessage::RailAnswer(RailAnswer {
            session_id: session_id.clone(),
            rail,
            epoch,
            ends: vec![end],
            regions: vec![RegionKey {
                addr: 0x7f00_0000_0000,
                len: 1 << 30,
                rkey: 0x1234,
            }],
            refused: None,
        }),
        ControlMessage::RailDown(RailDown {
            session_id: session_id.clone(),
            rail,
            epoch,
            reason: "IBV_WC_RETRY_EXC_ERR".to_owned(),
        }),
        ControlMessage::RailClosed(RailClosed {
            session_id,
            rail,
            epoch,
            waiting: vec![Generation(7)],
        }),
    ]
}

fn mk_transfer() -> [ControlMessage; 3] {
    let room = BootstrapRoom::new(1001).unwrap();
    let generation = Generation(7);
    [
        ControlMessage::TransferInfo(TransferInfo {
            session_id: mk_session(),
            room,
            generation,
            transport: Transport::Tcp,
            metadata_buffer_index: 3,
            required_dst_info_num: 1,
            decode_prefix_len: 32,
            is_dummy: false,
            page_indices: vec![5, 6, 0x0102_0304],
            state_indices: vec![vec![2], vec![7, 9]],
        }),
        ControlMessage::ChunkReady(ChunkReady {
            session_id: mk_session(),
            room,
            generation,
            lease_idx: 9,
            lease: 11,
            first_page: 2,
            last: Some(LastPull {
                metadata_buffer_index: 4,
            }),
            page_indices: vec![8],
            state_indices: vec![vec![1], Vec::new()],
        }),
        ControlMessage::ChunkDone(ChunkDone {
            session_id: mk_session(),
            room,
            generation,
            first_page: 2,
            bytes: 4096,
            duration_ns: 1500,
            last: true,
        }),
    ]
}

fn mk_endings() -> [ControlMessage; 3] {
    let session_id = mk_session();
    let room = BootstrapRoom::new(1001).unwrap();
    let generation = Generation(7);
    [
        ControlMessage::Status(Status {
            session_id: session_id.clone(),
            room,
            generation,
            poll: KvPoll::Failed,
            reason: Some("network: gone".to_owned()),
        }),
        ControlMessage::Abort(Abort {
            session_id: session_id.clone(),
            room,
            generation,
            reason: "client gone".to_owned(),
        }),
        ControlMessage::AbortAck(AbortAck {
            session_id,
            room,
            generation,
        }),
    ]
}

fn mk_messages() -> Vec<ControlMessage> {
    mk_registration()
        .into_iter()
        .chain(mk_transfer())
        .chain(mk_endings())
        .chain(mk_rails())
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn frames_of_every_message_are_pinned() {
    for message in mk_messages() {
        let frames = encode(&message);
        let kind = String::from_utf8(frames[2].to_vec()).unwrap();
        let lines: Vec<String> = frames.iter().map(|frame| hex(frame)).collect();
        insta::assert_snapshot!(kind, lines.join("\n"));
    }
}

#[test]
fn every_message_reads_back_as_written() {
    for message in mk_messages() {
        assert_eq!(decode(&encode(&message)).unwrap(), message);
    }
}

#[test]
fn fields_of_a_later_release_are_ignored() {
    #[derive(Serialize)]
    struct Later {
        session_id: SessionId,
        room: u64,
        generation: Generation,
        colour: &'static str,
    }
    let later = Later {
        session_id: SessionId::new("b", RankId::default(), 1, 7),
        room: 1,
        generation: Generation(1),
        colour: "blue",
    };
    assert!(decode(&frames(Kind::AbortAck, &later, &[])).is_ok());
}

#[test]
fn another_guard_version_or_kind_is_refused() {
    let good = encode(&mk_messages()[5]);
    for (frame, error) in [(0, "guard"), (1, "version"), (2, "kind"), (3, "body")] {
        let mut bad = good.clone();
        bad[frame] = Bytes::from_static(b"MoriMsgGuard");
        let message = decode(&bad).unwrap_err().to_string();
        assert!(message.contains(error), "{message}");
    }
    assert!(decode(&good[..3]).is_err());
    assert!(decode(&[]).is_err());
}

#[test]
fn room_zero_and_a_torn_page_list_are_refused() {
    let mut bad = encode(&mk_messages()[2]);
    bad[4] = Bytes::from_static(b"12345");
    assert!(matches!(decode(&bad), Err(FrameError::PageList(5))));
    #[derive(Serialize)]
    struct Zero {
        session_id: SessionId,
        room: u64,
        generation: Generation,
    }
    let zero = Zero {
        session_id: SessionId::new("b", RankId::default(), 1, 7),
        room: 0,
        generation: Generation(1),
    };
    assert!(decode(&frames(Kind::AbortAck, &zero, &[])).is_err());
}

proptest! {
    #[test]
    fn arbitrary_frames_never_panic(
        kind in 0usize..13,
        body in prop::collection::vec(any::<u8>(), 0..200),
        list in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let frames = [
            Bytes::from_static(GUARD),
            Bytes::from_static(VERSION),
            Bytes::from_static(Kind::ALL[kind].name().as_bytes()),
            Bytes::from(body),
            Bytes::from(list),
        ];
        let _ = decode(&frames);
    }

    #[test]
    fn a_damaged_message_never_panics(which in 0usize..13, at: prop::sample::Index, byte: u8) {
        let mut frames = encode(&mk_messages()[which]);
        let mut body = frames[3].to_vec();
        let at = at.index(body.len());
        body[at] = byte;
        frames[3] = Bytes::from(body);
        let _ = decode(&frames);
    }
}
