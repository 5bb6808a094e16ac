//! Compact bfloat16 multiplies as whole bfloat16 does.

use super::{assert_same_bits, isas, mk_values, run};
use crate::cpu::isa::Isa;
use crate::cpu::pack::{Bf16Form, PackTarget, PackedLinear, serially};
use crate::dtype::{ComputeDtype, WeightFormat};
use crate::k_order::{KOrder, KShares, Packing};
use crate::ops::Epilogue;
use crate::weight::WeightSource;
use half::bf16;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

const TARGET: PackTarget = PackTarget {
    dtype: ComputeDtype::BF16,
    isa: Isa::Avx512Bf16,
};

/// About normal values, as trained ones are: a few of each block lie below the sixteen powers of two that most have.
fn weights(len: usize, rng: &mut StdRng) -> Vec<u8> {
    let mut value = || {
        let sum: f32 = (0..12).map(|_| rng.random_range(-0.5..0.5_f32)).sum();
        bf16::from_f32(sum * 0.03)
    };
    (0..len).flat_map(|_| value().to_le_bytes()).collect()
}

fn source(n: usize, k: usize, bytes: &[u8]) -> WeightSource<'_> {
    WeightSource::unscaled("w", WeightFormat::BF16, (n, k), bytes)
}

fn forms(weight: &PackedLinear) -> Vec<Option<Bf16Form>> {
    weight.segments().iter().map(|s| s.bf16).collect()
}

#[test]
fn compact_weights_give_the_bits_of_whole_ones() {
    let mut rng = StdRng::seed_from_u64(11);
    for (n, k) in [(75, 576), (33, 32), (64, 1536)] {
        let bytes = [0, 1].map(|_| weights(n * k, &mut rng));
        let parts = bytes.each_ref().map(|bytes| source(n, k, bytes));
        for packing in [
            Packing::Joined(KOrder::Chain),
            Packing::Joined(KOrder::Tree(KShares::All)),
            Packing::Interleaved,
        ] {
            let pack = |target| {
                PackedLinear::pack(&parts, packing, target, &serially).expect("matrices that fit")
            };
            let (compact, whole) = (pack(TARGET), pack(PackTarget::any(TARGET.dtype)));
            assert!(
                forms(&compact)
                    .iter()
                    .all(|form| *form == Some(Bf16Form::Compact))
            );
            assert!(
                forms(&whole)
                    .iter()
                    .all(|form| *form == Some(Bf16Form::Whole))
            );
            let epilogue = if compact.is_interleaved() {
                Epilogue::SwiGlu
            } else {
                Epilogue::Store
            };
            for rows in [1, 2, 3, 5, 8, 11, 12, 13, 40, 250] {
                let x = mk_values(rows * k, &mut rng);
                for isa in isas().filter(|isa| *isa >= TARGET.isa) {
                    let product = |weight| run(weight, &x, rows, epilogue, isa, 2);
                    let what = format!("{n}×{k}, {rows} rows, {packing:?}, {isa:?}");
                    assert_same_bits(&what, &product(&compact), &product(&whole));
                }
            }
        }
    }
}

#[test]
fn weights_of_many_exponents_lie_whole() {
    let mut rng = StdRng::seed_from_u64(12);
    let mut many = vec![0; 32 * 64 * 2];
    rng.fill(&mut many[..]);
    // k that no step divides, too.
    for (n, k, bytes) in [(32, 64, &many), (32, 62, &weights(32 * 62, &mut rng))] {
        let weight = PackedLinear::pack(&[source(n, k, bytes)], Packing::JOINED, TARGET, &serially)
            .expect("a matrix that fits");
        assert_eq!(forms(&weight), [Some(Bf16Form::Whole)], "{n}×{k}");
    }
}
