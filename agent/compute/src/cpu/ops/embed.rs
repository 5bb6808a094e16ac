//! Rows of an embedding table, expanded one by one.

use crate::cpu::handle::CpuBackend;
use crate::cpu::queue::Exec;
use crate::device_types::Matrix;
use crate::ops::Embed;
use crate::sampling::NO_TOKEN;

pub(in crate::cpu) fn embed(op: Embed<'_, CpuBackend>) -> impl FnOnce(&Exec<'_>) + Send + use<> {
    let Embed {
        table,
        token_ids,
        out,
        scale,
        rows,
    } = op;
    let (table, k) = (table.clone(), table.k());
    let token_ids = token_ids.src::<u32>("token_ids", rows);
    let out = out.dst::<f32>("embed out", rows * k);
    move |exec| {
        // SAFETY: on the queue; `out` is other memory.
        let token_ids = unsafe { token_ids.slice() };
        exec.run_rows(rows, k, |range| {
            for r in range {
                // SAFETY: on the queue; each row belongs to one task.
                let row = unsafe { out.slice_mut(r * k..(r + 1) * k) };
                match token_ids[r] {
                    NO_TOKEN => row.fill(0.0),
                    token => table.expand(token, row),
                }
                if let Some(scale) = scale {
                    row.iter_mut().for_each(|x| *x *= scale);
                }
            }
        });
    }
}
