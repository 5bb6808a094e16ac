//! Rows of an embedding table.

use crate::ops::Embed;
use crate::sampling::NO_TOKEN;
use crate::tch::handle::TchBackend;
use crate::tch::memory::index_tensor;
use tch::{Kind, Tensor};

pub(in crate::tch) fn embed(op: Embed<'_, TchBackend>) -> Result<(), String> {
    let Embed {
        table,
        token_ids,
        out,
        scale,
        rows,
    } = op;
    let mut ids = token_ids.words("token_ids", rows)?;
    let known: Vec<_> = ids.iter().map(|id| *id != NO_TOKEN).collect();
    ids.iter_mut()
        .filter(|id| **id == NO_TOKEN)
        .for_each(|id| *id = 0);
    let ids = index_tensor(&ids, "token id", "the vocabulary", table.n, out.device())?;
    let known = Tensor::from_slice(&known)
        .to_device(out.device())
        .unsqueeze(1);
    let table = table.rows.view("table", [table.n, table.k]);
    let rows = table.index_select(0, &ids).to_kind(Kind::Float) * known;
    out.store("embed out", &(rows * f64::from(scale.unwrap_or(1.0))));
    Ok(())
}
