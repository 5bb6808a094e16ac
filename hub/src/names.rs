//! Names on the hub, which become parts of paths and URLs.

use crate::hash::is_hex;
use std::fmt;
use std::str::FromStr;

/// A repository, `organization/name`. Of the characters that the hub allows, so that it is safe as a folder's name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RepoName(String);

/// A commit: 40 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Commit(String);

/// Why a text names no repository.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is no repository of the hub; give organization/name, such as Qwen/Qwen3-8B")]
pub struct NotARepo(String);

/// Whether a path of a repository stays in it, wherever it is put.
pub(crate) fn is_inside(path: &str) -> bool {
    let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    path.split('/').all(is_plain) && !path.contains(['\\', '\0'])
}

// === impl RepoName ===

impl RepoName {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn parts(&self) -> [&str; 2] {
        let (owner, name) = self.0.split_once('/').expect("a slash, by from_str");
        [owner, name]
    }

    /// Folder of the repository in a cache.
    pub(crate) fn folder(&self) -> String {
        format!("models--{}", self.parts().join("--"))
    }
}

impl FromStr for RepoName {
    type Err = NotARepo;

    fn from_str(text: &str) -> Result<Self, NotARepo> {
        let is_part = |part: &str| {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            (1..=96).contains(&part.len())
                && part.bytes().all(allowed)
                && !part.starts_with(['.', '-'])
                && !part.contains("..")
        };
        match text.split_once('/') {
            Some((owner, name)) if is_part(owner) && is_part(name) => Ok(Self(text.to_owned())),
            _ => Err(NotARepo(text.to_owned())),
        }
    }
}

impl fmt::Display for RepoName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl Commit ===

impl Commit {
    /// Nothing where the text is a branch, a tag or part of a commit.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        is_hex(text, 40).then(|| Self(text.to_owned()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    //! Facts about names.

    use super::*;

    #[test]
    fn a_repository_is_an_organization_and_a_name() {
        for text in ["Qwen/Qwen3-8B", "a/b", "deepseek-ai/DeepSeek-V3.1"] {
            assert_eq!(text.parse::<RepoName>().expect("a name").as_str(), text);
        }
        for text in [
            "", "a", "/b", "a/", "a/b/c", "../b", "a/..", "./b", "a b/c", "a/b\n",
        ] {
            assert!(text.parse::<RepoName>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn only_a_whole_commit_is_one() {
        let whole = "0123456789abcdef0123456789abcdef01234567";
        assert!(Commit::parse(whole).is_some());
        for text in ["main", &whole[1..], &whole.to_uppercase(), "v1.0"] {
            assert!(Commit::parse(text).is_none(), "{text}");
        }
    }
}
