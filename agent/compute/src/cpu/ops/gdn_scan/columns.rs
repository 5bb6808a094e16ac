//! Some columns of one head's state over the rows of one sequence.
//!
//! With `p = k̂ᵀS` of the state before a row, that row's correction is `δ = β·(v − decay·p)`, and
//! one pass over the state makes the next one, `decay·S + k̂ ⊗ δ`, the row's output, and the next
//! row's `p`. Sums over the state's rows are one chain in ascending order per column, so columns are
//! taken together as suits the caches.

use super::factors::Factors;
use super::{Delta, Unit};
use crate::cpu::simd::dispatch::Kernel;
use crate::cpu::simd::sixteen::{LANES, Sixteen};
use crate::states::SeqStates;

/// Columns that are taken together over many rows: with k heads of 128 their state takes half of an L1
/// cache, and four chains of additions hide each other's latency.
pub(super) const COLUMNS: usize = 2 * LANES;
/// The same for few rows, which read a state from memory as it lies there.
const COLUMNS_OF_FEW: usize = 8 * LANES;
/// So many rows are few.
const FEW_ROWS: usize = 4;

/// Columns of a state: of its first row, and on to the next row.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) at: *mut f32,
    pub(super) row_stride: usize,
}

/// Per worker.
#[derive(Default)]
pub(super) struct Scratch {
    /// `[k_dim][columns, in whole vectors]`.
    state: Vec<f32>,
    /// `[k_dim]`.
    q: Vec<f32>,
    k: Vec<f32>,
    next_k: Vec<f32>,
}

/// The rows of one sequence.
pub(super) struct Scan<'a> {
    pub(super) delta: &'a Delta,
    pub(super) unit: &'a Unit,
    pub(super) seq: &'a SeqStates,
    pub(super) qkv: &'a [f32],
    pub(super) factors: &'a [f32],
    pub(super) scratch: &'a mut Scratch,
}

impl Kernel for Scan<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Sixteen>(mut self) {
        let at_once = if self.seq.rows.len() <= FEW_ROWS {
            COLUMNS_OF_FEW
        } else {
            COLUMNS
        };
        let mut first = self.unit.columns.start;
        while first < self.unit.columns.end {
            let left = self.unit.columns.end - first;
            // SAFETY: the caller's.
            first += unsafe {
                match at_once.min(left) / LANES {
                    0 => self.rows::<V, 1>(first, left),
                    1 => self.rows::<V, 1>(first, LANES),
                    2..4 => self.rows::<V, 2>(first, 2 * LANES),
                    4..8 => self.rows::<V, 4>(first, 4 * LANES),
                    _ => self.rows::<V, 8>(first, 8 * LANES),
                }
            };
        }
    }
}

// === impl Scan ===

impl Scan<'_> {
    /// `columns` columns from the `first` on, in `N` vectors: as many, or all of the last one's.
    /// Returns their number.
    ///
    /// # Safety
    /// A processor with the instruction set of `V`; no other task has these columns of this head.
    #[inline(always)]
    unsafe fn rows<V: Sixteen, const N: usize>(&mut self, first: usize, columns: usize) -> usize {
        let (delta, head, seq) = (self.delta, self.unit.head, self.seq);
        let shape = &delta.shape;
        let k_head = head / (shape.num_v_heads / shape.num_k_heads);
        let (qkv, factors) = (self.qkv, self.factors);
        let row_of = |row: usize| &qkv[row * shape.qkv_width()..(row + 1) * shape.qkv_width()];
        let q_at = k_head * shape.k_dim;
        let k_at = shape.k_width() + q_at;
        let v_at = 2 * shape.k_width() + head * shape.v_dim + first;
        let normed_k = |row: usize, out: &mut Vec<f32>| {
            let scale = Factors::of_row(shape, factors, row).k_scale(k_head);
            // SAFETY: the caller's.
            unsafe { scaled::<V>(&row_of(row)[k_at..k_at + shape.k_dim], scale, out) };
        };
        let place = |slot: usize| delta.place(slot, head, first);
        let own = self.scratch.place(shape.k_dim, N * LANES);
        let Scratch { q, k, next_k, .. } = &mut *self.scratch;
        let is_whole = columns == N * LANES;
        // SAFETY: no other sequence writes a slot that this one reads, and a slot is written once in
        // a step: so its columns are this task's.
        unsafe {
            let mut state = match seq.read {
                Some(slot) if is_whole => place(slot),
                Some(slot) => place(slot).copy_to(own, shape.k_dim, columns),
                None => own,
            };
            if let Some(first) = seq.rows.clone().next() {
                normed_k(first, k);
            }
            let mut seen = project::<V, N>(state, k);
            for row in seq.rows.clone() {
                let is_last = row + 1 == seq.rows.end;
                let next = match seq.write {
                    Some(slot) if is_last && is_whole => place(slot),
                    _ => own,
                };
                if is_last {
                    // What it makes of the state is not used.
                    next_k.clone_from(k);
                } else {
                    normed_k(row + 1, next_k);
                }
                let factors = Factors::of_row(shape, factors, row);
                let q_row = &row_of(row)[q_at..q_at + shape.k_dim];
                scaled::<V>(q_row, factors.q_scale(k_head), q);
                let decay = factors.decay(head);
                let mut deltas = [V::splat(0.0); N];
                let v = row_of(row)[v_at..v_at + columns].chunks(LANES);
                for ((delta, seen), v) in deltas.iter_mut().zip(seen).zip(v) {
                    let missing = seen.fma(V::splat(-decay), V::load_up_to(v));
                    *delta = missing.mul(V::splat(factors.beta(head)));
                }
                let read;
                (read, seen) =
                    update::<V, N>([state, next], V::splat(decay), deltas, [k, q, next_k]);
                let out = row * shape.v_width() + head * shape.v_dim + first;
                let out = delta.out.slice_mut(out..out + columns);
                for (read, out) in read.into_iter().zip(out.chunks_mut(LANES)) {
                    read.store_up_to(out);
                }
                state = next;
                std::mem::swap(k, next_k);
                if let Some(slot) = seq.snapshot_after(row) {
                    state.copy_to(place(slot), shape.k_dim, columns);
                }
            }
            if let Some(slot) = seq.write
                && state.at != place(slot).at
            {
                state.copy_to(place(slot), shape.k_dim, columns);
            }
        }
        columns
    }
}

/// `x · scale`.
///
/// # Safety
/// A processor with the instruction set of `V`.
#[inline(always)]
unsafe fn scaled<V: Sixteen>(x: &[f32], scale: f32, out: &mut Vec<f32>) {
    out.resize(x.len(), 0.0);
    for (x, out) in x.chunks(LANES).zip(out.chunks_mut(LANES)) {
        // SAFETY: the caller's; chunks have at most sixteen elements.
        unsafe { V::load_up_to(x).mul(V::splat(scale)).store_up_to(out) };
    }
}

/// `kᵀS`.
///
/// # Safety
/// A processor with the instruction set of `V`; the state has a row of `N` vectors for each of k.
#[inline(always)]
unsafe fn project<V: Sixteen, const N: usize>(state: Place, k: &[f32]) -> [V; N] {
    // SAFETY: the caller's.
    unsafe {
        let mut sums = [V::splat(0.0); N];
        for (i, k) in k.iter().enumerate() {
            let (row, k) = (state.at.add(i * state.row_stride), V::splat(*k));
            for (n, sum) in sums.iter_mut().enumerate() {
                *sum = k.fma(V::load(row.add(n * LANES)), *sum);
            }
        }
        sums
    }
}

/// Makes the next state of one; the next one's products with q and with the next k.
///
/// # Safety
/// As [`project`]; the two states are the same, or apart.
#[inline(always)]
unsafe fn update<V: Sixteen, const N: usize>(
    [state, next]: [Place; 2],
    decay: V,
    deltas: [V; N],
    [k, q, next_k]: [&Vec<f32>; 3],
) -> ([V; N], [V; N]) {
    // SAFETY: the caller's.
    unsafe {
        let (mut read, mut seen) = ([V::splat(0.0); N], [V::splat(0.0); N]);
        for (i, ((k, q), next_k)) in k.iter().zip(q).zip(next_k).enumerate() {
            let (k, q, next_k) = (V::splat(*k), V::splat(*q), V::splat(*next_k));
            let (from, to) = (
                state.at.add(i * state.row_stride),
                next.at.add(i * next.row_stride),
            );
            for n in 0..N {
                let s = V::load(from.add(n * LANES)).mul(decay);
                let s = k.fma(deltas[n], s);
                s.store(to.add(n * LANES));
                read[n] = q.fma(s, read[n]);
                seen[n] = next_k.fma(s, seen[n]);
            }
        }
        (read, seen)
    }
}

// === impl Place ===

impl Place {
    /// Copies `columns` columns of all rows, and returns where they are then.
    ///
    /// # Safety
    /// Both have them, and no other thread touches the other place meanwhile or writes this one.
    unsafe fn copy_to(self, to: Self, rows: usize, columns: usize) -> Self {
        for i in 0..rows {
            // SAFETY: the caller's.
            unsafe {
                let from = self.at.add(i * self.row_stride);
                std::ptr::copy(from, to.at.add(i * to.row_stride), columns);
            }
        }
        to
    }
}

// === impl Scratch ===

impl Scratch {
    /// A state of zeros.
    fn place(&mut self, k_dim: usize, width: usize) -> Place {
        self.state.clear();
        self.state.resize(k_dim * width, 0.0);
        self.k.resize(k_dim, 0.0);
        Place {
            at: self.state.as_mut_ptr(),
            row_stride: width,
        }
    }
}
