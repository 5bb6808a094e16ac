//! Facts about compatible pairs.

use super::*;
use crate::layout::{KvCut, KvDtype, PAGE_ORDER};
use crate::metadata::MetadataLayout;

fn mk_layout(dtype: KvDtype) -> KvLayout {
    KvLayout {
        order: PAGE_ORDER.to_owned(),
        page_size: 16,
        pages: 8,
        groups: vec![KvGroup {
            name: "full".to_owned(),
            dtype,
            head_dim: 64,
            tensors: 2,
            total_heads: 4,
            head_start: 0,
            heads: 4,
            cuts: vec![KvCut {
                first_layer: 0,
                layers: 2,
            }],
        }],
        states: Vec::new(),
        metadata: MetadataLayout {
            hidden_size: 0,
            hidden_dtype: dtype,
        },
        metadata_rows: 4,
    }
}

fn check(p: &KvLayout, p_compat: &str, d: &KvLayout, d_compat: &str) -> Result<(), Incompatible> {
    let meaning = |kv_compat, layout| KvMeaning { kv_compat, layout };
    check_pair(meaning(p_compat, p), meaning(d_compat, d))
}

#[test]
fn a_different_dtype_names_both_values() {
    let (p, d) = (mk_layout(KvDtype::Float32), mk_layout(KvDtype::Bfloat16));
    let error = check(&p, "a", &d, "a").unwrap_err();
    assert_eq!(
        error.to_string(),
        "kv_cache_dtype differs: prefill has Float32, decode has Bfloat16"
    );
}

#[test]
fn pools_of_different_size_and_split_fit() {
    let p = mk_layout(KvDtype::Float32);
    let mut d = p.clone();
    (d.pages, d.metadata_rows, d.groups[0].heads) = (100, 9, 2);
    assert_eq!(check(&p, "a", &d, "a"), Ok(()));
}

#[test]
fn a_different_digest_is_refused() {
    let layout = mk_layout(KvDtype::Float32);
    assert_eq!(
        check(&layout, "a", &layout, "b").unwrap_err().what,
        "kvCompat"
    );
}
