//! Linear weights in the order the kernels read them, made once when a model is loaded.
//!
//! `W` is `n × k`, one row per output. Packed, it is a list of blocks of [`BLOCK_LANES`] outputs;
//! inside a block k runs outermost, so one vector load yields the same k of neighbouring outputs
//! and a block is one forward stream through memory ([`layout`] has the bytes). Quantised formats
//! keep their codes and scales bit for bit and cost the bytes of the file; the kernels expand integer codes to
//! sixteen bits in registers, and floats to f32. F8E4M3 keeps its codes, and has a scale for each row where the file has one for a
//! block of rows.
//! Only three things change a stored format: a bfloat16 compute dtype turns F32 and F16 into BF16 (rounded), a
//! gate and up of different formats become F32 (exact), and BF16 lies [`compact`] where kernels take it so (exact).
//!
//! Parts joined along n (q, k, v) are segments with formats of their own, each padded with zero
//! rows to whole blocks. Gate and up are interleaved by sixteens: lanes 0–15 of a block are gate
//! rows `16·b…`, lanes 16–31 the same up rows, so that SwiGLU multiplies two vectors.

mod aligned;
pub(crate) mod compact;
mod form;
pub(crate) mod layout;
mod writer;

use crate::device_types::{Matrix, WeightMatrix};
use crate::dtype::{ComputeDtype, WeightFormat};
use crate::error::ComputeError;
use crate::k_order::{KOrder, Packing};
use crate::weight::{StoredRow, WeightSource};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use aligned::AlignedBytes;
pub(crate) use form::Bf16Form;
pub use form::PackTarget;
use form::{block_bytes, packed_form};
pub(crate) use layout::BLOCK_LANES;

/// Calls a function for every index below a count, on as many threads as the caller has.
pub type ParallelFor<'a> = &'a dyn Fn(usize, &(dyn Fn(usize) + Sync));

/// A [`ParallelFor`] of one thread.
pub fn serially(count: usize, task: &(dyn Fn(usize) + Sync)) {
    (0..count).for_each(task);
}

/// A packed `n × k` weight.
#[derive(Debug)]
pub struct PackedLinear {
    k: usize,
    out_len: usize,
    interleaved: bool,
    order: KOrder,
    segments: Vec<Segment>,
    /// Its own, or those of several weights.
    bytes: Arc<AlignedBytes>,
}

/// Blocks of one format that write neighbouring outputs.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) format: WeightFormat,
    /// Where both activations and weights are bfloat16.
    pub(crate) bf16: Option<Bf16Form>,
    /// Of all the weight's blocks, those of this segment.
    pub(crate) blocks: Range<usize>,
    /// Of an output row, the columns it writes.
    pub(crate) columns: Range<usize>,
    pub(crate) block_bytes: usize,
    /// Of its first block, in the memory of all weights that were packed with it.
    offset: usize,
}

/// A segment before it is packed, with the rows it is made of.
struct Plan<'a> {
    segment: Segment,
    k: usize,
    sources: Vec<writer::Rows<'a>>,
}

// === impl PackedLinear ===

impl PackedLinear {
    /// Packs parts that share `k`: joined along n, or interleaved, two of the same `n` as gate and up.
    ///
    /// # Errors
    /// Names the part whose bytes, shape or format do not fit.
    pub fn pack(
        parts: &[WeightSource<'_>],
        packing: Packing,
        target: PackTarget,
        parallel_for: ParallelFor<'_>,
    ) -> Result<Self, ComputeError> {
        let mut packed = Self::pack_all(&[parts], packing, target, parallel_for)?;
        Ok(packed.pop().expect("one list of parts gives one weight"))
    }

    /// Packs each list of parts as [`Self::pack`] does, one weight after another in one piece of memory.
    ///
    /// # Errors
    /// Names the part whose bytes, shape or format do not fit.
    pub fn pack_all(
        lists: &[&[WeightSource<'_>]],
        packing: Packing,
        target: PackTarget,
        parallel_for: ParallelFor<'_>,
    ) -> Result<Vec<Self>, ComputeError> {
        for form in target.bf16_forms() {
            let bf16 = (target.dtype, *form);
            if let Some(packed) = Self::pack_as(lists, packing, bf16, parallel_for)? {
                return Ok(packed);
            }
        }
        unreachable!("any weight lies whole")
    }

    /// `None` where a block of bfloat16 does not take the form.
    fn pack_as(
        lists: &[&[WeightSource<'_>]],
        packing: Packing,
        bf16: (ComputeDtype, Bf16Form),
        parallel_for: ParallelFor<'_>,
    ) -> Result<Option<Vec<Self>>, ComputeError> {
        let mut weights = Vec::with_capacity(lists.len());
        let mut orders = Vec::with_capacity(lists.len());
        let mut len = 0;
        for parts in lists {
            let plans = if packing.interleaves() {
                vec![Plan::interleaved(parts, bf16, len)?]
            } else {
                Plan::joined(parts, bf16, len)?
            };
            len = plans.last().map_or(len, |plan| plan.segment.end_offset());
            orders.push(fitting_order(packing.order(), parts, &plans)?);
            weights.push(plans);
        }
        let mut bytes = AlignedBytes::zeroed(len).ok_or_else(|| ComputeError::OutOfMemory {
            call: "alloc",
            what: lists
                .iter()
                .find_map(|parts| parts.first())
                .map_or_else(String::new, |part| part.name.to_owned()),
            bytes: len,
            reason: "the allocator refused".to_owned(),
        })?;
        let runs: Vec<(&Plan<'_>, Range<usize>)> =
            weights.iter().flatten().flat_map(Plan::runs).collect();
        let out = bytes.shared();
        let fits = AtomicBool::new(true);
        parallel_for(runs.len(), &|run| {
            let (plan, blocks) = &runs[run];
            for block in blocks.clone() {
                if !fits.load(Ordering::Relaxed) {
                    return;
                }
                let start = plan.segment.block_offset(block);
                // SAFETY: blocks lie apart, and each is written by the one run that has it.
                let out = unsafe { out.slice(start..start + plan.segment.block_bytes) };
                fits.fetch_and(plan.write_block(block, out), Ordering::Relaxed);
            }
        });
        if !fits.into_inner() {
            return Ok(None);
        }
        let bytes = Arc::new(bytes);
        let weight = |(plans, order): (Vec<Plan<'_>>, KOrder)| Self {
            k: plans.first().map_or(0, |plan| plan.k),
            out_len: plans.last().map_or(0, |plan| plan.segment.columns.end),
            interleaved: packing.interleaves(),
            order,
            segments: plans.into_iter().map(|plan| plan.segment).collect(),
            bytes: Arc::clone(&bytes),
        };
        Ok(Some(weights.into_iter().zip(orders).map(weight).collect()))
    }

    /// Length of an input row.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Length of an output row: n, or n / 2 of an interleaved weight.
    pub fn out_len(&self) -> usize {
        self.out_len
    }

    pub fn is_interleaved(&self) -> bool {
        self.interleaved
    }

    /// Blocks of 32 weight rows, the unit in which work on a weight is divided.
    pub fn block_count(&self) -> usize {
        self.segments.last().map_or(0, |segment| segment.blocks.end)
    }

    /// All blocks: what a single-row product reads.
    pub fn packed_bytes(&self) -> &[u8] {
        let start = self.segments.first().map_or(0, |segment| segment.offset);
        let end = self.segments.last().map_or(start, Segment::end_offset);
        &self.bytes.as_slice()[start..end]
    }

    /// Outputs that a block computes.
    pub(crate) fn columns_per_block(&self) -> usize {
        if self.interleaved {
            BLOCK_LANES / 2
        } else {
            BLOCK_LANES
        }
    }

    /// A chain where it was packed for a tree, but k has no eight shares.
    pub(crate) fn order(&self) -> KOrder {
        self.order
    }

    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    pub(crate) fn block(&self, segment: &Segment, block: usize) -> &[u8] {
        let start = segment.block_offset(block);
        &self.bytes.as_slice()[start..start + segment.block_bytes]
    }
}

impl WeightMatrix for Arc<PackedLinear> {
    fn k_order(&self) -> KOrder {
        self.order
    }
}

impl Matrix for Arc<PackedLinear> {
    fn n(&self) -> usize {
        if self.interleaved {
            2 * self.out_len
        } else {
            self.out_len
        }
    }

    fn k(&self) -> usize {
        self.k
    }
}

/// Blocks one thread packs at a time: enough that handing them out costs nothing.
const BLOCKS_PER_RUN: usize = 4;

pub(crate) fn intersection(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    a.start.max(b.start)..a.end.min(b.end)
}

// === impl Segment ===

impl Segment {
    fn block_offset(&self, block: usize) -> usize {
        self.offset + (block - self.blocks.start) * self.block_bytes
    }

    fn end_offset(&self) -> usize {
        self.offset + self.blocks.len() * self.block_bytes
    }

    /// Output columns of `block`.
    pub(crate) fn block_columns(&self, block: usize, columns_per_block: usize) -> Range<usize> {
        let start = self.columns.start + (block - self.blocks.start) * columns_per_block;
        start..self.columns.end.min(start + columns_per_block)
    }
}

// === impl Plan ===

impl<'a> Plan<'a> {
    /// Parts one after another, from byte `start` on.
    fn joined(
        parts: &[WeightSource<'a>],
        bf16: (ComputeDtype, Bf16Form),
        start: usize,
    ) -> Result<Vec<Self>, ComputeError> {
        let mut plans: Vec<Self> = Vec::with_capacity(parts.len());
        for part in parts {
            check_same("k", part, part.k, parts[0].k)?;
            let rows = writer::Rows::new(part)?;
            let before = plans.last().map(|plan| &plan.segment);
            let (block, column, offset) = before.map_or((0, 0, start), |s| {
                (s.blocks.end, s.columns.end, s.end_offset())
            });
            let (format, bf16) = packed_form(part.format, part.k, bf16);
            plans.push(Self {
                segment: Segment {
                    format,
                    bf16,
                    blocks: block..block + part.n.div_ceil(BLOCK_LANES),
                    columns: column..column + part.n,
                    block_bytes: block_bytes(format, bf16, part.k),
                    offset,
                },
                k: part.k,
                sources: vec![rows],
            });
        }
        Ok(plans)
    }

    /// The rows of gate and up in turns, from byte `start` on.
    fn interleaved(
        parts: &[WeightSource<'a>],
        bf16: (ComputeDtype, Bf16Form),
        start: usize,
    ) -> Result<Self, ComputeError> {
        let [gate, up] = parts else {
            return Err(ComputeError::WeightShape {
                name: parts
                    .first()
                    .map_or_else(String::new, |part| part.name.to_owned()),
                reason: format!("{} parts to interleave; gate and up are two", parts.len()),
            });
        };
        check_same("n", up, up.n, gate.n)?;
        check_same("k", up, up.k, gate.k)?;
        let stored = if gate.format == up.format {
            gate.format
        } else {
            WeightFormat::F32
        };
        let (format, bf16) = packed_form(stored, gate.k, bf16);
        Ok(Self {
            segment: Segment {
                format,
                bf16,
                blocks: 0..gate.n.div_ceil(BLOCK_LANES / 2),
                columns: 0..gate.n,
                block_bytes: block_bytes(format, bf16, gate.k),
                offset: start,
            },
            k: gate.k,
            sources: vec![writer::Rows::new(gate)?, writer::Rows::new(up)?],
        })
    }

    /// Its blocks, in runs that are worth a task each.
    fn runs(&self) -> impl Iterator<Item = (&Self, Range<usize>)> {
        let blocks = self.segment.blocks.clone();
        let starts = blocks.clone().step_by(BLOCKS_PER_RUN);
        starts.map(move |start| (self, start..blocks.end.min(start + BLOCKS_PER_RUN)))
    }

    /// False where the block does not take its form.
    fn write_block(&self, block: usize, out: &mut [u8]) -> bool {
        let per_source = BLOCK_LANES / self.sources.len();
        let first = (block - self.segment.blocks.start) * per_source;
        let lanes: [Option<StoredRow<'_>>; BLOCK_LANES] = std::array::from_fn(|lane| {
            self.sources[lane / per_source].get(first + lane % per_source)
        });
        let format = self.segment.format;
        match self.segment.bf16 {
            None | Some(Bf16Form::Whole) => {
                writer::write_block(format, &lanes, self.k, out);
                true
            }
            Some(Bf16Form::Compact) => {
                let mut whole = vec![0; layout::block_bytes(format, self.k)];
                writer::write_block(format, &lanes, self.k, &mut whole);
                compact::write_block(&whole, self.k, out)
            }
        }
    }
}

/// `order`, or a chain where it has all of a k that has no shares of whole pairs and groups of each format.
fn fitting_order(
    order: KOrder,
    parts: &[WeightSource<'_>],
    plans: &[Plan<'_>],
) -> Result<KOrder, ComputeError> {
    let units = plans.iter().map(|plan| layout::k_unit(plan.segment.format));
    // Each is a multiple of those below it.
    match (parts.first(), units.max()) {
        (Some(part), Some(unit)) => order.fitting(part, unit),
        _ => Ok(order),
    }
}

fn check_same(
    what: &str,
    part: &WeightSource<'_>,
    has: usize,
    first: usize,
) -> Result<(), ComputeError> {
    if has == first {
        return Ok(());
    }
    Err(ComputeError::WeightShape {
        name: part.name.to_owned(),
        reason: format!("{what} is {has}, but {first} in the part before it"),
    })
}

#[cfg(test)]
mod tests;
