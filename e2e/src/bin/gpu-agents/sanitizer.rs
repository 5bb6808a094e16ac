//! Part `sanitizer`: kernels, and an agent's answer, under NVIDIA's memcheck and racecheck.

use crate::checks::Checks;
use crate::program;
use crate::site::{Device, Site, TINY_LLAMA};
use anyhow::{Context, Result, ensure};
use pd_e2e::address;
use pd_e2e::binaries::binary;
use pd_e2e::client::Client;
use pd_e2e::fleet::eventually;
use pd_e2e::prompts::ragged;
use pd_protocol::Role;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::timeout;

const NAME: &str = "compute-sanitizer";
const TOOLS: [&str; 2] = ["memcheck", "racecheck"];
/// Of gpu-proof: each kind of kernel, and little of it.
const FAST_CHECKS: [&str; 13] = [
    "embedding_rows_are_those_of_the_table",
    "norms_add_first_and_write_the_sum_back",
    "gathered_rows_leave_those_that_are_not_wanted",
    "qkv_becomes_queries_and_cached_keys_and_values",
    "attention_of_one_query_each_is_the_cpus",
    "greedy_rows_take_the_first_of_the_likeliest",
    "penalties_and_bias_come_before_the_draw",
    "convolutions_go_on_from_states",
    "the_delta_rule_goes_on_from_states",
    "heads_are_normed_and_gated",
    "experts_are_chosen_run_and_added_up",
    "latents_are_kept_and_attended",
    "keys_and_values_become_the_nearest_codes_and_those_beyond_are_counted",
];
/// Exit status of a program in which the sanitizer found something.
const FOUND: &str = "99";
/// Four of them, and the part is still within its limit.
const LIMIT: Duration = Duration::from_secs(110);
const ENDS_WITHIN: Duration = Duration::from_secs(20);

pub(crate) async fn run(site: &Site, checks: &mut Checks) -> Result<()> {
    let Some(sanitizer) = installed() else {
        checks.skipped(NAME, "not installed");
        return Ok(());
    };
    for tool in TOOLS {
        if site.device == Device::Cuda {
            checks
                .check(format!("gpu-proof under {tool}"), proof(&sanitizer, tool))
                .await;
        }
        checks
            .check(
                format!("an answer under {tool}"),
                answer(site, &sanitizer, tool),
            )
            .await;
    }
    Ok(())
}

fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/local/cuda/bin".into()]);
    folders
        .map(|folder| folder.join(NAME))
        .find(|file| file.is_file())
}

async fn proof(sanitizer: &Path, tool: &str) -> Result<String> {
    let program = binary("gpu-proof");
    let mut args = ["--tool", tool, "--error-exitcode", FOUND]
        .map(OsStr::new)
        .to_vec();
    args.push(program.as_os_str());
    args.extend(FAST_CHECKS.map(OsStr::new));
    let output = program::run(sanitizer, &args, LIMIT).await?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{}:\n{said}", output.status);
    Ok(format!("{} checks", FAST_CHECKS.len()))
}

async fn answer(site: &Site, sanitizer: &Path, tool: &str) -> Result<String> {
    let mut spec = site.spec(TINY_LLAMA, "");
    spec.agents_under = vec![sanitizer.display().to_string()];
    spec.agents_under
        .extend(["--tool", tool, "--error-exitcode", FOUND].map(str::to_owned));
    let mut agent = spec.spawn_worker(Role::Unified, address::fresh())?;
    let (client, url) = (Client::new(), agent.url());
    let answers = async {
        eventually(LIMIT, async || {
            let answer = client.get(&format!("{url}/health")).await?;
            ensure!(answer.status == 200, "{}", answer.text());
            Ok(())
        })
        .await?;
        client
            .post_all(&format!("{url}/generate"), &ragged(&[5, 70], 6))
            .await
    };
    let answers = timeout(LIMIT, answers).await.context("too slow");
    // In any case: the agent does not end with the sanitizer that started it.
    let running = process_of(&binary("pd-agent"), &agent.address.to_string());
    let ended = running.and_then(|pid| Ok(kill_process(pid, Signal::TERM)?));
    let answers = answers?.with_context(|| agent.process.log())?;
    ended?;
    let status = agent.process.wait_exit(ENDS_WITHIN).await?;
    ensure!(status.success(), "{status}:\n{}", agent.process.log());
    Ok(format!("{} answers", answers.len()))
}

/// The process of a program with an argument; the sanitizer does not hand signals on to it.
fn process_of(program: &Path, arg: &str) -> Result<Pid> {
    let program = program.canonicalize()?;
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?.path();
        let Some(pid) = entry
            .file_name()
            .and_then(|name| name.to_str()?.parse().ok())
        else {
            continue;
        };
        let is_it = std::fs::read_link(entry.join("exe")).is_ok_and(|exe| exe == program);
        let args = std::fs::read_to_string(entry.join("cmdline")).unwrap_or_default();
        if is_it && args.split('\0').any(|one| one == arg) {
            return Pid::from_raw(pid).context("a pid is positive");
        }
    }
    anyhow::bail!("no process of {} has {arg}", program.display())
}
