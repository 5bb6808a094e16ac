//! The arguments of an example's containers: `pd-operator render` says what they are, and `--check` of the program that a
//! container runs takes them or says what is wrong. It asks for neither a model nor a GPU, for both are a cluster's.

use super::{Checker, Outcome, Row};
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Programs with a `--check`.
const OURS: [&str; 2] = ["pd-agent", "pd-router"];
/// Where an object has the spec of its pods.
const PODS: [&str; 2] = ["/spec", "/spec/template/spec"];

#[derive(Debug, Deserialize)]
pub(super) struct Container {
    name: String,
    image: String,
    #[serde(default)]
    command: Vec<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Vec<Variable>,
}

#[derive(Debug, Deserialize)]
struct Variable {
    name: String,
    value: Option<String>,
    #[serde(rename = "valueFrom")]
    source: Option<Value>,
}

/// `$(NAME)` of no variable that the container has: kubelet leaves it as it is.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("$({0}) names no variable of the container")]
pub(super) struct UnknownVariable(String);

// === impl Checker ===

impl Checker {
    /// Renders an example, and gives a row for each of its containers.
    ///
    /// # Errors
    /// When it cannot be rendered or has no containers.
    pub fn check_containers(&self, example: &Path) -> Result<Vec<Row>> {
        let objects: Vec<Value> = serde_saphyr::from_multiple(&self.render(example)?)
            .with_context(|| format!("what {} renders to", example.display()))?;
        let mut rows = Vec::new();
        for object in &objects {
            let owner = object["metadata"]["name"].as_str().unwrap_or_default();
            for container in containers_of(object)? {
                let command = [&container.command[..], &container.args].concat().join(" ");
                let title = format!("{owner}/{}: {command}", container.name);
                let outcome = self.judge(&container);
                rows.push(Row::new(example.display().to_string(), &title, outcome));
            }
        }
        ensure!(!rows.is_empty(), "{} has no containers", example.display());
        Ok(rows)
    }

    fn render(&self, example: &Path) -> Result<String> {
        let output = Command::new(self.program("pd-operator"))
            .args(["render", "--allow-host-path", "/", "--file"])
            .arg(example)
            .current_dir(self.root())
            .output()
            .context("pd-operator")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}", said.trim());
        Ok(String::from_utf8(output.stdout)?)
    }

    fn judge(&self, container: &Container) -> Outcome {
        let Some((program, first)) = container.command.split_first() else {
            return Outcome::Failed("  the container names no command".to_owned());
        };
        if !OURS.contains(&program.as_str()) {
            return Outcome::Checked {
                reason: Some(format!("{program} is a program of {}", container.image)),
                commands: 0,
            };
        }
        let checked = container.expanded_args().map_err(|why| why.to_string());
        let checked = checked.and_then(|args| {
            let args: Vec<&str> = first.iter().chain(&args).map(String::as_str).collect();
            self.ask_program(program, &args)
        });
        match checked {
            Ok(()) => Outcome::Checked {
                reason: None,
                commands: 1,
            },
            Err(why) => Outcome::Failed(format!("  {why}")),
        }
    }
}

fn containers_of(object: &Value) -> Result<Vec<Container>> {
    let lists = PODS.iter().flat_map(|pod| {
        ["initContainers", "containers"].map(|list| object.pointer(&format!("{pod}/{list}")))
    });
    let mut containers = Vec::new();
    for list in lists.flatten() {
        containers.extend(Vec::<Container>::deserialize(list)?);
    }
    Ok(containers)
}

// === impl Container ===

impl Container {
    /// Its arguments as kubelet hands them over.
    fn expanded_args(&self) -> Result<Vec<String>, UnknownVariable> {
        let mut values = BTreeMap::new();
        for variable in &self.env {
            values.insert(variable.name.as_str(), variable.plausible_value());
        }
        self.args.iter().map(|arg| expand(arg, &values)).collect()
    }
}

/// `$(NAME)` is the variable's value, `$$` a `$`.
fn expand(text: &str, values: &BTreeMap<&str, String>) -> Result<String, UnknownVariable> {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        rest = after;
        if let Some(after) = rest.strip_prefix('$') {
            expanded.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|r| r.split_once(')')) {
            let value = values.get(name);
            expanded.push_str(value.ok_or_else(|| UnknownVariable(name.to_owned()))?);
            rest = after;
        } else {
            expanded.push('$');
        }
    }
    expanded.push_str(rest);
    Ok(expanded)
}

// === impl Variable ===

impl Variable {
    /// Its value, or one such as a cluster would give it.
    fn plausible_value(&self) -> String {
        let field = self
            .source
            .as_ref()
            .and_then(|source| source.pointer("/fieldRef/fieldPath"));
        match (&self.value, field.and_then(Value::as_str)) {
            (Some(value), _) => value.clone(),
            (None, Some("status.podIP" | "status.podIPs")) => "10.91.1.7".to_owned(),
            (None, Some("status.hostIP")) => "10.90.0.11".to_owned(),
            (None, _) => self.name.to_lowercase().replace('_', "-"),
        }
    }
}

#[cfg(test)]
mod tests;
