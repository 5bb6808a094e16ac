//! The arguments of the examples' pods, and of a sweep over specs, against the engines' own parsers.

use anyhow::{Context, Result, ensure};
use pd_e2e::binaries::{binary, workspace};
use pd_e2e::engines::{self, Engine};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// tp, pp, dp, nodes, and whether the ranks of tensor parallelism share out the requests.
type Ranks = (u32, u32, u32, u32, bool);

const SGLANG_RANKS: [Ranks; 7] = [
    (1, 1, 1, 1, false),
    (4, 1, 1, 1, false),
    (2, 2, 1, 1, false),
    (2, 1, 4, 1, false),
    (16, 1, 1, 2, false),
    (8, 2, 1, 2, false),
    (16, 1, 16, 2, true),
];
const VLLM_RANKS: [Ranks; 4] = [
    (1, 1, 1, 1, false),
    (4, 1, 1, 1, false),
    (2, 2, 1, 1, false),
    (2, 1, 4, 1, false),
];

/// Renders specs and has the engine's parser read what their pods are started with.
pub(crate) fn run(engine: &Engine) -> Result<()> {
    let (venv, transports, dtypes, ranks): (_, &[&str], &[&str], &[Ranks]) = match engine.name {
        "sglang" => (
            "sglang",
            &["auto", "mooncake", "nixl"],
            &["auto", "bfloat16", "fp8_e4m3", "fp8_e5m2"],
            &SGLANG_RANKS,
        ),
        _ => (
            "vllm",
            &["auto", "nixl"],
            &["auto", "bfloat16", "fp8_e4m3", "fp8_e5m2"],
            &VLLM_RANKS,
        ),
    };
    let folder = tempfile::tempdir()?;
    for example in std::fs::read_dir(workspace().join("examples"))? {
        let path = example?.path();
        let text = std::fs::read_to_string(&path)?;
        if text.contains(&format!("kind: {}", engine.name)) {
            let stem = path.file_stem().context("a name")?;
            render(&path, &folder.path().join(stem))?;
        }
    }
    let source = tempfile::tempdir()?;
    for transport in transports {
        for dtype in dtypes {
            for page in [None, Some(16), Some(64)] {
                for ranks in ranks {
                    let object = object(engine, (transport, dtype, page), *ranks)?;
                    let (tp, pp, dp, nodes, _) = ranks;
                    let page = page.unwrap_or(0);
                    let name = format!("{transport}-{dtype}-{page}-{tp}-{pp}-{dp}-{nodes}");
                    let file = source.path().join(&name);
                    std::fs::write(&file, object.to_string())?;
                    render(&file, &folder.path().join(&name))?;
                }
            }
        }
    }
    let python = engines::folder()?.join(venv).join("bin/python");
    let mut command = Command::new(python);
    command
        .arg(workspace().join("e2e/engines/arguments.py"))
        .arg(engine.name)
        .arg(folder.path())
        .arg(engines::model()?)
        .envs(engine.env());
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    eprintln!("{}: {}", engine.name, said.trim_end());
    Ok(())
}

fn object(
    engine: &Engine,
    (transport, dtype, page): (&str, &str, Option<u32>),
    (tp, pp, dp, nodes, shares_requests): Ranks,
) -> Result<Value> {
    let mut object = engine.deployment()?;
    let spec = &mut object["spec"];
    spec["kv"] = json!({"transport": transport, "dtype": dtype});
    if let Some(page) = page {
        spec["kv"]["pageSize"] = json!(page);
    }
    if shares_requests {
        let args = spec["engine"]["args"].as_array_mut();
        args.context("arguments of the engine")?
            .push(json!({"name": "enable-dp-attention"}));
    }
    for role in ["prefill", "decode"] {
        let pool = &mut spec["pools"][role];
        for (name, number) in [("tp", tp), ("pp", pp), ("dp", dp), ("nodes", nodes)] {
            pool[name] = json!(number);
        }
    }
    Ok(object)
}

/// What the operator makes of a deployment.
fn render(file: &Path, to: &Path) -> Result<()> {
    let mut command = Command::new(binary("pd-operator"));
    command.args(["render", "--allow-host-path", "/", "--file"]);
    let output = command.arg(file).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", file.display());
    Ok(std::fs::write(to, output.stdout)?)
}
