//! Behaviour of the loopback's devices, seen through the crate's public interface.

use super::Loopback;
use crate::{
    Completion, CompletionQueue, Device, HostMemory, LocalPort, MemoryRegion, PathOptions,
    PortWish, ProtectionDomain, QueuePair, QueuePairOptions, Registration, RemoteAddr, Retry,
    WcStatus, Write,
    queue_pair::{Init, Rtr, Rts},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;
use std::sync::Arc;

mod events;
mod faults;
mod freezing;
mod lifetimes;
mod refusals;
mod writes;

const BYTES: usize = 8192;

const OPTIONS: QueuePairOptions = QueuePairOptions {
    send_depth: 16,
    receive_depth: 4,
    ranges_max: 3,
    inline_bytes: 32,
};

const WITHOUT_LIMIT: Retry = Retry {
    ack_timeout: 14,
    retries: 6,
    rnr_retries: 7,
};

const WRITABLE: Registration = Registration {
    remote_write: true,
    relaxed_ordering: false,
};

/// A device in use, with a region that peers may write to.
struct End {
    device: Device,
    port: LocalPort,
    domain: ProtectionDomain,
    completions: CompletionQueue,
    memory: Arc<HostMemory>,
    region: MemoryRegion,
}

fn mk_end(loopback: &Loopback, device: &str) -> End {
    let verbs = Loopback::open().expect("it opens");
    let device = verbs.open_device(&loopback.name(device));
    let device = device.expect("it is listed");
    let port = device.choose_port(&PortWish::default());
    let domain = ProtectionDomain::new(&device).expect("a domain");
    let completions = CompletionQueue::with_events(&device, 256).expect("a queue");
    let memory = Arc::new(HostMemory::zeroed(BYTES));
    let region = domain.register(Arc::clone(&memory), WRITABLE);
    End {
        port: port.expect("it is active"),
        device,
        domain,
        completions,
        memory,
        region: region.expect("a region"),
    }
}

/// Two devices, `a` and `b`, that are connected.
struct Stand {
    loopback: Loopback,
    a: End,
    b: End,
    from_a: QueuePair<Rts>,
    from_b: QueuePair<Rts>,
}

fn mk_stand() -> Stand {
    let loopback = Loopback::new(&["a", "b"]);
    let (a, b) = (mk_end(&loopback, "a"), mk_end(&loopback, "b"));
    let (from_a, from_b) = connect(&a, &b);
    Stand {
        loopback,
        a,
        b,
        from_a,
        from_b,
    }
}

fn connect(a: &End, b: &End) -> (QueuePair<Rts>, QueuePair<Rts>) {
    let (from_a, from_b) = (a.init(), b.init());
    let (to_a, to_b) = (from_a.endpoint(), from_b.endpoint());
    (
        tie(from_a, &to_b, WITHOUT_LIMIT),
        tie(from_b, &to_a, WITHOUT_LIMIT),
    )
}

fn tie(end: QueuePair<Init>, peer: &crate::Endpoint, retry: Retry) -> QueuePair<Rts> {
    let end = end.connect(peer, PathOptions::default());
    let end: QueuePair<Rtr> = end.expect("a path");
    end.start(retry).expect("the device takes it")
}

impl End {
    fn init(&self) -> QueuePair<Init> {
        let end = QueuePair::new(&self.domain, &self.completions, &self.completions, OPTIONS);
        let end = end.expect("it fits");
        let number = end.qp_num();
        end.init(&self.port, number + 77)
            .expect("the device takes it")
    }

    /// What was polled, in order.
    fn poll(&self) -> Vec<Completion> {
        let mut found = Vec::new();
        let polled = self.completions.poll(&mut found, usize::MAX);
        polled.expect("the device answers");
        found
    }

    /// Tags and statuses of what failed; nothing else was polled.
    fn poll_failures(&self) -> Vec<(u64, WcStatus)> {
        let failure = |completion| match completion {
            Completion::Failed(error) => (error.tag, error.status),
            other @ (Completion::Written { .. }
            | Completion::Immediate { .. }
            | Completion::Stray { .. }) => panic!("no failure: {other:?}"),
        };
        self.poll().into_iter().map(failure).collect()
    }

    fn fill(&self, offset: usize, bytes: &[u8]) {
        self.memory.write(offset, bytes).expect("inside");
    }

    fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read(offset, &mut bytes).expect("inside");
        bytes
    }

    fn at(&self, offset: u64) -> RemoteAddr {
        self.region.remote().at(offset, 1).expect("inside")
    }
}

/// Posts one signalled write.
fn post(
    from: &mut QueuePair<Rts>,
    src: (&MemoryRegion, u64, u32),
    dst: RemoteAddr,
    immediate: Option<u32>,
    tag: u64,
) {
    let (region, offset, len) = src;
    let write = Write {
        src: &[region.range(offset, len).expect("inside")],
        dst,
        immediate,
        tag,
        signalled: true,
    };
    assert_eq!(from.post(&[write]).expect("the device takes it"), 1);
}

/// Posts one write of the first 64 bytes, which are too many to go inline.
fn post_plain(from: &mut QueuePair<Rts>, src: &End, dst: RemoteAddr, tag: u64) {
    post(from, (&src.region, 0, 64), dst, None, tag);
}

fn is_readable(file: impl AsFd) -> bool {
    let mut files = [PollFd::new(&file, PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut files, Some(&now)).expect("the file is open") == 1
}

fn written(from: &QueuePair<Rts>, tag: u64) -> Completion {
    let qp_num = from.qp_num();
    Completion::Written { qp_num, tag }
}
