//! A YAML or JSON text to a checked `PDDeployment`.

use crate::field::{FieldErrors, FieldPath};
use crate::pd_deployment::PdDeployment;
use crate::schema_check;
use crate::validate::check_rules;
use kube::Resource;
use serde_json::Value;

/// Why a text is not a valid `PDDeployment`.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    #[error("not valid YAML: {0}")]
    Syntax(String),
    #[error("{0} objects in the file; put exactly one PDDeployment into it")]
    Count(usize),
    #[error(transparent)]
    Fields(#[from] FieldErrors),
}

/// Reads exactly one `PDDeployment`; fields that it does not have are refused.
///
/// # Errors
/// What is wrong with the text: its syntax with line and column, or its fields with their paths.
pub fn parse(text: &str) -> Result<PdDeployment, DocumentError> {
    let mut documents: Vec<Value> = serde_saphyr::from_multiple(text)
        .map_err(|error| DocumentError::Syntax(error.to_string()))?;
    documents.retain(|document| !document.is_null());
    let count = documents.len();
    let document = documents
        .pop()
        .filter(|_| count == 1)
        .ok_or(DocumentError::Count(count))?;
    check_kind(&document)?;
    FieldErrors::check(schema_check::check(&document))?;
    let deployment: PdDeployment = serde_json::from_value(document).map_err(|error| {
        FieldErrors::from(FieldPath::default().error(format!("does not fit its types: {error}")))
    })?;
    FieldErrors::check(check_rules(&deployment))?;
    Ok(deployment)
}

fn check_kind(document: &Value) -> Result<(), FieldErrors> {
    let expect = |field: &str, expected: &str| {
        let path = FieldPath::new(field);
        match document.get(field).and_then(Value::as_str) {
            Some(given) if given == expected => None,
            Some(given) => Some(path.error(format!("{given} is not {expected}"))),
            None => Some(path.error(format!("must be {expected}"))),
        }
    };
    let errors = [
        expect("apiVersion", &PdDeployment::api_version(&())),
        expect("kind", &PdDeployment::kind(&())),
    ];
    FieldErrors::check(errors.into_iter().flatten().collect())
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
