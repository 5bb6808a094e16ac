//! What is carried out of a deployment: its spec, or while that is refused, the last valid one, which the newest record
//! carries.

use super::apply::Writer;
use super::context::Context;
use super::error::{ApplyError, bounded};
use super::history::last_valid;
use crate::controller::build::{self, Resources};
use crate::controller::validate::{self, Valid};
use pd_crds::PdDeployment;
use pd_crds::field::FieldErrors;

/// A valid spec, with the objects that follow from it.
pub(crate) struct EffectiveSpec {
    pub(crate) valid: Valid,
    pub(crate) resources: Resources,
    /// Why it is not the spec as last edited.
    pub(crate) refused: Option<String>,
}

// === impl EffectiveSpec ===

impl EffectiveSpec {
    /// The spec, or while that is refused, the last valid one; why it is refused where there is none.
    pub(crate) async fn choose(writer: &Writer<'_>) -> Result<Result<Self, String>, ApplyError> {
        let Writer {
            context,
            deployment,
            ..
        } = writer;
        let valid = validate::for_a_cluster(deployment, &context.config);
        let refused = match Self::of(valid, context) {
            Ok(spec) => return Ok(Ok(spec)),
            Err(errors) => bounded(&errors),
        };
        let kept = last_valid(writer).await?.map(Valid::accepted_before);
        let kept = kept.and_then(|kept| Self::of(Ok(kept), context).ok());
        Ok(match kept {
            Some(kept) => Ok(Self {
                refused: Some(refused),
                ..kept
            }),
            None => Err(refused),
        })
    }

    fn of(valid: Result<Valid, FieldErrors>, context: &Context) -> Result<Self, FieldErrors> {
        let valid = valid?;
        Ok(Self {
            resources: build::build(&valid, &context.config)?,
            valid,
            refused: None,
        })
    }

    /// The deployment with the spec that is carried out.
    pub(crate) fn deployment(&self) -> &PdDeployment {
        self.valid.deployment()
    }
}
