//! Runs a document's blocks in their order, in one shell, in a folder that holds only what git tracks.
//!
//! The folder is a copy that a mount namespace puts in the repository's place, with its `target` and `.cache` inside: a
//! newcomer's clone, whose builds are those of this checkout. Processes that a document leaves behind end with the
//! shell's process namespace.

use super::{Block, Document, Outcome, Row};
use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// Longest time for one document.
const LIMIT: Duration = Duration::from_secs(900);
/// Last lines of a block's output that a failing row shows.
const SHOWN_LINES: usize = 40;
/// What is built or fetched, and not tracked.
const KEPT: [&str; 2] = ["target", ".cache"];

/// Where documents run.
#[derive(Debug)]
pub struct Place {
    /// The repository.
    pub root: PathBuf,
    /// Environment of the shell, beside that of this process.
    pub env: Vec<(&'static str, String)>,
}

/// Runs the blocks that `chosen` names, and gives a row for each of them.
///
/// # Errors
/// When the folder or the shell cannot be made; a block that fails is a row.
pub async fn walk(
    place: &Place,
    document: &Document,
    chosen: impl Fn(&Block) -> bool,
) -> Result<Vec<Row>> {
    let blocks: Vec<&Block> = document.blocks.iter().filter(|b| chosen(b)).collect();
    if blocks.is_empty() {
        return Ok(Vec::new());
    }
    let scratch = tempfile::tempdir()?;
    let clone = scratch.path().join("clone");
    copy_tracked(&place.root, &clone).await?;
    let marks = scratch.path().join("marks");
    std::fs::write(&marks, "")?;
    let script = scratch.path().join("script");
    std::fs::write(&script, script_of(&blocks, &marks))?;
    let output = run(place, &clone, &script).await?;
    let ends = Ends::read(&std::fs::read_to_string(&marks)?);
    Ok(blocks
        .iter()
        .enumerate()
        .map(|(index, block)| Row::of(document, block, ends.outcome(index, &output)))
        .collect())
}

/// Each block between two marks, so that it is known which one failed and how long each took.
fn script_of(blocks: &[&Block], marks: &Path) -> String {
    let mut script = String::from("set -eo pipefail\nset -m\nexec 2>&1\n");
    for (index, block) in blocks.iter().enumerate() {
        let mark = |word: &str| {
            format!(
                "echo \"{word} {index} $EPOCHREALTIME\" >>'{}'\n",
                marks.display()
            )
        };
        let _ = write!(
            script,
            "{}echo '@@ block {index}'\n{}\n{}",
            mark("begin"),
            block.text,
            mark("end")
        );
    }
    script
}

/// Files and folders keep their times, by which Cargo knows what it has compiled.
async fn copy_tracked(root: &Path, clone: &Path) -> Result<()> {
    let (root_text, clone_text) = (root.display(), clone.display());
    let copy = format!(
        "cd '{root_text}'
        git ls-files -z | tar --null --files-from=- --create | tar --extract --directory='{clone_text}'
        git ls-files -z | xargs -0 dirname -z | sort -zu |
            xargs -0 -I{{}} touch -r '{root_text}/{{}}' '{clone_text}/{{}}'"
    );
    std::fs::create_dir_all(clone)?;
    let status = Command::new("bash")
        .args(["-e", "-o", "pipefail", "-c", &copy])
        .status()
        .await?;
    if !status.success() {
        bail!("what git tracks in {} cannot be copied", root.display());
    }
    for folder in KEPT {
        std::fs::create_dir_all(clone.join(folder))?;
        std::fs::create_dir_all(root.join(folder))?;
    }
    Ok(())
}

async fn run(place: &Place, clone: &Path, script: &Path) -> Result<String> {
    let (root, clone) = (place.root.display(), clone.display());
    let mut enter = String::from("set -e\n");
    for folder in KEPT {
        let _ = writeln!(enter, "mount --bind '{root}/{folder}' '{clone}/{folder}'");
    }
    let _ = write!(
        enter,
        "mount --rbind '{clone}' '{root}'\ncd '{root}'\nexec bash '{}'",
        script.display()
    );
    let is_root = rustix::process::geteuid().is_root();
    let user: &[&str] = if is_root {
        &[]
    } else {
        &["--user", "--map-root-user"]
    };
    let child = Command::new("unshare")
        .args(user)
        .args(["--mount", "--pid", "--fork", "--mount-proc", "--kill-child"])
        .args(["bash", "-c", &enter])
        .envs(
            place
                .env
                .iter()
                .map(|(name, value)| (*name, value.as_str())),
        )
        .env_remove("CARGO_TARGET_DIR")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("unshare of util-linux, which gives a document a folder of its own")?;
    match tokio::time::timeout(LIMIT, child.wait_with_output()).await {
        Ok(output) => {
            let output = output?;
            let mut text = String::from_utf8_lossy(&output.stderr).into_owned();
            text.push_str(&String::from_utf8_lossy(&output.stdout));
            Ok(text)
        }
        Err(_) => bail!("a document still runs after {LIMIT:?}"),
    }
}

/// When each block began and ended, in seconds.
struct Ends(Vec<(f64, Option<f64>)>);

// === impl Ends ===

impl Ends {
    fn read(marks: &str) -> Self {
        let mut ends = Vec::new();
        for line in marks.lines() {
            let mut words = line.split(' ');
            let word = words.next();
            let time = words.nth(1).and_then(|time| time.parse().ok());
            match (word, time, ends.last_mut()) {
                (Some("begin"), Some(time), _) => ends.push((time, None)),
                (Some("end"), time, Some((_, end))) => *end = time,
                _ => {}
            }
        }
        Self(ends)
    }

    fn outcome(&self, index: usize, output: &str) -> Outcome {
        match self.0.get(index) {
            Some(&(begin, Some(end))) => Outcome::Ran {
                seconds: end - begin,
            },
            Some((_, None)) => Outcome::Failed(tail_of(output)),
            None => Outcome::NotReached,
        }
    }
}

fn tail_of(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
}
