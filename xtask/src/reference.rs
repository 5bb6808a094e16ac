//! Pages of the book that are generated: the fields of our kinds, from their schemas, and the flags of our
//! programs, from the snapshots that their own tests write of `--help`.

use anyhow::{Context, Result, ensure};
use pd_crds::manifest::Manifest;
use serde_json::{Map, Value};
use std::fmt::Write;
use std::path::Path;

/// Program → snapshot of its help, in the order of the page.
const HELP: &[(&str, &str)] = &[
    (
        "pd-agent",
        "agent/src/args/snapshots/pd_agent__args__tests__",
    ),
    (
        "pd-agent kv-probe",
        "agent/src/kv_probe/args/snapshots/pd_agent__kv_probe__args__tests__",
    ),
    (
        "pd-agent replay",
        "agent/src/replay/args/snapshots/pd_agent__replay__args__tests__",
    ),
    (
        "pd-router",
        "router/src/args/snapshots/pd_router__args__tests__",
    ),
    (
        "pd-operator",
        "operator/src/args/snapshots/pd_operator__args__tests__",
    ),
    (
        "kubectl pd",
        "plugin/src/args/snapshots/kubectl_pd__args__tests__",
    ),
    ("pd-fetch", "hub/src/args/snapshots/pd_fetch__args__tests__"),
];
/// What each of these tests is called.
const HELP_TEST: &str = "the_help_as_documents_have_it.snap";

/// `docs/api.md`: a table of fields for each kind.
pub(crate) fn api(manifests: &[Manifest]) -> String {
    let mut page = String::from(
        "# Resources\n\nGenerated from the schemas (`make generate`). `kubectl explain pdd.spec` prints the same. Examples: \
         [`examples/`](../examples).\n",
    );
    for Manifest { kind, schema, .. } in manifests {
        let intro = text(schema, "description");
        let _ = write!(page, "\n## {kind}\n\n{intro}\n\n");
        page.push_str("| field | type | default | |\n|---|---|---|---|\n");
        fields(&mut page, "", schema);
    }
    page
}

fn fields(page: &mut String, parent: &str, schema: &Value) {
    let Some(properties) = schema["properties"].as_object() else {
        return;
    };
    for (name, field) in properties {
        let path = match parent {
            "" => name.clone(),
            parent => format!("{parent}.{name}"),
        };
        let twin = twin(properties, name);
        let more = twin.map_or_else(String::new, |twin| format!(" Fields as of `{twin}`."));
        let _ = writeln!(
            page,
            "| `{path}` | {} | {} | {}{more} |",
            type_of(field),
            default_of(field),
            text(field, "description"),
        );
        if twin.is_none() {
            fields(page, &path, field);
            fields(page, &format!("{path}[]"), &field["items"]);
        }
    }
}

/// The field before `name` that has the same fields, so that they are listed once.
fn twin<'a>(properties: &'a Map<String, Value>, name: &str) -> Option<&'a String> {
    let own = properties[name]["properties"].as_object()?;
    let before = properties.keys().take_while(|key| *key != name);
    before
        .filter(|key| properties[*key]["properties"].as_object() == Some(own))
        .last()
}

fn type_of(field: &Value) -> String {
    if let Some(values) = field["enum"].as_array() {
        return values.iter().map(code).collect::<Vec<_>>().join(", ");
    }
    match text(field, "type").as_str() {
        "array" => format!("list of {}", type_of(&field["items"])),
        "" => "number or string".to_owned(),
        other => other.to_owned(),
    }
}

/// Defaults of objects follow from those of their fields.
fn default_of(field: &Value) -> String {
    match &field["default"] {
        Value::Null | Value::Object(_) | Value::Array(_) => String::new(),
        default @ (Value::Bool(_) | Value::Number(_) | Value::String(_)) => code(default),
    }
}

fn code(value: &Value) -> String {
    let text = value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned);
    format!("`{text}`")
}

/// A text as a cell of a table.
fn text(node: &Value, key: &str) -> String {
    let text = node[key].as_str().unwrap_or_default();
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|")
}

/// `docs/flags.md`: what `--help` of each program prints.
pub(crate) fn flags(root: &Path) -> Result<String> {
    let mut page = String::from(
        "# Flags\n\nGenerated from the programs (`make generate`). `pd-agent --help-sglang` and `pd-router --help-sglang` list SGLang's \
         flags and what becomes of each.\n",
    );
    for (program, snapshot) in HELP {
        let path = root.join(format!("{snapshot}{HELP_TEST}"));
        let snapshot = std::fs::read_to_string(&path)
            .with_context(|| format!("{}: `make test` writes it", path.display()))?;
        let help = snapshot.splitn(3, "---\n").last().unwrap_or_default();
        ensure!(!help.contains("```"), "{program}: its help has a fence");
        let help: Vec<&str> = help.lines().map(str::trim_end).collect();
        let _ = write!(
            page,
            "\n## {program}\n\n```text\n{}\n```\n",
            help.join("\n").trim()
        );
    }
    Ok(page)
}
