//! How a form is found: by the name that a flag gives, or by the marks in a chat template.

/// There is no form of this name.
#[derive(Debug, thiserror::Error)]
#[error("`{given}` is no {what}; there are {known}")]
pub struct UnknownForm {
    given: String,
    what: &'static str,
    known: String,
}

/// The form of a name, of all that there are; `others` are names that SGLang has for the same forms.
pub(crate) fn named<T: Copy>(
    given: &str,
    what: &'static str,
    all: &[T],
    name: fn(T) -> &'static str,
    others: &[(&str, T)],
) -> Result<T, UnknownForm> {
    let found = all.iter().copied().find(|&form| name(form) == given);
    let other = others.iter().find(|(name, _)| *name == given);
    found.or(other.map(|(_, form)| *form)).ok_or_else(|| {
        let known: Vec<_> = all.iter().copied().map(name).collect();
        UnknownForm {
            given: given.to_owned(),
            what,
            known: known.join(", "),
        }
    })
}

/// The form whose marks a chat template has, all of them; of several, the first of the list.
pub(crate) fn of_template<T: Copy>(template: &str, signs: &[(&[&str], T)]) -> Option<T> {
    let has = |marks: &&(&[&str], T)| marks.0.iter().all(|mark| template.contains(mark));
    signs.iter().find(has).map(|(_, form)| *form)
}

#[cfg(test)]
mod published;
