//! All instruction sets give the same bits.

use super::dispatch::Kernel;
use super::sixteen::{LANES, Sixteen};
use crate::cpu::backend::tests::{isas, noise_floats};
use crate::cpu::isa::Isa;
use crate::e4m3;

/// Every lane operation once, over sixteen vectors.
struct Everything<'a> {
    values: &'a [f32],
    halves: &'a [u16],
}

impl Kernel for Everything<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    unsafe fn run<V: Sixteen>(self) -> Vec<f32> {
        let mut out = Vec::new();
        // SAFETY: the instruction set by the caller; the inputs have 256 elements.
        unsafe {
            let rows: [V; LANES] =
                std::array::from_fn(|i| V::load(self.values.as_ptr().add(i * LANES)));
            for (i, column) in V::transpose(rows).into_iter().enumerate() {
                let row = rows[i];
                let f16 = V::load_f16(self.halves.as_ptr().add(i * LANES));
                let bf16 = V::load_bf16(self.halves.as_ptr().add(i * LANES));
                let wide = row.mul(V::splat(40.0));
                for v in [
                    column,
                    row.add(column),
                    row.sub(column),
                    row.div(column),
                    f16,
                    bf16,
                    row.even_bf16(),
                    row.odd_bf16(),
                ] {
                    out.extend(v.to_array());
                }
                for v in [row.fma(column, f16), row.max(column), wide.exp()] {
                    out.extend(v.to_array());
                }
                out.extend([row.sum(), row.largest()]);
            }
        }
        out
    }
}

#[test]
fn every_instruction_set_gives_the_same_bits() {
    let values = noise_floats(3, 256);
    let halves: Vec<u16> = (0..256).map(|i| 0x3000 + i * 37).collect();
    let run = |isa: Isa| {
        // SAFETY: the inputs have the length the kernel needs.
        let out = unsafe {
            isa.dispatch(Everything {
                values: &values,
                halves: &halves,
            })
        };
        out.into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    let scalar = run(Isa::Scalar);
    for isa in isas() {
        assert_eq!(run(isa), scalar, "{}", isa.name());
    }
}

/// Loads sixteen codes.
struct Codes([u8; LANES]);

impl Kernel for Codes {
    type Output = [f32; LANES];

    #[inline(always)]
    unsafe fn run<V: Sixteen>(self) -> Self::Output {
        // SAFETY: the instruction set by the caller; there are sixteen codes.
        unsafe { V::load_f8_part(self.0.as_ptr()).to_array() }
    }
}

#[test]
fn every_instruction_set_reads_every_code_of_e4m3() {
    for first in (0..=255).step_by(LANES) {
        let mut codes = [0u8; LANES];
        codes
            .iter_mut()
            .zip(first..=255)
            .for_each(|(code, next)| *code = next);
        for isa in isas() {
            // SAFETY: the kernel has no needs of its own.
            let values = unsafe { isa.dispatch(Codes(codes)) };
            for (code, value) in codes.into_iter().zip(values) {
                let (value, expected) = (value * e4m3::OVER_F16, e4m3::value(code));
                let same = value.to_bits() == expected.to_bits();
                let is_nan = value.is_nan() && expected.is_nan();
                assert!(
                    same || is_nan,
                    "{isa:?} {code:#04x}: {value}, not {expected}"
                );
            }
        }
    }
}

/// Rounds sixteen values to f16 and to bfloat16.
struct Rounded([f32; LANES]);

impl Kernel for Rounded {
    type Output = [[u16; LANES]; 2];

    #[inline(always)]
    unsafe fn run<V: Sixteen>(self) -> Self::Output {
        let [mut halves, mut brains] = [[0; LANES]; 2];
        // SAFETY: the instruction set by the caller; there is room for sixteen of each.
        unsafe {
            let values = V::load(self.0.as_ptr());
            values.store_f16(halves.as_mut_ptr());
            values.store_bf16(brains.as_mut_ptr());
        }
        [halves, brains]
    }
}

#[test]
fn every_instruction_set_rounds_as_the_formats_do() {
    let edges = [0x0000_u32, 0x0001, 0x7fff, 0x8000, 0x8001, 0xffff];
    let highs = [
        0, 0x0080, 0x3380, 0x3880, 0x3f80, 0x3f81, 0x477f, 0x4780, 0x7f7f, 0x7f80, 0x7fc1,
    ];
    let signs = [0, 0x8000_0000];
    let all = signs.iter().flat_map(|sign| {
        let words = highs.iter().map(move |high| sign | high << 16);
        words.flat_map(|word| edges.map(|low| f32::from_bits(word | low)))
    });
    let mut values: Vec<f32> = all.chain(noise_floats(5, 60)).collect();
    values.resize(values.len().next_multiple_of(LANES), f32::NAN);
    for isa in isas() {
        for values in values.as_chunks::<LANES>().0 {
            // SAFETY: the kernel has no needs of its own.
            let [halves, brains] = unsafe { isa.dispatch(Rounded(*values)) };
            for (i, value) in values.iter().enumerate() {
                let of_f16 = half::f16::from_f32(*value).to_bits();
                let of_bf16 = half::bf16::from_f32(*value).to_bits();
                let got = (halves[i], brains[i]);
                assert_eq!(
                    got,
                    (of_f16, of_bf16),
                    "{} of {:#010x}",
                    isa.name(),
                    value.to_bits()
                );
            }
        }
    }
}

#[test]
fn transposing_turns_rows_into_columns() {
    struct Transpose([[f32; LANES]; LANES]);
    impl Kernel for Transpose {
        type Output = [[f32; LANES]; LANES];
        #[inline(always)]
        unsafe fn run<V: Sixteen>(self) -> Self::Output {
            // SAFETY: the instruction set by the caller; rows have sixteen elements.
            unsafe { V::transpose(self.0.map(|row| V::load(row.as_ptr()))).map(|v| v.to_array()) }
        }
    }
    let rows = std::array::from_fn(|i| std::array::from_fn(|j| (16 * i + j) as f32));
    for isa in isas() {
        // SAFETY: the kernel has no needs of its own.
        let columns = unsafe { isa.dispatch(Transpose(rows)) };
        for (i, column) in columns.into_iter().enumerate() {
            for (j, value) in column.into_iter().enumerate() {
                assert_eq!(value, rows[j][i], "{}", isa.name());
            }
        }
    }
}
