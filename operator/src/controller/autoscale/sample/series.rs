//! The series of a text by name, for what each engine says in its own words.

use super::SampleError;
use crate::controller::autoscale::exposition::Exposition;
use pd_protocol::exposition::Sample;

/// No figure of a worker reaches this: ten years of the fastest network's bytes.
const VALUE_MAX: f64 = 1e20;

pub(super) struct Series<'a>(Exposition<'a>);

// === impl Series ===

impl<'a> Series<'a> {
    pub(super) fn of(said: Exposition<'a>) -> Self {
        Self(said)
    }

    /// The one without labels.
    pub(super) fn value(&self, name: &'static str) -> Result<f64, SampleError> {
        let value = self.0.plain.get(name);
        checked(name, *value.ok_or(SampleError::Missing(name))?)
    }

    /// Those with labels.
    pub(super) fn samples(&self, name: &'static str) -> impl Iterator<Item = &Sample<'a>> {
        let samples = self.0.labelled.iter();
        samples.filter(move |sample| sample.name == name)
    }

    pub(super) fn all(&self, name: &'static str) -> impl Iterator<Item = f64> {
        self.samples(name).map(|sample| sample.value)
    }

    /// How many there are with labels.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a text has fewer than 2^52 lines"
    )]
    pub(super) fn count(&self, name: &'static str) -> f64 {
        self.samples(name).count() as f64
    }

    /// The sum of those with labels; 0 where none has begun.
    pub(super) fn sum(&self, name: &'static str) -> Result<f64, SampleError> {
        self.all(name)
            .try_fold(0.0, |sum, value| Ok(sum + checked(name, value)?))
    }

    /// The sum of those whose label is as wanted.
    pub(super) fn sum_where(
        &self,
        name: &'static str,
        (label, wanted): (&str, fn(&str) -> bool),
    ) -> Result<f64, SampleError> {
        let samples = self.samples(name);
        let mut kept = samples.filter(|sample| sample.label(label).is_some_and(|is| wanted(&is)));
        kept.try_fold(0.0, |sum, sample| Ok(sum + checked(name, sample.value)?))
    }
}

/// A figure that can be one.
pub(super) fn checked(name: &'static str, value: f64) -> Result<f64, SampleError> {
    if (0.0..VALUE_MAX).contains(&value) {
        Ok(value)
    } else {
        Err(SampleError::Nonsense { name, value })
    }
}
