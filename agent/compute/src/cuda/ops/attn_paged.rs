//! Paged attention: a kernel by the step's shape.

use super::{OfPool, attn_latent};
use crate::cuda::driver::DriverError;
use crate::cuda::handle::CudaBackend;
use crate::cuda::kernels::{
    ATTN_PAGED_BLOCK, ATTN_PAGED_TOKEN_WARPS, ATTN_TILE_QUERIES, ATTN_TILE_WIDE_ASIDE,
    ATTN_TILE_WIDE_KEYS, AttnArgs, HOPPER_FOUND, HOPPER_KEYS, HOPPER_QUERIES, HOPPER_STAGES,
    HOPPER_SWIZZLE_ALIGN, Kernel, to_u32,
};
use crate::cuda::shared::Shared;
use crate::dtype::DType;
use crate::ops::{AttnPaged, AttnValues};
use std::f32::consts::LOG2_E;

/// Blocks of one-query attention that are wanted per multiprocessor, so that the last ones to run are few among many,
/// and splits of a sequence at most: a warp folds them.
const BLOCKS_PER_SM: usize = 12;
const SPLITS_MAX: usize = 32;

pub(in crate::cuda) fn attn_paged(
    shared: &Shared,
    op: &AttnPaged<'_, CudaBackend>,
) -> Result<(), DriverError> {
    let dtype = shared.config.dtype;
    let kv = op.kv;
    let (rows, seqs) = (op.batch.num_tokens, op.batch.num_seqs);
    check(op);
    if rows == 0 {
        return Ok(());
    }
    if op.values != AttnValues::Own {
        return attn_latent::attn_latent(shared, op);
    }
    let mut args = args_of(shared, op);
    // A chunk may have one query too, so one kernel for all is what keeps a row's bits the same.
    let is_decode = rows == seqs && !shared.config.deterministic;
    if !is_decode && let Some(tiles) = Tiles::of(shared, dtype, op) {
        // A sequence may end within a tile.
        let number = to_u32(rows / tiles.queries + seqs);
        let heads = to_u32(op.num_q_heads);
        let grid = if tiles.heads_first {
            [heads, number, 1]
        } else {
            [number, heads, 1]
        };
        return shared.launch(tiles.kernel, grid, tiles.shared_bytes, &args);
    }
    let form = TokenForm::of(dtype, op);
    let columns = kv.num_kv_heads * form.tiles;
    if is_decode {
        let wanted = BLOCKS_PER_SM * shared.driver.device().num_sms as usize;
        let splits = wanted.div_ceil(columns * rows).clamp(1, SPLITS_MAX);
        if splits > 1 {
            let partials = rows * op.num_q_heads * splits * (kv.head_dim + 2);
            args.partials = shared.scratch(&shared.partials, partials)?;
            args.arrivals = shared.scratch(&shared.arrivals, rows * columns)?;
        }
        args.splits = to_u32(splits);
    }
    let grid = [args.splits, to_u32(columns), to_u32(rows)];
    let states = ATTN_PAGED_TOKEN_WARPS * form.heads * (8 * form.lanes + 2);
    shared.launch(form.kernel, grid, 4 * states, &args)
}

/// What all kernels are given; splits are those of one that has none.
///
/// # Panics
/// When a buffer is too small or of another dtype.
pub(super) fn args_of(shared: &Shared, op: &AttnPaged<'_, CudaBackend>) -> AttnArgs {
    let (dtype, kv, rows) = (shared.config.dtype, op.kv, op.batch.num_tokens);
    let out_len = op.num_q_heads * op.value_dim();
    let softcap_log2 = op.softcap.map_or(0.0, |cap| cap * LOG2_E);
    AttnArgs {
        q: op.q.addr_of("attn q", &[dtype], op.q_len()),
        out: op.out.addr_of("attn out", &[dtype], rows * out_len),
        partials: 0,
        arrivals: 0,
        fault: shared.fault.addr(),
        batch: super::batch_args(op.batch),
        kv: super::kv_layer(shared, kv, op.layer, op.kv_scales),
        q_row_stride: op.q_row_stride as u64,
        num_q_heads: to_u32(op.num_q_heads),
        splits: 1,
        scale_log2: op.scale * LOG2_E,
        page_multiplier: multiplier(to_u32(kv.page_size)),
        sinks: op.sinks.map_or(0, |sinks| {
            sinks.addr_of("attn sinks", &[DType::F32], op.num_q_heads)
        }),
        gate: op.gate.map_or(0, |gate| {
            let len = gate.len(rows, out_len);
            gate.values.addr_of("attn gate", &[dtype], len)
        }),
        gate_row_stride: op.gate.map_or(0, |gate| gate.row_stride as u64),
        // Sequences are shorter than 2^32, so a larger window is none.
        window: op
            .window
            .map_or(u32::MAX, |window| u32::try_from(window).unwrap_or(u32::MAX)),
        softcap_log2,
        softcap_inverse: 1.0 / softcap_log2.max(f32::MIN_POSITIVE),
        value_dim: to_u32(op.value_dim()),
    }
}

/// # Panics
/// Says what the kernels do not take.
fn check(op: &AttnPaged<'_, CudaBackend>) {
    let kv = op.kv;
    assert!(
        op.q_row_stride.is_multiple_of(8),
        "q rows of {} are not aligned to 8",
        op.q_row_stride
    );
    if let Some(gate) = op.gate {
        assert!(
            gate.row_stride.is_multiple_of(2),
            "gate rows of {} are not aligned to 2",
            gate.row_stride
        );
    }
    let mut strides = kv.cuts.iter().map(|cut| cut.page_stride);
    assert!(
        strides.all(|stride| u32::try_from(stride).is_ok()),
        "pages of one layer are at most 2^32 elements apart"
    );
    let table_len = op.batch.num_seqs * op.batch.page_table_stride;
    assert!(
        u32::try_from(table_len).is_ok(),
        "a page table of {table_len} entries"
    );
}

/// By which kernels divide a number below 2^31: (high half of the product + number) >> ceil(log2 divisor). Source:
/// Granlund and Montgomery, "Division by Invariant Integers using Multiplication", 1994, figure 4.1.
fn multiplier(divisor: u32) -> u32 {
    let divisor = u64::from(divisor);
    let power = divisor.next_power_of_two();
    let multiplier = ((power - divisor) << 32) / divisor + 1;
    u32::try_from(multiplier).expect("a power of two is less than twice its divisor")
}

/// Whether it has neither window nor cap, sinks or gate.
fn is_plain(op: &AttnPaged<'_, CudaBackend>) -> bool {
    op.features().next().is_none()
}

/// Whether a kernel takes heads of so many elements.
pub(in crate::cuda) fn takes_head_dim(head_dim: usize) -> bool {
    head_dim.is_multiple_of(8) && (1..=256).contains(&head_dim)
}

/// A kernel that takes queries by tiles, on tensor cores.
struct Tiles {
    kernel: Kernel,
    queries: usize,
    shared_bytes: usize,
    /// Which of heads and tiles the grid's first number counts.
    heads_first: bool,
}

/// Kernels for tiles of one head dim.
struct TileKernels {
    plain: Kernel,
    formed: Kernel,
    plain_f8: Kernel,
    formed_f8: Kernel,
}

const TILES_64: TileKernels = TileKernels {
    plain: Kernel::AttendTile64,
    formed: Kernel::AttendFormedTile64,
    plain_f8: Kernel::AttendTile64F8,
    formed_f8: Kernel::AttendFormedTile64F8,
};
const TILES_128: TileKernels = TileKernels {
    plain: Kernel::AttendTile128,
    formed: Kernel::AttendFormedTile128,
    plain_f8: Kernel::AttendTile128F8,
    formed_f8: Kernel::AttendFormedTile128F8,
};
const TILES_256: TileKernels = TileKernels {
    plain: Kernel::AttendTile256,
    formed: Kernel::AttendFormedTile256,
    plain_f8: Kernel::AttendTile256F8,
    formed_f8: Kernel::AttendFormedTile256F8,
};

/// A one-query kernel: lanes per key, query heads at a time, and how often that takes to go through
/// those of a KV head.
struct TokenForm {
    kernel: Kernel,
    lanes: usize,
    heads: usize,
    tiles: usize,
}

// === impl Tiles ===

impl Tiles {
    /// Nothing where no kernel takes such heads.
    fn of(shared: &Shared, dtype: DType, op: &AttnPaged<'_, CudaBackend>) -> Option<Self> {
        let head_dim = op.kv.head_dim;
        // Hopper's own kernels have the plain form only, over a pool of bfloat16.
        let (is_plain, is_f8) = (is_plain(op), op.kv.dtype == DType::F8E4M3);
        let takes_hopper = is_plain && !is_f8 && shared.driver.device().is_hopper();
        let kernel = match (dtype, head_dim) {
            (DType::BF16, 64) if takes_hopper => Kernel::AttendHopper64,
            (DType::BF16, 128) if takes_hopper => Kernel::AttendHopper128,
            (DType::BF16, 64) => TILES_64.of(is_plain, is_f8),
            (DType::BF16, 128) => TILES_128.of(is_plain, is_f8),
            (DType::BF16, 256) => TILES_256.of(is_plain, is_f8),
            _ => return None,
        };
        // In bfloat16; of keys and values in each stage of the ring. Two stages of E4M3 and what is read of one take as much.
        let row_bytes = 2 * head_dim;
        if !matches!(kernel, Kernel::AttendHopper64 | Kernel::AttendHopper128) {
            let is_wide = head_dim > 128;
            let (keys, aside) = if is_wide {
                (ATTN_TILE_WIDE_KEYS, ATTN_TILE_WIDE_ASIDE)
            } else {
                (ATTN_PAGED_BLOCK, 0)
            };
            return Some(Self {
                kernel,
                queries: ATTN_TILE_QUERIES,
                shared_bytes: 2 * 2 * keys * row_bytes + 2 * aside * ATTN_TILE_QUERIES,
                heads_first: is_wide,
            });
        }
        let rows = HOPPER_QUERIES + HOPPER_STAGES * 2 * HOPPER_KEYS;
        let places_bytes = 8 * HOPPER_FOUND * HOPPER_KEYS;
        Some(Self {
            kernel,
            queries: HOPPER_QUERIES,
            shared_bytes: rows * row_bytes + places_bytes + HOPPER_SWIZZLE_ALIGN,
            heads_first: true,
        })
    }
}

// === impl TileKernels ===

impl TileKernels {
    const fn of(&self, is_plain: bool, is_f8: bool) -> Kernel {
        match (is_plain, is_f8) {
            (true, false) => self.plain,
            (false, false) => self.formed,
            (true, true) => self.plain_f8,
            (false, true) => self.formed_f8,
        }
    }
}

// === impl TokenForm ===

impl TokenForm {
    /// # Panics
    /// When no kernel takes the head dim.
    fn of(dtype: DType, op: &AttnPaged<'_, CudaBackend>) -> Self {
        let (head_dim, group) = (op.kv.head_dim, op.num_q_heads / op.kv.num_kv_heads);
        assert!(
            takes_head_dim(head_dim),
            "attention takes head dims that are multiples of 8 up to 256, not {head_dim}"
        );
        let lanes = (head_dim / 8).next_power_of_two().max(4);
        let pool = op.kv.dtype;
        let is_f8 = pool == DType::F8E4M3;
        // Over E4M3 beside f32 there are kernels for all forms at once.
        let is_plain = is_plain(op) && !(is_f8 && dtype == DType::F32);
        let heads = match (group, lanes) {
            _ if !is_plain => 4,
            (1, 4 | 32) | (2, _) if is_f8 => 4,
            (1, _) => 1,
            (2, 8 | 16) => 2,
            (5.., 8 | 16) => 8,
            _ => 4,
        };
        let kernel = match (lanes, heads) {
            _ if !is_plain => formed_kernels(lanes).of(dtype, pool),
            _ if is_f8 => f8_kernel(lanes, heads),
            _ => {
                assert!(
                    pool == dtype,
                    "a KV pool of {pool:?} beside activations of {dtype:?}"
                );
                plain_kernel(dtype, lanes, heads)
            }
        };
        Self {
            kernel,
            lanes,
            heads,
            tiles: group.div_ceil(heads),
        }
    }
}

fn plain_kernel(dtype: DType, lanes: usize, heads: usize) -> Kernel {
    let (bf16, f32) = match (lanes, heads) {
        (4, 1) => (Kernel::AttendToken4x1Bf16, Kernel::AttendToken4x1F32),
        (4, _) => (Kernel::AttendToken4x4Bf16, Kernel::AttendToken4x4F32),
        (8, 1) => (Kernel::AttendToken8x1Bf16, Kernel::AttendToken8x1F32),
        (8, 2) => (Kernel::AttendToken8x2Bf16, Kernel::AttendToken8x2F32),
        (8, 4) => (Kernel::AttendToken8x4Bf16, Kernel::AttendToken8x4F32),
        (8, _) => (Kernel::AttendToken8x8Bf16, Kernel::AttendToken8x8F32),
        (16, 1) => (Kernel::AttendToken16x1Bf16, Kernel::AttendToken16x1F32),
        (16, 2) => (Kernel::AttendToken16x2Bf16, Kernel::AttendToken16x2F32),
        (16, 4) => (Kernel::AttendToken16x4Bf16, Kernel::AttendToken16x4F32),
        (16, _) => (Kernel::AttendToken16x8Bf16, Kernel::AttendToken16x8F32),
        (_, 1) => (Kernel::AttendToken32x1Bf16, Kernel::AttendToken32x1F32),
        (_, _) => (Kernel::AttendToken32x4Bf16, Kernel::AttendToken32x4F32),
    };
    if dtype == DType::F32 { f32 } else { bf16 }
}

/// Of a pool of E4M3 beside bfloat16.
fn f8_kernel(lanes: usize, heads: usize) -> Kernel {
    match (lanes, heads) {
        (4, _) => Kernel::AttendToken4x4Bf16F8,
        (8, 1) => Kernel::AttendToken8x1Bf16F8,
        (8, 4) => Kernel::AttendToken8x4Bf16F8,
        (8, _) => Kernel::AttendToken8x8Bf16F8,
        (16, 1) => Kernel::AttendToken16x1Bf16F8,
        (16, 4) => Kernel::AttendToken16x4Bf16F8,
        (16, _) => Kernel::AttendToken16x8Bf16F8,
        (_, _) => Kernel::AttendToken32x4Bf16F8,
    }
}

/// One-query kernels with windows, caps, sinks and gates: four heads at a time.
fn formed_kernels(lanes: usize) -> OfPool {
    let (bf16, f32, bf16_f8, f32_f8) = match lanes {
        4 => (
            Kernel::AttendFormed4x4Bf16,
            Kernel::AttendFormed4x4F32,
            Kernel::AttendFormed4x4Bf16F8,
            Kernel::AttendFormed4x4F32F8,
        ),
        8 => (
            Kernel::AttendFormed8x4Bf16,
            Kernel::AttendFormed8x4F32,
            Kernel::AttendFormed8x4Bf16F8,
            Kernel::AttendFormed8x4F32F8,
        ),
        16 => (
            Kernel::AttendFormed16x4Bf16,
            Kernel::AttendFormed16x4F32,
            Kernel::AttendFormed16x4Bf16F8,
            Kernel::AttendFormed16x4F32F8,
        ),
        _ => (
            Kernel::AttendFormed32x4Bf16,
            Kernel::AttendFormed32x4F32,
            Kernel::AttendFormed32x4Bf16F8,
            Kernel::AttendFormed32x4F32F8,
        ),
    };
    OfPool {
        bf16,
        f32,
        bf16_f8,
        f32_f8,
    }
}

#[cfg(test)]
mod tests;
