//! A row's terms, weighed and added up within the shares of its experts and over the shares.

use super::assignment::Assignment;
use crate::cpu::memory::Dst;
use crate::cpu::queue::Exec;
use crate::cpu::simd::dispatch::Kernel;
use crate::cpu::simd::sixteen::{LANES, Sixteen};
use crate::k_order::EXPERT_SHARES;

/// What the experts made, and how it is weighed.
pub(super) struct Combination<'a> {
    pub(super) assignment: &'a Assignment,
    /// `[rows][top_k]`, as the weights.
    pub(super) chosen: &'a [u32],
    pub(super) weights: &'a [f32],
    pub(super) top_k: usize,
    pub(super) num_experts: usize,
    /// `[choices][hidden]`, in the order of the assignment.
    pub(super) terms: &'a [f32],
    pub(super) hidden: usize,
}

/// What an expert made of a row.
struct Term<'a> {
    values: &'a [f32],
    weight: f32,
    share: usize,
}

// === impl Combination ===

impl Combination<'_> {
    pub(super) fn run(&self, exec: &Exec<'_>, rows: usize, sums: &Dst<f32>) {
        let (isa, hidden) = (exec.isa, self.hidden);
        exec.run_rows(rows, self.top_k * hidden, |range| {
            let mut terms = Vec::with_capacity(self.top_k);
            for r in range {
                terms.clear();
                terms.extend((r * self.top_k..(r + 1) * self.top_k).filter_map(|c| self.term(c)));
                // SAFETY: on the queue; each row belongs to one task.
                let sums = unsafe { sums.slice_mut(r * hidden..(r + 1) * hidden) };
                let terms = &terms;
                // SAFETY: the kernel has no needs of its own.
                unsafe { isa.dispatch(Combine { terms, sums }) };
            }
        });
    }

    /// Of a choice whose expert is local.
    fn term(&self, choice: usize) -> Option<Term<'_>> {
        let at = self.assignment.position(choice)? * self.hidden;
        Some(Term {
            values: &self.terms[at..at + self.hidden],
            weight: self.weights[choice],
            share: EXPERT_SHARES * self.chosen[choice] as usize / self.num_experts,
        })
    }
}

/// Adds up the terms of a row. Each is as long as the sums.
struct Combine<'a> {
    /// In the order of the row's choices.
    terms: &'a [Term<'a>],
    sums: &'a mut [f32],
}

impl Kernel for Combine<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Sixteen>(self) {
        let Self { terms, sums } = self;
        let (chunks, rest) = sums.as_chunks_mut::<LANES>();
        let start_of_rest = chunks.len() * LANES;
        // SAFETY: the instruction set by the caller; a chunk of every term has sixteen elements.
        unsafe {
            for (i, chunk) in chunks.iter_mut().enumerate() {
                let load = |term: &Term<'_>| V::load(term.values[i * LANES..][..LANES].as_ptr());
                sum::<V>(terms, load).store(chunk.as_mut_ptr());
            }
            if !rest.is_empty() {
                let load = |term: &Term<'_>| V::load_part(&term.values[start_of_rest..], 0.0);
                sum::<V>(terms, load).store_part(rest);
            }
        }
    }
}

/// Sixteen columns of a row.
///
/// # Safety
/// As [`Sixteen`].
#[inline(always)]
unsafe fn sum<V: Sixteen>(terms: &[Term<'_>], load: impl Fn(&Term<'_>) -> V) -> V {
    // SAFETY: by this function's contract.
    unsafe {
        let mut shares = [V::splat(0.0); EXPERT_SHARES];
        for term in terms {
            let values = load(term);
            shares[term.share] = values.fma(V::splat(term.weight), shares[term.share]);
        }
        let [a, b, c, d, e, f, g, h] = shares;
        let first = a.add(b).add(c.add(d));
        first.add(e.add(f).add(g.add(h)))
    }
}
