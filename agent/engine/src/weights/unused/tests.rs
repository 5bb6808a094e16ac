//! How unused tensors are counted.

use super::*;

#[test]
fn unused_tensors_are_counted_by_the_part_of_the_model() {
    let names = [
        "model.visual.blocks.0.norm.weight",
        "model.visual.blocks.1.norm.weight",
        "model.layers.0.mlp.up_proj.weight",
        "mtp.norm.weight",
        "lm_head.weight",
    ];
    let used = HashSet::from(["model.layers.0.mlp.up_proj.weight".to_owned()]);
    let counts = by_prefix(names.into_iter(), &used);
    let counts: Vec<(&str, usize)> = counts.iter().map(|(k, v)| (k.as_str(), *v)).collect();
    assert_eq!(
        counts,
        [("lm_head.*", 1), ("model.visual.*", 2), ("mtp.*", 1)]
    );
}
