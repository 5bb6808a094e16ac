//! The end that writes.

mod failures;

use crate::pattern::{self, PIECE_BYTES, PIECES, REGION_BYTES};
use crate::wait::{self, PATIENCE};
use crate::wire::{Offer, Outcome, Wire};
use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use pd_verbs::queue_pair::Rts;
use pd_verbs::{
    Completion, CompletionQueue, Device, HostMemory, MemoryRegion, PortWish, ProtectionDomain,
    QueuePair, QueuePairOptions, RKey, Registration, RemoteAddr, RemoteRegion, Retry, Write,
};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

const ENDS: usize = 2;
const SEND_DEPTH: u32 = 48;
/// Where a piece is cut for gathering, and what goes inline of it.
const HEAD_BYTES: u32 = 5_000;
const END_BYTES: u32 = 128;

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum What {
    /// All pieces over two queue pairs, each ending with an immediate.
    Pieces,
    /// A write whose last byte is one past the region.
    Outside,
    /// Into the region, with a key that was never issued.
    WrongKey,
    /// More immediates than the receiver has receives.
    Unreceived,
    /// As many writes as fit, abandoned before they are done.
    Abandoned,
    /// One piece repeatedly, until something breaks.
    Forever,
}

struct Writer {
    device: Device,
    completions: CompletionQueue,
    ends: Vec<QueuePair<Rts>>,
    source: MemoryRegion,
    region: RemoteRegion,
}

pub(crate) fn run(peer: SocketAddr, what: What, wish: PortWish, retry: Retry) -> Result<()> {
    let mut wire = Wire::new(TcpStream::connect(peer)?)?;
    let mut writer = Writer::build(&mut wire, wish, retry)?;
    let outcome = match what {
        What::Pieces => writer.write_pieces()?,
        What::Outside => {
            let mut dst = writer.region.at(0, 0)?;
            dst.addr += (REGION_BYTES - PIECE_BYTES + 1) as u64;
            writer.expect_failure(dst)?
        }
        What::WrongKey => {
            let dst = writer.region.at(0, PIECE_BYTES as u64)?;
            let rkey = RKey(dst.rkey.0 ^ 0x55);
            writer.expect_failure(RemoteAddr { rkey, ..dst })?
        }
        What::Unreceived => writer.flood()?,
        What::Abandoned => return writer.abandon(),
        What::Forever => return writer.write_until_failure(retry),
    };
    wire.send(&outcome)
}

// === impl Writer ===

impl Writer {
    fn build(wire: &mut Wire, wish: PortWish, retry: Retry) -> Result<Self> {
        let device = crate::devices::first()?;
        let local = device.choose_port(&wish)?;
        let domain = ProtectionDomain::new(&device)?;
        let completions = CompletionQueue::with_events(&device, 256)?;
        let memory = Arc::new(HostMemory::zeroed(PIECES * PIECE_BYTES));
        pattern::fill_source(&memory)?;
        let source = domain.register(memory, Registration::default())?;
        let options = QueuePairOptions {
            send_depth: SEND_DEPTH,
            receive_depth: 0,
            ranges_max: 2,
            inline_bytes: 256,
        };
        let mut ends = Vec::new();
        for _ in 0..ENDS {
            let end = QueuePair::new(&domain, &completions, &completions, options)?;
            ends.push(end.init(&local, rand::random())?);
        }
        wire.send(&ends.iter().map(QueuePair::endpoint).collect::<Vec<_>>())?;
        let offer: Offer = wire.hear()?;
        ensure!(
            offer.ends.len() == ENDS,
            "the receiver offers {} ends",
            offer.ends.len()
        );
        let connected = ends
            .into_iter()
            .zip(&offer.ends)
            .map(|(end, remote)| Ok(wait::connected(end, remote)?.start(retry)?));
        let ends = connected.collect::<Result<Vec<_>>>()?;
        println!(
            "connected to {}; {} bytes go inline",
            offer.ends[0].gid(),
            ends[0].inline_bytes()
        );
        Ok(Self {
            device,
            completions,
            ends,
            source,
            region: offer.region,
        })
    }

    /// Each queue pair writes every second piece, in a chain that its send queue cannot hold at once: most
    /// of a piece gathered from two ranges, and its end, which is small enough to go inline. The last of
    /// these carries an immediate.
    fn write_pieces(&mut self) -> Result<Outcome> {
        let middle_bytes = u32::try_from(PIECE_BYTES)? - HEAD_BYTES - END_BYTES;
        let end_offset = u64::from(HEAD_BYTES + middle_bytes);
        let parts = (0..PIECES).map(|piece| {
            let offset = u64::try_from(pattern::src_offset(piece))?;
            let head = self.source.range(offset, HEAD_BYTES)?;
            let middle = self
                .source
                .range(offset + u64::from(HEAD_BYTES), middle_bytes)?;
            Ok((
                [head, middle],
                [self.source.range(offset + end_offset, END_BYTES)?],
            ))
        });
        let parts = parts.collect::<Result<Vec<_>>>()?;
        for (nr, end) in self.ends.iter_mut().enumerate() {
            let mut chain = Vec::new();
            for piece in (nr..PIECES).step_by(ENDS) {
                let offset = pattern::dst_offset(piece) as u64;
                let (most, rest) = &parts[piece];
                let write = Write {
                    src: most,
                    dst: self.region.at(offset, end_offset)?,
                    immediate: None,
                    tag: chain.len() as u64,
                    signalled: false,
                };
                chain.push(write);
                chain.push(Write {
                    src: rest,
                    dst: self.region.at(offset + end_offset, u64::from(END_BYTES))?,
                    tag: chain.len() as u64,
                    ..write
                });
            }
            let last = chain.last_mut().context("a chain has pieces")?;
            last.immediate = Some(0xface_0000 + u32::try_from(nr)?);
            last.signalled = true;
            post_all(end, &self.completions, &chain)?;
        }
        Ok(Outcome::Written { immediates: ENDS })
    }
}

/// Posts a whole chain: what fits, then the rest as completions come.
fn post_all(
    end: &mut QueuePair<Rts>,
    completions: &CompletionQueue,
    chain: &[Write<'_>],
) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let last = chain.last().map(|write| write.tag);
    let taken = end.post(chain)?;
    let more = end.post(&chain[taken..])?;
    println!(
        "a chain of {}: {taken} taken, then {more}; {} free",
        chain.len(),
        end.free()
    );
    ensure!(
        taken == SEND_DEPTH as usize && more == 0,
        "the send queue has {SEND_DEPTH} places"
    );
    let mut left = &chain[taken..];
    loop {
        for completion in wait::completions(completions, deadline)? {
            let Completion::Written { tag, .. } = completion else {
                bail!("not a write's completion: {completion:?}");
            };
            if Some(tag) == last {
                ensure!(
                    left.is_empty() && end.outstanding() == 0,
                    "it overtook others"
                );
                return Ok(());
            }
        }
        let taken = end.post(left)?;
        left = &left[taken..];
    }
}
