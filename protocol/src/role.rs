//! What a worker does.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// SGLang's `--disaggregation-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Prefill,
    Decode,
    /// Prefill and decode in one process; SGLang's word, in flags and on the wire, is `null`.
    #[serde(rename = "null")]
    Unified,
}

/// A role's name that is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the role {0:?} is not known; choose prefill, decode or null")]
pub struct UnknownRole(pub String);

// === impl Role ===

impl Role {
    pub const ALL: [Self; 3] = [Self::Prefill, Self::Decode, Self::Unified];

    /// The word of flags, JSON and metric labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Unified => "null",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(name: &str) -> Result<Self, UnknownRole> {
        let named = Self::ALL.into_iter().find(|role| role.as_str() == name);
        named.ok_or_else(|| UnknownRole(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::Role;

    #[test]
    fn a_role_has_one_name_in_flags_and_json() {
        for role in Role::ALL {
            assert_eq!(role.as_str().parse(), Ok(role));
            let json = format!("\"{role}\"");
            assert_eq!(serde_json::to_string(&role).unwrap(), json);
        }
        assert!("monolith".parse::<Role>().is_err());
    }
}
