//! How gate and up become one, as the backend says it.

use crate::model::config::Glu;
use pd_compute::{Epilogue, OpFeature};

pub(super) fn epilogue(glu: Glu) -> Epilogue {
    match glu {
        Glu::Silu => Epilogue::SwiGlu,
        Glu::GeluTanh => Epilogue::GeluTanhGlu,
        Glu::ClampedSilu { alpha, limit } => Epilogue::ClampedSwiGlu { alpha, limit },
    }
}

pub(super) fn needs(glu: Glu) -> Option<OpFeature> {
    match glu {
        Glu::Silu => None,
        Glu::GeluTanh => Some(OpFeature::GeluTanhGlu),
        Glu::ClampedSilu { .. } => Some(OpFeature::ClampedSwiGlu),
    }
}
