//! The experts' feed-forwards: rows are sorted by expert, both linears run over all experts as one
//! line of blocks that is cut into tasks, and each row's terms are added up.

mod assignment;
mod combine;
mod line;

use crate::cpu::handle::CpuBackend;
use crate::cpu::isa::Isa;
use crate::cpu::linear_product::{LinearProduct, LinearScratch, LinearTask, SharedOut};
use crate::cpu::memory::{CpuBuffer, Dst};
use crate::cpu::pack::PackedLinear;
use crate::cpu::queue::Exec;
use crate::device_types::ExpertMatrices as _;
use crate::ops::{Epilogue, MoeExperts};
use assignment::{Assignment, Group};
use combine::Combination;
use line::BlockLine;

pub(in crate::cpu) fn moe_experts(
    op: MoeExperts<'_, CpuBackend>,
) -> impl FnOnce(&Exec<'_>) + Send + use<> {
    let MoeExperts {
        x,
        chosen,
        weights,
        top_k,
        num_experts,
        experts,
        first_expert,
        bias,
        glu,
        gated,
        terms,
        sums,
        rows,
    } = op;
    let experts = experts.clone();
    let (hidden, width, choices) = (experts.hidden(), experts.width(), rows * top_k);
    let bias = bias.map(|bias| {
        let of = |bias: &CpuBuffer, len| bias.src::<f32>("moe_experts bias", experts.count() * len);
        (of(bias.gate_up, 2 * width), of(bias.down, hidden))
    });
    let x = x.src::<f32>("moe_experts x", rows * hidden);
    let chosen = chosen.src::<u32>("moe_experts chosen", choices);
    let weights = weights.src::<f32>("moe_experts weights", choices);
    let gated_out = gated.dst::<f32>("moe_experts gated", choices * width);
    let gated = gated.src::<f32>("moe_experts gated", choices * width);
    let terms_out = terms.dst::<f32>("moe_experts terms", choices * hidden);
    let terms = terms.src::<f32>("moe_experts terms", choices * hidden);
    let sums = sums.dst::<f32>("moe_experts sums", rows * hidden);
    move |exec| {
        // SAFETY: on the queue; what is written is other memory.
        let (x, chosen, weights) = unsafe { (x.slice(), chosen.slice(), weights.slice()) };
        let local = first_expert..first_expert + experts.count();
        let assignment = Assignment::new(chosen, top_k, num_experts, local);
        // SAFETY: as above.
        let bias = bias
            .as_ref()
            .map(|bias| unsafe { (bias.0.slice(), bias.1.slice()) });
        let gate_up = ExpertLinear {
            assignment: &assignment,
            matrices: experts.gate_up(),
            input: Input::Rows(x),
            bias: bias.map(|(gate_up, _)| gate_up),
            epilogue: glu,
            out: &gated_out,
        };
        gate_up.run(exec);
        // SAFETY: on the queue; written before, and read until the next product is done.
        let gated = unsafe { gated.slice() };
        let down = ExpertLinear {
            assignment: &assignment,
            matrices: experts.down(),
            input: Input::Choices(gated),
            bias: bias.map(|(_, down)| down),
            epilogue: Epilogue::Store,
            out: &terms_out,
        };
        down.run(exec);
        let sum = Combination {
            assignment: &assignment,
            chosen,
            weights,
            top_k,
            num_experts,
            // SAFETY: as above.
            terms: unsafe { terms.slice() },
            hidden,
        };
        sum.run(exec, rows, &sums);
    }
}

/// One linear of all experts that have rows.
struct ExpertLinear<'a> {
    assignment: &'a Assignment,
    /// Of each local expert.
    matrices: &'a [PackedLinear],
    input: Input<'a>,
    /// Of each local expert's rows.
    bias: Option<&'a [f32]>,
    epilogue: Epilogue,
    /// A row for each choice, in the order of the assignment.
    out: &'a Dst<f32>,
}

/// The rows that an expert multiplies.
#[derive(Clone, Copy)]
enum Input<'a> {
    /// The tokens'.
    Rows(&'a [f32]),
    /// One of each choice, in the order of the assignment.
    Choices(&'a [f32]),
}

// === impl ExpertLinear ===

impl ExpertLinear<'_> {
    fn run(&self, exec: &Exec<'_>) {
        let blocks = self.matrices.first().map_or(0, PackedLinear::block_count);
        let groups = self.assignment.groups();
        let rows: Vec<usize> = groups.iter().map(|group| group.choices.len()).collect();
        let line = BlockLine::new(blocks, &rows);
        let tasks = line.tasks(exec.threads.count());
        let isa = exec.isa;
        exec.threads.run(tasks, |task, _| {
            LinearScratch::of_thread(|scratch| {
                for (group, blocks) in line.part(task, tasks) {
                    let group = &groups[group];
                    let product = self.product(isa, group);
                    let task = LinearTask {
                        rows: 0..group.choices.len(),
                        blocks,
                        run: None,
                    };
                    // SAFETY: parts of a line share no block, and groups no row.
                    unsafe { product.run_task(&task, scratch) };
                }
            });
        });
    }

    fn product(&self, isa: Isa, group: &Group) -> LinearProduct<'_> {
        let weight = &self.matrices[group.expert];
        let (k, out_len) = (weight.k(), weight.out_len());
        let (x, x_rows) = match self.input {
            Input::Rows(x) => (x, Some(self.assignment.rows_of(group))),
            Input::Choices(x) => (&x[group.choices.start * k..], None),
        };
        let n = out_len << u32::from(weight.is_interleaved());
        let start = group.choices.start * out_len;
        let len = group.choices.len() * out_len;
        assert!(start + len <= self.out.len(), "choices beyond the scratch");
        LinearProduct {
            weight,
            x,
            x_stride: k,
            x_rows,
            rows: group.choices.len(),
            bias: self.bias.map(|bias| &bias[group.expert * n..][..n]),
            epilogue: self.epilogue,
            // SAFETY: on the queue; these rows are written by this product alone.
            out: unsafe { SharedOut::from_raw(self.out.as_ptr().add(start), len, out_len) },
            isa,
        }
    }
}

#[cfg(test)]
mod tests;
