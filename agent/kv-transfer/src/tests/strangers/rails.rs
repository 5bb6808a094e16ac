//! Unrequested writes and immediates of the rdma transport.

use super::*;
use crate::config::RdmaConfig;
use crate::transport::rdma::conversion::{to_end, to_endpoints, to_region};
use crate::transport::rdma::immediate::{Final, PROBE};
use pd_protocol::Transport;
use pd_protocol::control::{NicInfo, QueuePairEnd, RailAnswer, RailOffer};
use pd_verbs::loopback::Loopback;
use pd_verbs::queue_pair::Rts;
use pd_verbs::{
    Completion, CompletionQueue, Device, HostMemory, LocalPort, MemoryRegion, PathOptions,
    PortWish, ProtectionDomain, QueuePair, QueuePairOptions, RKey, Registration, RemoteRegion,
    Retry, Write,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;

/// Rails that the stranger breaks, one after another.
const ROUNDS: u32 = 60;

/// The stranger's NIC.
struct Nic {
    _loopback: Loopback,
    device: Device,
    port: LocalPort,
    domain: ProtectionDomain,
    memory: MemoryRegion,
}

/// One rail with one queue pair, connected and proven.
struct Rail {
    end: QueuePair<Rts>,
    completions: CompletionQueue,
    /// What decode said that may be written to: its regions, and the place for probes.
    regions: Vec<RemoteRegion>,
}

fn mk_nic() -> Nic {
    let loopback = Loopback::new(&["x"]);
    let device = Loopback::open()
        .unwrap()
        .open_device(&loopback.name("x"))
        .unwrap();
    let port = device.choose_port(&PortWish::default()).unwrap();
    let domain = ProtectionDomain::new(&device).unwrap();
    let memory = Arc::new(HostMemory::zeroed(1 << 16));
    let own = Registration {
        remote_write: false,
        relaxed_ordering: false,
    };
    Nic {
        memory: domain.register(memory, own).unwrap(),
        _loopback: loopback,
        device,
        port,
        domain,
    }
}

fn mk_transfer_over_rdma() -> TransferConfig {
    TransferConfig {
        rdma: RdmaConfig {
            devices: vec!["a".to_owned()],
            ..RdmaConfig::default()
        },
        ..mk_transfer(TransportChoice::Only(Transport::Rdma))
    }
}

impl Stranger {
    async fn rails_wanted(&mut self) {
        loop {
            if let Some(ControlMessage::RailsWanted(_)) = self.messages.recv().await {
                return;
            }
        }
    }

    async fn rail_answer(&mut self, wanted: u32) -> RailAnswer {
        loop {
            if let Some(ControlMessage::RailAnswer(answer)) = self.messages.recv().await
                && answer.epoch == wanted
            {
                return answer;
            }
        }
    }

    fn offer(&self, nic: &Nic, (rail, epoch): (u32, u32), ends: Vec<QueuePairEnd>) {
        let offer = RailOffer {
            session_id: self.registration.session_id.clone(),
            rail,
            rails: 1,
            epoch,
            nic: 0,
            from: NicInfo {
                device: "x".to_owned(),
                ethernet: true,
                gid: nic.port.gid.into(),
                mbit_per_s: None,
            },
            ends,
        };
        let offer = ControlMessage::RailOffer(Box::new(offer));
        self.outbox.send(&offer).unwrap();
    }

    /// A rail as prefill would open it.
    async fn rail(&mut self, nic: &Nic, epoch: u32) -> Rail {
        let completions = CompletionQueue::new(&nic.device, 64).unwrap();
        let options = QueuePairOptions {
            send_depth: 32,
            receive_depth: 0,
            ranges_max: 1,
            inline_bytes: 0,
        };
        let end = QueuePair::new(&nic.domain, &completions, &completions, options).unwrap();
        let end = end.init(&nic.port, epoch).unwrap();
        self.offer(nic, (0, epoch), vec![to_end(&end.endpoint())]);
        let answer = self.rail_answer(epoch).await;
        assert_eq!(answer.refused, None);
        let remote = to_endpoints(&answer.ends).unwrap();
        let end = end.connect(&remote[0], PathOptions::default()).unwrap();
        let mut rail = Rail {
            end: end.start(Retry::default()).unwrap(),
            completions,
            regions: answer.regions.into_iter().map(to_region).collect(),
        };
        let scratch = *rail.regions.last().unwrap();
        assert!(rail.write(nic, scratch, (0, 8), Some(PROBE)));
        rail
    }
}

impl Rail {
    /// Writes and waits; false if the write failed, and the rail with it.
    fn write(
        &mut self,
        nic: &Nic,
        to: RemoteRegion,
        (offset, len): (u64, u32),
        immediate: Option<u32>,
    ) -> bool {
        let source = nic.memory.range(0, len).unwrap();
        let write = Write {
            src: std::slice::from_ref(&source),
            dst: to.at(offset, len.into()).unwrap(),
            immediate,
            tag: 1,
            signalled: true,
        };
        assert_eq!(self.end.post(&[write]).unwrap(), 1);
        let mut taken = Vec::new();
        while taken.is_empty() {
            self.completions.poll(&mut taken, 1).unwrap();
            std::thread::yield_now();
        }
        matches!(taken[0], Completion::Written { .. })
    }
}

/// A place next to, around or far from memory that may be written to.
fn outside(draw: &mut StdRng, regions: &[RemoteRegion]) -> (RemoteRegion, u32) {
    let region = regions[draw.random_range(0..regions.len())];
    let len = draw.random_range(1..4096u32);
    let end = region.addr + region.len;
    let addr = match draw.random_range(0..5) {
        0 => end,
        1 => end - u64::from(len.min(7)) / 2,
        2 => region.addr - u64::from(len.min(4096)),
        3 => draw.random_range(0..1 << 47),
        _ => region.addr,
    };
    let is_inside = addr >= region.addr && addr + u64::from(len) <= end;
    let rkey = if is_inside {
        RKey(region.rkey.0.wrapping_add(draw.random_range(1..1000)))
    } else {
        region.rkey
    };
    let lie = RemoteRegion {
        addr,
        len: u64::from(len),
        rkey,
    };
    (lie, len)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_outside_and_made_up_immediates_change_nothing() {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let mut draw = StdRng::seed_from_u64(seed);
    let mut stranger = meet(mk_transfer_over_rdma(), true).await;
    let nic = mk_nic();
    stranger.rails_wanted().await;
    let mut rail = stranger.rail(&nic, 1).await;
    {
        let Stranger { decode, first, .. } = &stranger;
        decode.wait("registered", || first.poll() == KvPoll::WaitingForInput);
    }
    let (receiver, generation) = stranger.room(7, &[1, 2]).await;
    let before = stranger.decode.snapshot();
    for epoch in 2..2 + ROUNDS {
        for _ in 0..20 {
            let mut immediate: u32 = draw.random();
            if draw.random_bool(0.5) {
                // Nearly right: another row, generation or more lanes than there are.
                let near = Final {
                    row: draw.random_range(0..3),
                    generation: Final::low_bits(generation) ^ draw.random_range(0..2),
                    attempt: draw.random_range(0..3),
                    lanes: draw.random_range(2..5),
                };
                immediate = near.encode();
            }
            let ends_room = Final::decode(immediate).is_some_and(|ended| {
                ended.row == 0
                    && ended.generation == Final::low_bits(generation)
                    && ended.lanes == 1
            });
            if !ends_room {
                let scratch = *rail.regions.last().unwrap();
                assert!(rail.write(&nic, scratch, (0, 1), Some(immediate)));
            }
        }
        let (lie, len) = outside(&mut draw, &rail.regions);
        let immediate = draw.random_bool(0.5).then(|| draw.random());
        let landed = rail.write(&nic, lie, (0, len), immediate);
        assert!(!landed, "{lie:?} was written to");
        rail = stranger.rail(&nic, epoch).await;
    }
    assert_eq!(receiver.poll(), KvPoll::WaitingForInput);
    assert!(before == stranger.decode.snapshot(), "memory has changed");

    // One that ends the room without having brought its row is found out.
    let ended = Final {
        row: 0,
        generation: Final::low_bits(generation),
        attempt: 15,
        lanes: 1,
    };
    let scratch = *rail.regions.last().unwrap();
    assert!(rail.write(&nic, scratch, (0, 1), Some(ended.encode())));
    stranger
        .decode
        .wait("the room fails", || receiver.poll() == KvPoll::Failed);
    let reason = receiver.failure_reason().unwrap().to_string();
    assert!(reason.contains("corrupt transfer"), "{reason}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_rails_than_there_can_be_are_refused() {
    let mut stranger = meet(mk_transfer_over_rdma(), true).await;
    let nic = mk_nic();
    stranger.rails_wanted().await;
    stranger.offer(&nic, (u32::MAX, 1), Vec::new());
    let refused = stranger.rail_answer(1).await.refused;
    assert_eq!(refused.as_deref(), Some("there are at most 63 rails"));
    stranger.offer(&nic, (0, 2), Vec::new());
    let refused = stranger.rail_answer(2).await.refused;
    assert_eq!(
        refused.as_deref(),
        Some("a rail has 1 to 63 queue pairs, not 0")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rails_of_a_prefill_without_liveness_are_closed() {
    let mut stranger = meet_with(mk_transfer_over_rdma(), |ack| {
        ack.rdma = true;
        // No process listens there.
        ack.liveness_port = 1;
    })
    .await;
    let nic = mk_nic();
    stranger.rails_wanted().await;
    let mut rail = stranger.rail(&nic, 1).await;
    {
        let Stranger { decode, first, .. } = &stranger;
        decode.wait("it gives up", || first.poll() == KvPoll::Failed);
    }
    let region = rail.regions[0];
    assert!(
        !rail.write(&nic, region, (0, 64), None),
        "a rail is left open"
    );
}
