//! Shapes, formats and refusals; what packed weights compute is tested with `cpu::linear`.

use super::{AlignedBytes, PackTarget, PackedLinear, layout, serially};
use crate::device_types::WeightMatrix as _;
use crate::dtype::ComputeDtype;
use crate::dtype::WeightFormat;
use crate::k_order::{KOrder, KShares, Packing};
use crate::weight::WeightSource;

fn source(format: WeightFormat, n: usize, k: usize, bytes: &[u8]) -> WeightSource<'_> {
    WeightSource {
        name: "w",
        format,
        n,
        k,
        bytes,
        scales: &[],
    }
}

fn pack(parts: &[WeightSource<'_>], packing: Packing) -> Result<PackedLinear, String> {
    PackedLinear::pack(
        parts,
        packing,
        PackTarget::any(ComputeDtype::F32),
        &serially,
    )
    .map_err(|e| e.to_string())
}

#[test]
fn quantised_formats_take_the_bytes_of_the_file() {
    for format in [
        WeightFormat::Q8_0,
        WeightFormat::Q4_0,
        WeightFormat::Q4_1,
        WeightFormat::Q6K,
    ] {
        let stored = 32 * format.row_bytes(512).expect("whole blocks");
        assert_eq!(layout::block_bytes(format, 512), stored, "{format:?}");
    }
    // Q4_K's six-bit scales take a byte each.
    let stored = 32 * WeightFormat::Q4K.row_bytes(512).expect("whole blocks");
    assert_eq!(
        layout::block_bytes(WeightFormat::Q4K, 512),
        stored + 32 * 2 * 4
    );
}

#[test]
fn joined_parts_keep_their_formats_and_columns() {
    let (q, v) = (vec![0; 40 * 34], vec![0; 8 * 64]);
    let packed = pack(
        &[
            source(WeightFormat::Q8_0, 40, 32, &q),
            source(WeightFormat::F16, 8, 32, &v),
        ],
        Packing::JOINED,
    )
    .expect("parts that fit");
    assert_eq!((packed.out_len(), packed.block_count()), (48, 3));
    let segments = packed.segments();
    assert_eq!(segments[0].columns, 0..40);
    assert_eq!(
        (segments[1].format, segments[1].columns.clone()),
        (WeightFormat::F16, 40..48)
    );
}

#[test]
fn a_gate_and_up_of_different_formats_become_f32() {
    let (gate, up) = (vec![0; 16 * 34], vec![0; 16 * 20]);
    let parts = [
        source(WeightFormat::Q8_0, 16, 32, &gate),
        source(WeightFormat::Q4_1, 16, 32, &up),
    ];
    let packed = pack(&parts, Packing::Interleaved).expect("parts that fit");
    assert_eq!(packed.segments()[0].format, WeightFormat::F32);
    assert_eq!((packed.out_len(), packed.block_count()), (16, 1));
}

#[test]
fn what_does_not_fit_is_named() {
    let bytes = vec![0; 34 * 4];
    let cases = [
        (
            vec![source(WeightFormat::Q8_0, 5, 32, &bytes)],
            Packing::JOINED,
            "weight w: 136 bytes",
        ),
        (
            vec![source(WeightFormat::Q8_0, 4, 33, &bytes)],
            Packing::JOINED,
            "no whole number of Q8_0",
        ),
        (
            vec![
                source(WeightFormat::Q8_0, 4, 32, &bytes),
                source(WeightFormat::Q8_0, 2, 64, &bytes),
            ],
            Packing::JOINED,
            "k is 64, but 32 in the part before it",
        ),
        (
            vec![source(WeightFormat::Q8_0, 4, 32, &bytes)],
            Packing::Interleaved,
            "gate and up are two",
        ),
    ];
    for (parts, packing, expected) in cases {
        let error = pack(&parts, packing).expect_err(expected);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn an_empty_weight_packs() {
    let packed =
        pack(&[source(WeightFormat::F32, 0, 8, &[])], Packing::JOINED).expect("nothing to pack");
    assert_eq!((packed.out_len(), packed.packed_bytes().len()), (0, 0));
}

#[test]
fn memory_of_every_size_is_zeroed_and_aligned() {
    for len in [0, 1, 4096, (2 << 20) - 1, 2 << 20, (5 << 20) + 3] {
        let mut bytes = AlignedBytes::zeroed(len).expect("a few MB");
        assert_eq!(bytes.as_slice().len(), len);
        assert!(bytes.as_slice().iter().all(|byte| *byte == 0));
        let align = if len >= 2 << 20 { 2 << 20 } else { 64 };
        assert!(
            len == 0 || bytes.as_mut_ptr().addr().is_multiple_of(align),
            "{len}"
        );
    }
}

#[test]
fn weights_that_are_packed_side_by_side_have_the_bytes_of_each_alone() {
    let bytes: Vec<u8> = (0..40 * 34 * 2).map(|i| (i * 7 % 251) as u8).collect();
    let parts: Vec<_> = [40, 3, 40, 17]
        .map(|n| source(WeightFormat::Q8_0, n, 64, &bytes[..n * 68]))
        .to_vec();
    let lists: Vec<_> = parts.iter().map(std::slice::from_ref).collect();
    let together = PackedLinear::pack_all(
        &lists,
        Packing::JOINED,
        PackTarget::any(ComputeDtype::F32),
        &serially,
    )
    .expect("matrices that fit");
    assert_eq!(together.len(), parts.len());
    for (together, part) in together.iter().zip(&parts) {
        let alone = pack(&[*part], Packing::JOINED).expect("a matrix that fits");
        assert_eq!(together.packed_bytes(), alone.packed_bytes());
        assert_eq!((together.out_len(), together.k()), (part.n, part.k));
    }
    let pairs = [&parts[..1], &parts[2..]];
    let refused = PackedLinear::pack_all(
        &pairs,
        Packing::Interleaved,
        PackTarget::any(ComputeDtype::F32),
        &serially,
    );
    let message = refused.expect_err("one is no pair").to_string();
    assert!(message.contains("gate and up are two"), "{message}");
}

#[test]
fn k_has_eight_shares_where_its_format_has_so_many_parts() {
    for (format, k, has_shares) in [
        (WeightFormat::F32, 8, true),
        (WeightFormat::F16, 12, false),
        (WeightFormat::BF16, 576, true),
        (WeightFormat::BF16, 24, false),
        (WeightFormat::Q4_1, 1536, true),
        (WeightFormat::Q4_1, 576, false),
        (WeightFormat::Mxfp4, 2880, false),
        // Shares of a whole number of the activations' groups, though not of the format's blocks.
        (WeightFormat::Q4K, 768, true),
    ] {
        let bytes = vec![0; format.row_bytes(k).expect("whole blocks")];
        let parts = [source(format, 1, k, &bytes)];
        let packed = pack(&parts, Packing::SUMMED).expect("a matrix that fits");
        let order = std::sync::Arc::new(packed).k_order();
        assert_eq!(order.holds_for_every_tp(), has_shares, "{format:?} of {k}");
        let half = pack(&parts, Packing::Joined(KOrder::Tree(KShares::Four)));
        assert_eq!(half.is_ok(), k.is_multiple_of(4 * layout::k_unit(format)));
        let Err(message) = half else { continue };
        assert!(
            message.contains("which are no 4 of the 8 shares"),
            "{message}"
        );
    }
}
