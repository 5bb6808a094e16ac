//! A worker's `/metrics`, read strictly: one line that is not in the format refuses all of it, because its
//! writer cannot be trusted with the rest.

use pd_protocol::exposition::{MalformedLine, Sample, samples};
use std::collections::HashMap;

/// Longest text that is read; an agent writes some 30 KiB, SGLang and vLLM 100 and more.
const TEXT_BYTES_MAX: usize = 4 << 20;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExpositionError {
    #[error("the text has {bytes} bytes, and {TEXT_BYTES_MAX} are read at most")]
    TooLong { bytes: usize },
    #[error(transparent)]
    Malformed(#[from] MalformedLine),
    #[error("{name} is given twice")]
    Twice { name: String },
}

/// What a text says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Exposition<'a> {
    /// The series without labels, by name.
    pub(crate) plain: HashMap<&'a str, f64>,
    /// Those with labels.
    pub(crate) labelled: Vec<Sample<'a>>,
}

pub(crate) fn parse(text: &str) -> Result<Exposition<'_>, ExpositionError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(ExpositionError::TooLong { bytes: text.len() });
    }
    let mut said = Exposition::default();
    for sample in samples(text) {
        let sample = sample?;
        if sample.has_labels() {
            said.labelled.push(sample);
        } else if said.plain.insert(sample.name, sample.value).is_some() {
            return Err(ExpositionError::Twice {
                name: sample.name.to_owned(),
            });
        }
    }
    Ok(said)
}
