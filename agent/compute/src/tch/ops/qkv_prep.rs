//! From the qkv product to rotated queries and cached keys and values.

use super::rms_norm::normed;
use crate::kv::NO_SLOT;
use crate::ops::QkvPrep;
use crate::tch::handle::TchBackend;
use crate::tch::kv_layer::layer_of;
use crate::tch::memory::{index_tensor, int, ints, shape_of};
use tch::{Kind, Tensor};

pub(in crate::tch) fn qkv_prep(op: QkvPrep<'_, TchBackend>) -> Result<(), String> {
    let QkvPrep {
        qkv,
        row_stride,
        bias,
        q_norm,
        k_norm,
        eps,
        rope,
        rotary_dim,
        num_q_heads,
        batch,
        kv,
        kv_scales: _,
        layer,
    } = op;
    let (rows, head_dim) = (batch.num_tokens, kv.head_dim);
    let heads = num_q_heads + 2 * kv.num_kv_heads;
    let shape = [rows, heads, head_dim];
    let row = qkv.strided("qkv", 0, shape, [row_stride, head_dim, 1]);
    // Which may be the row itself, so nothing changes it in place.
    let values = row.to_kind(Kind::Float);
    let values = match bias {
        Some(bias) => values + bias.view("qkv bias", [heads, head_dim]),
        None => values,
    };
    let sizes = ints([num_q_heads, kv.num_kv_heads, kv.num_kv_heads]);
    let mut parts = values.split_with_sizes(sizes, 1);
    for (part, norm) in parts.iter_mut().zip([q_norm, k_norm]) {
        if let Some(norm) = norm {
            *part = normed(part, &norm.view("head norm", [head_dim]), eps);
        }
    }
    let rope = rope.view("rope", [rows, 1, rotary_dim]);
    let (q, k, v) = (
        rotated(&parts[0], &rope),
        rotated(&parts[1], &rope),
        &parts[2],
    );
    row.narrow(1, 0, int(num_q_heads)).copy_(&q);
    let slots = batch.out_slots.words("out_slots", rows)?;
    for (cache, values) in layer_of(kv, layer).iter().zip([&k, v]) {
        write_slots(cache, &slots, values)?;
    }
    Ok(())
}

/// Rotates the first dimensions of each head, as many as `rope` has, by halves.
pub(super) fn rotated(x: &Tensor, rope: &Tensor) -> Tensor {
    let rotary_dim = rope.size()[2];
    let half = rotary_dim / 2;
    let (cos, sin) = (rope.narrow(2, 0, half), rope.narrow(2, half, half));
    let (a, b) = (x.narrow(2, 0, half), x.narrow(2, half, half));
    let rest = x.narrow(2, rotary_dim, x.size()[2] - rotary_dim);
    Tensor::cat(&[&a * &cos - &b * &sin, b * cos + a * sin, rest], 2)
}

/// Writes `values[row]`, `[kv_head][head_dim]` each, to the slot of each row that has one.
pub(super) fn write_slots(cache: &Tensor, slots: &[u32], values: &Tensor) -> Result<(), String> {
    let device = cache.device();
    let [num_pages, _, page_size, _] = shape_of(cache);
    let wanted = (0u32..).zip(slots).filter(|(_, slot)| **slot != NO_SLOT);
    let (rows, slots): (Vec<u32>, Vec<u32>) = wanted.unzip();
    let num_slots = usize::try_from(num_pages * page_size).expect("sizes are positive");
    let rows = Tensor::from_slice(&rows.iter().map(|r| i64::from(*r)).collect::<Vec<_>>());
    let slots = index_tensor(&slots, "slot", "the pool", num_slots, device)?;
    let pages = slots.divide_scalar_mode(page_size, "floor");
    let places = slots.remainder(page_size);
    let values = values.index_select(0, &rows.to_device(device));
    let mut by_slot = cache.permute([0, 2, 1, 3]);
    let _ = by_slot.index_put_(
        &[Some(pages), Some(places)],
        &values.to_kind(cache.kind()),
        false,
    );
    Ok(())
}
