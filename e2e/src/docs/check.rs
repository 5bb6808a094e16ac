//! What can be said of a block without running it: that a shell reads it, that each command names what exists and that
//! each of our own programs takes its arguments.

use super::{Block, Language};
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A YAML fragment of a `PDDeployment` is put into this one.
const BASE: &str = "examples/smollm2.yaml";

/// Why a block is not as it is written.
#[derive(Debug, thiserror::Error)]
pub enum NotAsWritten {
    #[error("bash does not read it: {0}")]
    Syntax(String),
    #[error("`{command}`: {what} does not exist")]
    NoSuch { command: String, what: String },
    #[error("`{command}`: {why}")]
    Refused { command: String, why: String },
    #[error("`{0}` is no step of .ci/run")]
    NotInCi(String),
    #[error("{0}")]
    Yaml(String),
}

/// Knows what commands may name.
pub struct Checker {
    root: PathBuf,
    /// Folder of our programs.
    programs: PathBuf,
    targets: BTreeSet<String>,
    ci: String,
    /// Renders what `helm install` names, where it is given.
    helm: Option<PathBuf>,
}

// === impl Checker ===

impl Checker {
    /// # Errors
    /// When the repository has no Makefile or no `.ci/run`.
    pub fn new(root: &Path, programs: &Path) -> Result<Self> {
        let read = |name: &str| std::fs::read_to_string(root.join(name)).context(name.to_owned());
        let targets = read("Makefile")?
            .lines()
            .filter_map(|line| line.split_once(':').map(|(name, _)| name.to_owned()))
            .filter(|name| {
                name.chars()
                    .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
            })
            .collect();
        Ok(Self {
            root: root.to_owned(),
            programs: programs.to_owned(),
            targets,
            ci: read(".ci/run")?,
            helm: None,
        })
    }

    /// Also renders charts, by this program.
    #[must_use]
    pub fn with_helm(self, helm: PathBuf) -> Self {
        Self {
            helm: Some(helm),
            ..self
        }
    }

    /// Checks a block; gives the number of its commands.
    ///
    /// # Errors
    /// The first thing that is not as it is written.
    pub fn check(&self, block: &Block) -> Result<usize, NotAsWritten> {
        match block.language {
            Language::Shell => {
                check_syntax(&block.text)?;
                let commands = block.commands();
                for command in &commands {
                    self.check_command(command)?;
                }
                Ok(commands.len())
            }
            Language::Yaml => self.check_yaml(&block.text).map(|()| 1),
            Language::Other => Ok(0),
        }
    }

    /// # Errors
    /// Names the command of the block that is no step of `.ci/run`.
    pub fn check_in_ci(&self, block: &Block) -> Result<(), NotAsWritten> {
        let words = |text: &str| shlex::split(text).unwrap_or_default().join(" ");
        let steps: Vec<String> = self.ci.split([';', '\n', '&']).map(words).collect();
        let missing = block
            .commands()
            .into_iter()
            .find(|command| !steps.contains(&words(command)));
        missing.map_or(Ok(()), |command| Err(NotAsWritten::NotInCi(command)))
    }

    fn check_command(&self, command: &str) -> Result<(), NotAsWritten> {
        let Some(words) = shlex::split(command) else {
            return Ok(()); // bash has read it; a here-document may hold half a quote
        };
        for words in words.split(|word| matches!(word.as_str(), "|" | "&&" | "||" | ";" | "&")) {
            let words: Vec<&str> = words
                .iter()
                .map(String::as_str)
                .skip_while(|word| is_assignment(word))
                .collect();
            if let Some((program, args)) = words.split_first() {
                self.check_program(command, program, args)?;
            }
        }
        Ok(())
    }

    fn check_program(
        &self,
        command: &str,
        program: &str,
        args: &[&str],
    ) -> Result<(), NotAsWritten> {
        let no_such = |what: String| NotAsWritten::NoSuch {
            command: command.to_owned(),
            what,
        };
        let program = program.rsplit('/').next().unwrap_or(program);
        match program {
            "make" => {
                let mut targets = args
                    .iter()
                    .filter(|arg| !arg.contains('=') && !arg.starts_with('-'));
                match targets.find(|target| !self.targets.contains(**target)) {
                    Some(target) => Err(no_such(format!("make target {target}"))),
                    None => Ok(()),
                }
            }
            "pd-agent" | "pd-router" => self.check_arguments(command, program, args),
            "helm" | "kubectl" | "docker" | "cargo" | "pd-operator" => {
                let mut files = args.iter().filter(|arg| self.is_ours(arg));
                match files.find(|file| !self.root.join(file).exists()) {
                    Some(file) => Err(no_such((*file).to_owned())),
                    None if program == "helm" => self.check_rendering(command, args),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Whether an argument names a file of the repository.
    fn is_ours(&self, arg: &str) -> bool {
        let first = arg.split('/').next().unwrap_or_default();
        !first.is_empty()
            && arg.contains('/')
            && !arg.contains(':')
            && self.root.join(first).is_dir()
    }

    /// What `helm install` and `helm upgrade` would send, rendered.
    fn check_rendering(&self, command: &str, args: &[&str]) -> Result<(), NotAsWritten> {
        let (Some(helm), Some(("install" | "upgrade", args))) = (
            &self.helm,
            args.split_first().map(|(verb, args)| (*verb, args)),
        ) else {
            return Ok(());
        };
        let waits = |arg: &&&str| ["--install", "--wait", "--create-namespace"].contains(*arg);
        let output = Command::new(helm)
            .arg("template")
            .args(args.iter().filter(|arg| !waits(arg)))
            .current_dir(&self.root)
            .output();
        let why = match output {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(why) => format!("helm does not start: {why}"),
        };
        Err(NotAsWritten::Refused {
            command: command.to_owned(),
            why,
        })
    }

    fn check_arguments(
        &self,
        command: &str,
        program: &str,
        args: &[&str],
    ) -> Result<(), NotAsWritten> {
        self.ask_program(program, args)
            .map_err(|why| NotAsWritten::Refused {
                command: command.to_owned(),
                why,
            })
    }

    /// Whether a program takes its arguments, by its own parser and its rules.
    pub(super) fn ask_program(&self, program: &str, args: &[&str]) -> Result<(), String> {
        let output = Command::new(self.program(program))
            .arg("--check")
            .args(args)
            .output()
            .map_err(|why| format!("{program} does not start: {why}"))?;
        if output.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
        }
    }

    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// A `PDDeployment`, or fields of one, which are put into [`BASE`]; other kinds are Kubernetes' to judge.
    fn check_yaml(&self, text: &str) -> Result<(), NotAsWritten> {
        let whole = if text.starts_with("  ") {
            let base = std::fs::read_to_string(self.root.join(BASE))
                .map_err(|why| NotAsWritten::Yaml(format!("{BASE}: {why}")))?;
            format!("{base}{text}")
        } else if text.lines().any(|line| line == "kind: PDDeployment") {
            text.to_owned()
        } else {
            return Ok(());
        };
        match pd_crds::document::parse(&whole) {
            Ok(_) => Ok(()),
            Err(why) => Err(NotAsWritten::Yaml(why.to_string())),
        }
    }
}

fn check_syntax(text: &str) -> Result<(), NotAsWritten> {
    let failed = |why: std::io::Error| NotAsWritten::Syntax(why.to_string());
    let mut bash = Command::new("bash")
        .arg("-n")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut input) = bash.stdin.take() {
        input.write_all(text.as_bytes()).map_err(failed)?;
    }
    let output = bash.wait_with_output().map_err(failed)?;
    if output.status.success() {
        Ok(())
    } else {
        Err(NotAsWritten::Syntax(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        ))
    }
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}
