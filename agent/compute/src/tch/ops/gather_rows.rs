//! Rows copied by index.

use crate::buffer::DeviceBuffer;
use crate::ops::{GatherRows, NO_ROW};
use crate::tch::handle::TchBackend;
use crate::tch::memory::index_tensor;

pub(in crate::tch) fn gather_rows(op: GatherRows<'_, TchBackend>) -> Result<(), String> {
    let GatherRows {
        src,
        indices,
        out,
        row_len,
        rows,
    } = op;
    let indices = indices.words("indices", rows)?;
    let wanted = (0u32..).zip(indices).filter(|(_, index)| *index != NO_ROW);
    let (places, wanted): (Vec<u32>, Vec<u32>) = wanted.unzip();
    let src_rows = src.len() / row_len;
    let wanted = index_tensor(&wanted, "row", "src", src_rows, src.device())?;
    let places = index_tensor(&places, "row", "out", rows, out.device())?;
    let found = src
        .view("src", [src_rows, row_len])
        .index_select(0, &wanted);
    let _ = out
        .view("gather_rows out", [rows, row_len])
        .index_copy_(0, &places, &found);
    Ok(())
}
