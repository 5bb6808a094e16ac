//! Names of forms, as flags give them.

/// There is no form of this name.
#[derive(Debug, thiserror::Error)]
#[error("`{given}` is no {what}; there are {known}")]
pub struct UnknownForm {
    given: String,
    what: &'static str,
    known: String,
}

/// The form of a name, of all that there are.
pub(crate) fn named<T: Copy>(
    given: &str,
    what: &'static str,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Result<T, UnknownForm> {
    let found = all.iter().copied().find(|&form| name(form) == given);
    found.ok_or_else(|| {
        let known: Vec<_> = all.iter().copied().map(name).collect();
        UnknownForm {
            given: given.to_owned(),
            what,
            known: known.join(", "),
        }
    })
}
