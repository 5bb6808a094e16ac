//! How layers make groups.

use super::*;
use crate::model::config::{Mixer, hf};
use std::path::Path;

#[test]
fn layers_that_are_stored_alike_count_within_their_group() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/tiny-llama");
    let mut config = hf::read_config(&folder).unwrap();
    let spec = KvPoolSpec::of(&config);
    assert_eq!(spec.groups.len(), 1);
    assert_eq!(spec.groups[0].layers, [0, 1, 2]);
    assert_eq!(spec.groups[0].elements_per_token(), 3 * 2 * 2 * 16);

    match &mut config.layers[1].mixer {
        Mixer::Attention(attention) => attention.num_kv_heads = 4,
    }
    let spec = KvPoolSpec::of(&config);
    let layers: Vec<&[usize]> = spec.groups.iter().map(|group| &group.layers[..]).collect();
    assert_eq!(layers, [&[0, 2][..], &[1]]);
    let place = |group, ordinal| LayerPlace { group, ordinal };
    let places: Vec<LayerPlace> = (0..3).map(|layer| spec.place(layer)).collect();
    assert_eq!(places, [place(0, 0), place(1, 0), place(0, 1)]);
}
