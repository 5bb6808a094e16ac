//! The end that offers memory. It never writes, so its queue pairs stop at RTR.

use crate::pattern::{self, GUARD_BYTES, REGION_BYTES};
use crate::wait::{self, PATIENCE};
use crate::wire::{Offer, Outcome, Wire};
use anyhow::{Result, bail, ensure};
use pd_verbs::queue_pair::Rtr;
use pd_verbs::{
    Completion, CompletionQueue, Endpoint, HostMemory, MemoryRegion, PortWish, ProtectionDomain,
    QueuePair, QueuePairOptions, Registrable, Registration,
};
use std::net::{SocketAddr, TcpListener};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

/// Receives of each end.
pub(crate) const RECEIVES: u32 = 8;

/// The middle of some memory; what lies around it is not registered.
struct Middle(Arc<HostMemory>);

#[expect(unsafe_code, reason = "states where the memory is")]
// SAFETY: the range lies within memory that it owns, which is mapped, writable, touched by raw copies
// only, and does not move.
unsafe impl Registrable for Middle {
    fn range(&self) -> (NonNull<u8>, usize) {
        let (start, len) = Registrable::range(&self.0);
        assert_eq!(len, REGION_BYTES + 2 * GUARD_BYTES);
        // SAFETY: the guard is shorter than the memory.
        (unsafe { start.add(GUARD_BYTES) }, REGION_BYTES)
    }
}

struct Receiver {
    completions: CompletionQueue,
    ends: Vec<QueuePair<Rtr>>,
    memory: Arc<HostMemory>,
    _region: MemoryRegion,
}

pub(crate) fn run(listen: SocketAddr, wish: PortWish) -> Result<()> {
    let listener = TcpListener::bind(listen)?;
    println!("listening");
    let (stream, _) = listener.accept()?;
    let mut wire = Wire::new(stream)?;
    let remotes: Vec<Endpoint> = wire.hear()?;
    let (receiver, offer) = Receiver::build(&remotes, wish)?;
    wire.send(&offer)?;
    match wire.hear()? {
        Outcome::Written { immediates } => {
            let counted = receiver.count_immediates(immediates)?;
            pattern::check(&receiver.memory, true)?;
            println!("all bytes as written, gaps and guards untouched, immediates {counted:?}");
        }
        Outcome::Refused => {
            pattern::check(&receiver.memory, false)?;
            println!("region and guards untouched");
        }
    }
    Ok(())
}

// === impl Receiver ===

impl Receiver {
    fn build(remotes: &[Endpoint], wish: PortWish) -> Result<(Self, Offer)> {
        let device = crate::devices::first()?;
        let local = device.choose_port(&wish)?;
        let domain = ProtectionDomain::new(&device)?;
        let completions = CompletionQueue::with_events(&device, 64)?;
        let memory = Arc::new(HostMemory::zeroed(REGION_BYTES + 2 * GUARD_BYTES));
        pattern::fill_untouched(&memory)?;
        let registration = Registration {
            remote_write: true,
            relaxed_ordering: true,
        };
        let region = domain.register(Middle(Arc::clone(&memory)), registration)?;
        let options = QueuePairOptions {
            send_depth: 0,
            receive_depth: RECEIVES,
            ranges_max: 1,
            inline_bytes: 0,
        };
        let mut offer = Offer {
            ends: Vec::new(),
            region: region.remote(),
        };
        let mut ends = Vec::new();
        for remote in remotes {
            let end = QueuePair::new(&domain, &completions, &completions, options)?;
            let mut end = end.init(&local, rand::random())?;
            let posted = end.post_receives(RECEIVES + 1)?;
            ensure!(
                posted == RECEIVES,
                "{posted} receives fit where {RECEIVES} should"
            );
            offer.ends.push(end.endpoint());
            ends.push(wait::connected(end, remote)?);
        }
        let receiver = Self {
            completions,
            ends,
            memory,
            _region: region,
        };
        Ok((receiver, offer))
    }

    /// Waits for `wanted` immediates; their numbers, sorted.
    fn count_immediates(&self, wanted: usize) -> Result<Vec<u32>> {
        let deadline = Instant::now() + PATIENCE;
        let mut counted = Vec::new();
        while counted.len() < wanted {
            for completion in wait::completions(&self.completions, deadline)? {
                let Completion::Immediate { immediate, .. } = completion else {
                    bail!("not an immediate: {completion:?}");
                };
                counted.push(immediate);
            }
        }
        let left: u32 = self.ends.iter().map(QueuePair::receives_posted).sum();
        let posted = RECEIVES as usize * self.ends.len();
        ensure!(
            left as usize + wanted == posted,
            "{left} of {posted} receives are left"
        );
        counted.sort_unstable();
        Ok(counted)
    }
}
