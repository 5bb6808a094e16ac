//! Documents are run: every fenced block of a document is a fact that a test holds. Commands run as they stand, in the
//! order of the document; what this machine cannot run is marked with its reason and checked as far as it can be.
//!
//! A mark is a comment on the line before a block, or on a document's first line for all of its blocks:
//!
//! * `<!-- test: kube -->`: runs on the Kubernetes of `make e2e-kube`, not on this machine.
//! * `<!-- test: ci -->`: its commands are steps of `.ci/run`, which the test compares.
//! * `<!-- test: check: REASON -->`: runs nowhere here, for this reason; its commands are checked one by one.

mod block;
mod check;
mod containers;
mod table;
mod walk;

pub use block::{Block, Language, Mark, MarkError};
pub use check::{Checker, NotAsWritten};
pub use table::{Outcome, Row, Table};
pub use walk::{Network, WalkSite, walk};

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// A file with blocks, in their order.
#[derive(Debug)]
pub struct Document {
    /// Relative to the repository.
    pub path: PathBuf,
    pub blocks: Vec<Block>,
}

/// Reads every document of a repository: its Markdown, and the comments of its examples.
///
/// # Errors
/// When a file cannot be read or a mark says nothing that is known; the error names file and line.
pub fn documents(root: &Path) -> Result<Vec<Document>> {
    let mut paths = Vec::new();
    for folder in ["", "docs", "charts", "examples", "release"] {
        collect(root, Path::new(folder), folder.is_empty(), &mut paths)?;
    }
    paths.sort();
    let mut documents = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(root.join(&path))
            .with_context(|| path.display().to_string())?;
        let is_example = path.extension().is_some_and(|e| e == "yaml");
        let blocks = if is_example {
            block::of_comments(&text)
        } else {
            block::of_markdown(&text)
        };
        let blocks = blocks.with_context(|| path.display().to_string())?;
        if !blocks.is_empty() {
            documents.push(Document { path, blocks });
        }
    }
    Ok(documents)
}

fn collect(root: &Path, folder: &Path, flat: bool, paths: &mut Vec<PathBuf>) -> Result<()> {
    let Ok(entries) = std::fs::read_dir(root.join(folder)) else {
        return Ok(());
    };
    for entry in entries {
        let path = folder.join(entry?.file_name());
        let is_folder = root.join(&path).is_dir();
        if is_folder && !flat {
            collect(root, &path, false, paths)?;
        }
        let extension = path.extension().and_then(|e| e.to_str());
        let is_document = match extension {
            Some("md") => true,
            Some("yaml") => folder.starts_with("examples"),
            _ => false,
        };
        if is_document && !is_folder {
            paths.push(path);
        }
    }
    Ok(())
}
