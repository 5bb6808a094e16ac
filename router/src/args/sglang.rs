//! The flags of SGLang's router that no field of `Args` reads, with what becomes of each: one
//! table, from which the parser, the warnings and the refusals are made. A flag that changes
//! answers, who is served or who is trusted is refused with what to do; one that only tunes starts
//! with one warning that names it, so that no user believes that it had an effect.

mod table;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use table::GROUPS;

/// Flags that mean the same here.
#[derive(Debug)]
struct Group {
    meaning: Meaning,
    /// Names without dashes, separated by spaces; `=` takes a value, `=*` several.
    flags: &'static str,
}

/// What becomes of a flag.
#[derive(Debug)]
enum Meaning {
    /// It starts, with a warning that says what is so instead.
    WithoutEffect(&'static str),
    /// One of `values` is what happens in any case; others are refused.
    Only {
        values: &'static [&'static str],
        instead: &'static str,
    },
    /// It ends the start, and says what to do.
    Refused(&'static str),
}

/// Those of the table that were given, in its order.
#[derive(Clone, Debug, Default)]
pub(crate) struct SglangArgs {
    given: Vec<Given>,
}

/// A flag that was given. Its value may be a secret and is not shown.
#[derive(Clone, Debug)]
struct Given {
    flag: &'static str,
    meaning: &'static Meaning,
    is_as_here: bool,
}

/// A flag that cannot be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("--{flag}: {instead}")]
pub struct RefusedFlag {
    flag: &'static str,
    instead: &'static str,
}

fn flags() -> impl Iterator<Item = (&'static str, Option<&'static str>, &'static Meaning)> {
    GROUPS.iter().flat_map(|group| {
        group.flags.split_whitespace().map(|word| {
            let (name, values) = word.split_once('=').unzip();
            (name.unwrap_or(word), values, &group.meaning)
        })
    })
}

fn arg(name: &'static str, values: Option<&str>) -> Arg {
    let arg = Arg::new(name).long(name).hide(true);
    match values {
        None => arg.action(ArgAction::SetTrue),
        Some("*") => arg.action(ArgAction::Append).num_args(0..),
        Some(_) => arg.action(ArgAction::Append).allow_negative_numbers(true),
    }
}

// === impl SglangArgs ===

impl SglangArgs {
    /// The note that is logged for each flag that has no effect.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        self.given.iter().filter_map(|given| match given.meaning {
            Meaning::WithoutEffect(why) => Some(format!(
                "--{} is accepted without effect: {why}",
                given.flag
            )),
            Meaning::Only { .. } | Meaning::Refused(_) => None,
        })
    }

    /// # Errors
    /// The first flag that cannot be, and what to do.
    pub(crate) fn check(&self) -> Result<(), RefusedFlag> {
        let refused = self.given.iter().find_map(|given| match given.meaning {
            Meaning::Refused(instead) => Some((given.flag, *instead)),
            Meaning::Only { instead, .. } if !given.is_as_here => Some((given.flag, *instead)),
            Meaning::Only { .. } | Meaning::WithoutEffect(_) => None,
        });
        match refused {
            Some((flag, instead)) => Err(RefusedFlag { flag, instead }),
            None => Ok(()),
        }
    }
}

impl Args for SglangArgs {
    fn augment_args(command: Command) -> Command {
        command.args(flags().map(|(name, values, _)| arg(name, values)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SglangArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = |(flag, values, meaning): (&'static str, Option<&str>, &'static Meaning)| {
            matches
                .value_source(flag)
                .filter(|source| *source != ValueSource::DefaultValue)?;
            let is_as_here = match (values, meaning) {
                (Some(_), Meaning::Only { values, .. }) => matches
                    .get_many::<String>(flag)
                    .into_iter()
                    .flatten()
                    .all(|value| values.contains(&value.as_str())),
                (Some(_) | None, _) => false,
            };
            Some(Given {
                flag,
                meaning,
                is_as_here,
            })
        };
        Ok(Self {
            given: flags().filter_map(given).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
