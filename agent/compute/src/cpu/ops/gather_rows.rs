//! Rows copied by index.

use crate::buffer::DeviceBuffer;
use crate::cpu::handle::CpuBackend;
use crate::cpu::queue::Exec;
use crate::ops::{GatherRows, NO_ROW};

pub(in crate::cpu) fn gather_rows(
    op: GatherRows<'_, CpuBackend>,
) -> impl FnOnce(&Exec<'_>) + Send + use<> {
    let GatherRows {
        src,
        indices,
        out,
        row_len,
        rows,
    } = op;
    let row_bytes = row_len * src.dtype().size_bytes();
    let (src, out) = (src.src_bytes(), out.dst_bytes());
    let indices = indices.src::<u32>("gather_rows indices", rows);
    move |exec| {
        // SAFETY: on the queue; `out` is other memory.
        let (src, indices) = unsafe { (src.slice(), indices.slice()) };
        exec.run_rows(rows, row_len, |range| {
            for r in range.filter(|r| indices[*r] != NO_ROW) {
                let from = indices[r] as usize * row_bytes;
                let row = src.get(from..from + row_bytes);
                let row = row.unwrap_or_else(|| panic!("row {} is beyond src", indices[r]));
                // SAFETY: on the queue; each row belongs to one task.
                unsafe { out.slice_mut(r * row_bytes..(r + 1) * row_bytes) }.copy_from_slice(row);
            }
        });
    }
}
