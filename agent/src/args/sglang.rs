//! The flags of SGLang's server that no field of `Args` reads, and how each is handled: one table
//! that yields the parser, the warnings, the refusals and `--help-sglang`. A flag that changes
//! answers, memory or trust is refused with advice; one that only tunes is accepted with one
//! warning that names it, so that no user believes that it had an effect.

mod accepted;
mod refused;

use super::ArgError;
use clap::{Arg, ArgAction, ArgMatches, Command, Error, FromArgMatches};
use std::fmt::Write;

/// Why multi-rank flags are refused, and what to do.
pub(super) const ONE_RANK: &str =
    "this version runs one rank per process; set 1 and start more workers";

/// Flags that are handled alike.
#[derive(Debug)]
struct Group {
    meaning: Meaning,
    /// Names without dashes, separated by spaces; `=` takes a value, `=?` an optional one, `=*`
    /// several.
    flags: &'static str,
}

/// How a flag is handled.
#[derive(Debug)]
enum Meaning {
    /// The requested behaviour is the only one.
    Always(&'static str),
    /// Accepted with a warning that describes the actual behaviour.
    WithoutEffect(&'static str),
    /// Any of `values` is accepted, because it is the only behaviour; others are refused.
    Only {
        values: &'static str,
        instead: &'static str,
    },
    /// Ends the start, with advice.
    Refused(&'static str),
}

/// A flag that was given on the command line.
#[derive(Debug)]
struct Given {
    flag: &'static str,
    value: Option<String>,
    meaning: &'static Meaning,
}

/// The given flags of the table, in its order.
#[derive(Debug)]
pub(crate) struct SglangArgs {
    given: Vec<Given>,
}

fn groups() -> impl Iterator<Item = &'static Group> {
    accepted::GROUPS.iter().chain(refused::GROUPS)
}

// === impl Group ===

impl Group {
    /// Each flag: its name, and how many values it takes.
    fn flags(&self) -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
        let words = self.flags.split_whitespace();
        words.map(|word| {
            let (name, values) = word.split_once('=').unzip();
            (name.unwrap_or(word), values)
        })
    }

    fn args(&self) -> impl Iterator<Item = Arg> {
        self.flags().map(|(name, values)| {
            let arg = Arg::new(name).long(name).hide(true);
            match values {
                None => arg.action(ArgAction::SetTrue),
                Some("?") => taking(arg).num_args(0..=1),
                Some("*") => taking(arg).num_args(0..),
                Some(_) => taking(arg),
            }
        })
    }
}

fn taking(arg: Arg) -> Arg {
    arg.action(ArgAction::Append).allow_negative_numbers(true)
}

// === impl Meaning ===

impl Meaning {
    /// The advice that refuses `value`, if it is refused.
    fn refusal(&self, value: Option<&str>) -> Option<&'static str> {
        match self {
            Self::Always(_) | Self::WithoutEffect(_) => None,
            Self::Refused(instead) => Some(instead),
            Self::Only { values, instead } => {
                let is_so = values.split_whitespace().any(|so| Some(so) == value);
                (!is_so).then_some(instead)
            }
        }
    }

    fn heading(&self) -> String {
        match self {
            Self::Always(why) => format!("Always so: {why}"),
            Self::WithoutEffect(why) => format!("Accepted without effect: {why}"),
            Self::Only { values, instead } => {
                let values = values.split_whitespace().collect::<Vec<_>>().join(" or ");
                format!("Only {values}: {instead}")
            }
            Self::Refused(instead) => format!("Refused: {instead}"),
        }
    }
}

// === impl Given ===

impl Given {
    /// The flag with its value where the value explains the refusal. Only numbers and names are
    /// shown: others may be secrets.
    fn shown(&self) -> String {
        match (self.meaning, &self.value) {
            (Meaning::Only { .. }, Some(value)) => format!("--{} {value}", self.flag),
            _ => format!("--{}", self.flag),
        }
    }
}

// === impl SglangArgs ===

impl SglangArgs {
    /// Warns of each given flag that is accepted without effect.
    pub(crate) fn log(&self) {
        for Given { flag, meaning, .. } in &self.given {
            match meaning {
                Meaning::Always(why) => tracing::info!("--{flag}: {why}"),
                Meaning::WithoutEffect(why) => {
                    tracing::warn!("--{flag} is accepted without effect: {why}");
                }
                Meaning::Only { .. } | Meaning::Refused(_) => {}
            }
        }
    }

    /// Adds each refusal once, with all flags that it concerns.
    pub(super) fn refuse(&self, broken: &mut Vec<ArgError>) {
        for given in &self.given {
            if let Some(instead) = given.meaning.refusal(given.value.as_deref()) {
                refuse(broken, given.shown(), instead);
            }
        }
    }

    /// The table, for `--help-sglang`.
    pub(super) fn help() -> String {
        let mut text = "Flags of SGLang's server beyond those of --help, with how each is \
                        handled here.\n"
            .to_owned();
        for group in groups() {
            let names: Vec<String> = group.flags().map(|(name, _)| format!("--{name}")).collect();
            let heading = group.meaning.heading();
            let written = writeln!(text, "\n{heading}\n  {}", names.join(" "));
            written.expect("a string takes any text");
        }
        text
    }
}

/// Adds a refusal; one with the same advice gains the flag.
pub(super) fn refuse(broken: &mut Vec<ArgError>, flag: String, instead: &'static str) {
    for error in broken.iter_mut() {
        if let ArgError::Refused { flags, instead: of } = error
            && *of == instead
        {
            flags.push_str(", ");
            flags.push_str(&flag);
            return;
        }
    }
    broken.push(ArgError::Refused {
        flags: flag,
        instead,
    });
}

impl FromArgMatches for SglangArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut given = Vec::new();
        for group in groups() {
            for (flag, values) in group.flags() {
                let value = match values {
                    None if matches.get_flag(flag) => None,
                    Some(_) if matches.contains_id(flag) => {
                        let values = matches.get_many::<String>(flag);
                        // The last value wins, as for the flags of `Args`.
                        values.and_then(Iterator::last).cloned()
                    }
                    _ => continue,
                };
                let meaning = &group.meaning;
                given.push(Given {
                    flag,
                    value,
                    meaning,
                });
            }
        }
        Ok(Self { given })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for SglangArgs {
    fn augment_args(command: Command) -> Command {
        command.args(groups().flat_map(Group::args))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests;
