//! Facts about what a backend may lack.

use super::{KvNeeds, OpFeature, OpNeeds};
use crate::dtype::DType;

fn check(needs: &OpNeeds, has: impl Fn(OpFeature) -> bool) -> Result<(), String> {
    let check_kv = |kv: KvNeeds| match kv.dtype {
        DType::F32 => Ok(()),
        DType::F16 | DType::BF16 | DType::U32 | DType::U8 | DType::F8E4M3 => {
            Err("choose float32".to_owned())
        }
    };
    let checked = needs.check_against("toy", has, check_kv);
    checked.map_err(|error| error.to_string())
}

#[test]
fn a_dense_decoder_needs_no_feature() {
    let kv = [DType::F32, DType::F32].map(|dtype| KvNeeds {
        dtype,
        head_dim: 64,
    });
    let needs = OpNeeds {
        kv: kv.into(),
        ..OpNeeds::default()
    };
    assert_eq!(check(&needs, |_| false), Ok(()));
}

#[test]
fn all_that_is_missing_is_named_at_once() {
    let needs = OpNeeds {
        features: [
            OpFeature::AttnWindow,
            OpFeature::AttnSinks,
            OpFeature::AttnGate,
        ]
        .into(),
        kv: Vec::new(),
    };
    assert_eq!(check(&needs, |_| true), Ok(()));
    assert_eq!(
        check(&needs, |feature| feature == OpFeature::AttnGate).unwrap_err(),
        "the toy backend lacks sliding-window attention, attention sinks, which this model needs; \
         choose another device or model"
    );
}

#[test]
fn a_pool_that_is_not_taken_is_named() {
    let needs = OpNeeds {
        kv: vec![KvNeeds {
            dtype: DType::F16,
            head_dim: 96,
        }],
        ..OpNeeds::default()
    };
    assert_eq!(
        check(&needs, |_| false).unwrap_err(),
        "the toy backend takes no KV pool of F16 with heads of 96: choose float32"
    );
}
