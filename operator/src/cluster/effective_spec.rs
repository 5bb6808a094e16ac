//! What is carried out of a deployment: its spec, or while that is refused or its model is fetched, the last one that was
//! carried out, which the newest record carries. A branch of a model's repository stands there as its commit.

use super::apply::Writer;
use super::context::Context;
use super::error::{ApplyError, bounded};
use super::history::last_valid;
use super::models;
use crate::controller::build::{self, Resources};
use crate::controller::validate::{self, Valid};
use pd_crds::PdDeployment;
use pd_crds::field::FieldErrors;
use pd_crds::status::ModelStatus;

/// A valid spec, with the objects that follow from it.
pub(crate) struct EffectiveSpec {
    pub(crate) valid: Valid,
    pub(crate) resources: Resources,
    /// Why it is not the spec as last edited.
    pub(crate) refused: Option<String>,
    /// The model that the spec as last edited has fetched, or is fetched for it.
    pub(crate) model: Option<ModelStatus>,
}

/// What a reconcile carries out.
pub(crate) enum Chosen {
    Spec(Box<EffectiveSpec>),
    /// Nothing was ever valid, for this reason.
    Refused(String),
    /// Nothing yet: its first model is fetched.
    Fetching(ModelStatus),
}

// === impl EffectiveSpec ===

impl EffectiveSpec {
    /// The spec, or the last one that was carried out; why there is none.
    pub(crate) async fn choose(writer: &Writer<'_>) -> Result<Chosen, ApplyError> {
        let Writer {
            context,
            deployment,
            ..
        } = writer;
        let valid = validate::for_a_cluster(deployment, &context.config);
        let (refused, model) = match Self::of(valid, context) {
            Ok(spec) => {
                let model = models::fetch(writer, deployment, &spec.resources).await?;
                match &model {
                    None => return Ok(Chosen::Spec(Box::new(spec))),
                    Some(fetched) if fetched.is_resolved() => {
                        return Ok(
                            match Self::of(spec.valid.at_commit(&fetched.commit), context) {
                                Ok(pinned) => Chosen::Spec(Box::new(Self { model, ..pinned })),
                                Err(errors) => Chosen::Refused(bounded(&errors)),
                            },
                        );
                    }
                    Some(_) => (None, model),
                }
            }
            Err(errors) => {
                let before = deployment.status.as_ref();
                let model = before.and_then(|before| before.model.clone());
                (Some(bounded(&errors)), model)
            }
        };
        let kept = last_valid(writer).await?.map(Valid::accepted_before);
        let kept = kept.and_then(|kept| Self::of(Ok(kept), context).ok());
        Ok(match (kept, refused, model) {
            (Some(kept), refused, model) => Chosen::Spec(Box::new(Self {
                refused,
                model,
                ..kept
            })),
            (None, Some(refused), _) => Chosen::Refused(refused),
            (None, None, model) => Chosen::Fetching(model.unwrap_or_default()),
        })
    }

    fn of(valid: Result<Valid, FieldErrors>, context: &Context) -> Result<Self, FieldErrors> {
        let valid = valid?;
        Ok(Self {
            resources: build::build(&valid, &context.config)?,
            valid,
            refused: None,
            model: None,
        })
    }

    /// The model that is fetched for the spec as last edited, while no worker can be made that reads it.
    pub(crate) fn fetching(&self) -> Option<&ModelStatus> {
        self.model.as_ref().filter(|model| !model.is_resolved())
    }

    /// The deployment with the spec that is carried out.
    pub(crate) fn deployment(&self) -> &PdDeployment {
        self.valid.deployment()
    }
}
