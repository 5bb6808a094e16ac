//! What rounds transfer.

use super::*;
use std::collections::BTreeSet;

fn mk_shape(pieces: u32, piece_pages: u32) -> Shape {
    Shape {
        pieces,
        piece_pages,
    }
}

#[test]
fn a_table_has_the_whole_in_pieces_of_each_size_and_parts_of_it() {
    let shapes = shapes(16_384);
    let of = |&Shape {
                  pieces,
                  piece_pages,
              }: &Shape| (pieces, piece_pages);
    let shapes: Vec<_> = shapes.iter().map(of).collect();
    assert_eq!(
        shapes,
        [
            (16_384, 1),
            (1024, 16),
            (64, 256),
            (4096, 1),
            (256, 1),
            (16, 1)
        ]
    );
}

#[test]
fn what_does_not_fit_is_left_out() {
    assert_eq!(shapes(1), [mk_shape(1, 1)]);
    assert_eq!(shapes(16), [mk_shape(16, 1), mk_shape(1, 16)]);
}

#[test]
fn pieces_are_adjacent_pages_and_disjoint() {
    for (shape, pool) in [
        (mk_shape(64, 16), 1024),
        (mk_shape(3, 16), 1000),
        (mk_shape(16, 1), 64),
    ] {
        let pages = shape.scatter(pool, 1);
        assert_eq!(pages.len(), shape.pages() as usize);
        assert_eq!(pages.iter().collect::<BTreeSet<_>>().len(), pages.len());
        assert!(pages.iter().all(|&page| page < pool));
        for piece in pages.chunks(shape.piece_pages as usize) {
            assert!(piece.windows(2).all(|pair| pair[0] + 1 == pair[1]));
        }
    }
}

#[test]
fn another_seed_is_another_order() {
    let shape = mk_shape(1024, 1);
    assert_eq!(shape.scatter(1024, 1), shape.scatter(1024, 1));
    assert_ne!(shape.scatter(1024, 1), shape.scatter(1024, 2));
}
