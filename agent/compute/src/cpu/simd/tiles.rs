//! AMX's tiles: their shapes, and products of tiles that lie in memory.

use std::arch::asm;
use std::marker::PhantomData;

/// Rows of a tile.
pub(crate) const TILE_ROWS: usize = 16;
/// Bytes of a tile's row: thirty-two k, or sixteen sums.
pub(crate) const TILE_ROW: usize = 64;

/// What `ldtilecfg` loads.
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// That this thread's tiles have shapes, until it is dropped: sums in 0 to 3 and activations in 4 and 5 with some rows,
/// weights in 6 and 7 with sixteen.
#[derive(Debug, Default)]
pub(crate) struct Tiles {
    /// Of sums and activations; 0 without shapes.
    rows: usize,
    /// Of one thread.
    not_send: PhantomData<*const ()>,
}

/// Where a matrix begins, and bytes between its rows.
#[derive(Clone, Copy)]
pub(crate) struct At<T> {
    pub(crate) at: T,
    pub(crate) stride: usize,
}

// === impl Tiles ===

impl Tiles {
    /// Gives sums and activations so many rows.
    ///
    /// # Safety
    /// This process may use AMX.
    #[inline]
    pub(crate) unsafe fn shape(&mut self, rows: usize) {
        if self.rows == rows {
            return;
        }
        let tile_rows = u8::try_from(rows.min(TILE_ROWS)).expect("sixteen rows");
        let mut shapes = Shapes {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [0; 16],
            rows: [0; 16],
        };
        shapes.row_bytes[..8].fill(64);
        shapes.rows[..6].fill(tile_rows);
        shapes.rows[6..8].fill(16);
        // SAFETY: palette 1 is eight tiles of up to sixteen rows of 64 bytes.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const shapes, options(nostack)) };
        self.rows = rows;
    }
}

impl Drop for Tiles {
    /// The kernel need not save the tiles of a thread without shapes.
    fn drop(&mut self) {
        if self.rows > 0 {
            // SAFETY: what gave them shapes had the instruction.
            unsafe { asm!("tilerelease", options(nostack, nomem)) };
        }
    }
}

/// Writes `c = a·b`, of `a` with the rows of the tiles' shape, `b` sixteen columns or four times as many: pairs of
/// `steps` times thirty-two k, `a` `[rows][pairs]` and `b` `[pairs][columns]`.
///
/// # Safety
/// The tiles have shapes; matrices are as large as `steps`, rows and columns say.
#[inline]
pub(crate) unsafe fn product<const COLUMN_TILES: usize>(
    a: At<*const u8>,
    b: At<*const u8>,
    c: At<*mut u8>,
    steps: usize,
) {
    const { assert!(COLUMN_TILES == 1 || COLUMN_TILES == 4) };
    macro_rules! product_by {
        ($($line:literal)*) => {
            asm!(
                $($line,)*
                a = inout(reg) a.at => _,
                b = inout(reg) b.at => _,
                c = in(reg) c.at,
                steps = inout(reg) steps => _,
                a_row = in(reg) a.stride,
                b_row = in(reg) b.stride,
                c_row = in(reg) c.stride,
                b_step = in(reg) b.stride * TILE_ROWS,
                options(nostack),
            )
        };
    }
    // SAFETY: by the contract. Compiled code has nothing in tiles.
    unsafe {
        if COLUMN_TILES == 1 {
            product_by!(
                "tilezero tmm0"
                "2:"
                "tileloadd tmm4, [{a} + {a_row}]"
                "tileloadd tmm6, [{b} + {b_row}]"
                "tdpbf16ps tmm0, tmm4, tmm6"
                "add {a}, 64"
                "add {b}, {b_step}"
                "dec {steps}"
                "jnz 2b"
                "tilestored [{c} + {c_row}], tmm0"
            );
        } else {
            product_by!(
                "tilezero tmm0"
                "tilezero tmm1"
                "tilezero tmm2"
                "tilezero tmm3"
                "2:"
                "tileloadd tmm4, [{a} + {a_row}]"
                "tileloadd tmm6, [{b} + {b_row}]"
                "tdpbf16ps tmm0, tmm4, tmm6"
                "tileloadd tmm7, [{b} + {b_row} + 64]"
                "tdpbf16ps tmm1, tmm4, tmm7"
                "tileloadd tmm6, [{b} + {b_row} + 128]"
                "tdpbf16ps tmm2, tmm4, tmm6"
                "tileloadd tmm7, [{b} + {b_row} + 192]"
                "tdpbf16ps tmm3, tmm4, tmm7"
                "add {a}, 64"
                "add {b}, {b_step}"
                "dec {steps}"
                "jnz 2b"
                "tilestored [{c} + {c_row}], tmm0"
                "tilestored [{c} + {c_row} + 64], tmm1"
                "tilestored [{c} + {c_row} + 128], tmm2"
                "tilestored [{c} + {c_row} + 192], tmm3"
            );
        }
    }
}
