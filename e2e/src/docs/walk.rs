//! Runs a document's blocks in their order, in one shell, in a newcomer's clone ([`clone`]). Processes that a document leaves
//! behind end with the shell's process namespace.

mod clone;
mod environment;

use super::{Block, Document, Outcome, Row};
use anyhow::{Context, Result, bail, ensure};
use clone::Clone;
use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// Longest time for one document.
const LIMIT: Duration = Duration::from_secs(900);
/// Last lines of a block's output that a failing row shows.
const SHOWN_LINES: usize = 40;
/// How Cargo says that it compiles a crate.
const COMPILES: &str = "   Compiling ";

/// Where documents run.
#[derive(Debug)]
pub struct WalkSite {
    /// The repository.
    pub root: PathBuf,
    /// Environment of the shell, beside that of the shell which started this test.
    pub env: Vec<(&'static str, String)>,
    pub network: Network,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// This machine's.
    Host,
    /// A loopback alone, on which all ports are free: nothing can be fetched.
    Loopback,
}

/// Runs the blocks that `chosen` names, and gives a row for each of them.
///
/// # Errors
/// When the clone or the shell cannot be made, and when what stands built is compiled again; a block that fails is a row.
pub async fn walk(
    place: &WalkSite,
    document: &Document,
    chosen: impl Fn(&Block) -> bool,
) -> Result<Vec<Row>> {
    let blocks: Vec<&Block> = document.blocks.iter().filter(|b| chosen(b)).collect();
    if blocks.is_empty() {
        return Ok(Vec::new());
    }
    let scratch = tempfile::tempdir()?;
    let clone = Clone::make(&place.root, &scratch.path().join("clone")).await?;
    let marks = scratch.path().join("marks");
    std::fs::write(&marks, "")?;
    let script = scratch.path().join("script");
    std::fs::write(&script, script_of(&blocks, &marks))?;
    let output = run(place, &clone, &script).await?;
    let ends = Ends::read(&std::fs::read_to_string(&marks)?);
    let name = document.path.display();
    ensure!(
        !ends.0.is_empty(),
        "the shell for {name} does not start: {}",
        output.trim()
    );
    if let Some(compiled) = output.lines().find(|line| line.starts_with(COMPILES)) {
        bail!(
            "the commands of {name} compile again what stands built ({}): they see other sources or another \
             environment than `make documents`",
            compiled.trim()
        );
    }
    Ok(blocks
        .iter()
        .enumerate()
        .map(|(index, block)| Row::of(document, block, ends.outcome(index, &output)))
        .collect())
}

/// Each block between two marks, so that it is known which one failed and how long each took.
fn script_of(blocks: &[&Block], marks: &Path) -> String {
    let mut script = String::from("set -eo pipefail\nset -m\n");
    for (index, block) in blocks.iter().enumerate() {
        let mark = |word: &str| {
            format!(
                "echo \"{word} {index} $EPOCHREALTIME\" >>'{}'\n",
                marks.display()
            )
        };
        let _ = write!(
            script,
            "{}echo '@@ line {}'\n{}\n{}",
            mark("begin"),
            block.line,
            block.text,
            mark("end")
        );
    }
    script
}

/// Gives what the script printed, whether it came to its end or not.
async fn run(place: &WalkSite, clone: &Clone, script: &Path) -> Result<String> {
    let mut enter = format!("set -e\n{}", clone.mounts());
    let mut namespaces = vec!["--mount", "--pid", "--fork", "--mount-proc", "--kill-child"];
    if place.network == Network::Loopback {
        namespaces.push("--net");
        enter.push_str("ip link set lo up\n");
    }
    if !rustix::process::geteuid().is_root() {
        namespaces.extend(["--user", "--map-root-user"]);
    }
    let _ = write!(enter, "exec bash '{}'", script.display());
    let path = script.with_file_name("output");
    let output = File::create(&path)?;
    let mut shell = Command::new("unshare")
        .args(namespaces)
        .args(["bash", "-c", &enter])
        .env_clear()
        .envs(environment::of_a_shell(std::env::vars()))
        .envs(place.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .kill_on_drop(true)
        .spawn()
        .context("unshare of util-linux, which gives a document a folder of its own")?;
    let ended = tokio::time::timeout(LIMIT, shell.wait()).await;
    let mut text = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
    if ended.is_err() {
        let _ = write!(text, "\nit still runs after {LIMIT:?}");
    }
    Ok(text)
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
