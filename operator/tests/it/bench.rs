//! A workbench: a folder with the programs, a deployment file, and an operator that runs it.

use serde_json::Value;
use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Longest wait for anything; a step takes some milliseconds.
const LIMIT: Duration = Duration::from_secs(60);
/// Pause between two looks at something that changes elsewhere.
const LOOK: Duration = Duration::from_millis(10);

/// A folder with everything that an operator needs.
pub(crate) struct Bench {
    folder: tempfile::TempDir,
    name: &'static str,
}

/// A running operator; it is ended with the value.
pub(crate) struct Operator {
    process: Child,
    progress: Lines<BufReader<ChildStdout>>,
}

// === impl Bench ===

impl Bench {
    /// Every test has a deployment name of its own, and so addresses of its own.
    pub(crate) fn new(name: &'static str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let bench = Self { folder, name };
        link(
            Path::new(env!("CARGO_BIN_EXE_pd-operator")),
            &bench.path("pd-operator"),
        );
        for program in ["pd-agent", "pd-router"] {
            link(&stand_in(), &bench.path(program));
        }
        bench.write_model("");
        bench.write_pools("{}");
        bench
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write_model(&self, content: &str) {
        std::fs::write(self.path("model.gguf"), content).expect("the folder is writable");
    }

    /// Writes the deployment with these pools, and with what `pools` says after a line break.
    pub(crate) fn write_pools(&self, pools: &str) {
        let text = format!(
            "apiVersion: pdserve.io/v1alpha1\nkind: PDDeployment\nmetadata: {{name: {}}}\nspec:\n  \
             model: {{source: {{hostPath: {{path: model.gguf}}}}}}\n  pools: {pools}\n",
            self.name
        );
        self.write(&text);
    }

    pub(crate) fn write(&self, text: &str) {
        std::fs::write(self.path("d.yaml"), text).expect("the folder is writable");
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.path("pd-operator"));
        command
            .args(args)
            .env("PDSERVE_CACHE_DIR", self.path("cache"));
        command
    }

    pub(crate) fn start(&self) -> Operator {
        self.start_with(&["--listen", "127.0.0.1:0"])
    }

    pub(crate) fn start_with(&self, args: &[&str]) -> Operator {
        self.start_logging_to(Stdio::inherit(), args)
    }

    pub(crate) fn start_logging_to(&self, log: Stdio, args: &[&str]) -> Operator {
        let mut process = self
            .command(&["local", "-f"])
            .arg(self.path("d.yaml"))
            .args(args)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the operator starts");
        let out = process.stdout.take().expect("stdout is piped");
        Operator {
            process,
            progress: BufReader::new(out).lines(),
        }
    }

    /// What an operator says that refuses to run.
    pub(crate) fn refusal(&self, args: &[&str]) -> String {
        let output = self
            .command(&["local", "-f"])
            .arg(self.path("d.yaml"))
            .args(args)
            .output()
            .expect("the operator starts");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// `pd-operator local status --json`: the one deployment, or nothing.
    pub(crate) fn status(&self) -> Option<Value> {
        let output = self
            .command(&["local", "status", "--json"])
            .output()
            .expect("it runs");
        let all: Value = serde_json::from_slice(&output.stdout).expect("status is JSON");
        all.get(0).cloned()
    }

    /// Waits until the status is as wanted and returns it.
    pub(crate) async fn wait(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = None;
        let found = timeout(LIMIT, async {
            loop {
                last = self.status();
                if let Some(status) = last.as_ref().filter(|status| wanted(status)) {
                    return status.clone();
                }
                sleep(LOOK).await;
            }
        });
        found
            .await
            .unwrap_or_else(|_| panic!("not {what}: {last:#?}"))
    }

    pub(crate) async fn wait_ready(&self, pods: &[&str]) -> Value {
        let names: Vec<String> = pods
            .iter()
            .map(|pod| format!("{}-{pod}", self.name))
            .collect();
        self.wait("ready", |status| {
            status["phase"] == "Ready" && pod_names(status) == names
        })
        .await
    }
}

// === impl Operator ===

impl Operator {
    /// Reads progress up to a line that contains `text`.
    pub(crate) fn expect(&mut self, text: &str) -> String {
        let mut seen = Vec::new();
        for line in self.progress.by_ref() {
            let line = line.expect("stdout is text");
            if line.contains(text) {
                return line;
            }
            seen.push(line);
        }
        panic!("{text:?} was not said; said were {seen:#?}")
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.process.id().into(), name);
    }

    pub(crate) async fn wait(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().expect("the operator is our child") {
                return status;
            }
            assert!(began.elapsed() < LIMIT, "the operator does not end");
            sleep(LOOK).await;
        }
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _ended = self.process.wait();
    }
}

pub(crate) fn pod_names(status: &Value) -> Vec<String> {
    let pods = status["pods"].as_array().expect("a list of pods");
    pods.iter()
        .map(|pod| pod["name"].as_str().expect("a name").to_owned())
        .collect()
}

pub(crate) fn pid(status: &Value, component: &str) -> u64 {
    let pods = status["pods"].as_array().expect("a list of pods");
    let pod = pods
        .iter()
        .find(|pod| pod["component"] == component)
        .expect("such a pod");
    pod["pid"].as_u64().expect("a running process")
}

pub(crate) fn pids(status: &Value) -> Vec<u64> {
    let pods = status["pods"].as_array().expect("a list of pods");
    pods.iter().filter_map(|pod| pod["pid"].as_u64()).collect()
}

pub(crate) fn signal(pid: u64, name: &str) {
    let status = Command::new("kill")
        .args([name, &pid.to_string()])
        .status()
        .expect("kill runs");
    assert!(status.success());
}

/// A process that has ended but was not waited for counts as gone.
pub(crate) async fn wait_gone(pids: &[u64]) {
    let began = Instant::now();
    let lives = |pid: &u64| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    while pids.iter().any(lives) {
        assert!(began.elapsed() < LIMIT, "of {pids:?} some still live");
        sleep(LOOK).await;
    }
}

/// `make test` builds it beside the tests.
fn stand_in() -> PathBuf {
    let operator = Path::new(env!("CARGO_BIN_EXE_pd-operator"));
    let folder = operator.parent().expect("programs lie in a folder");
    folder.join("examples/pd-stand-in")
}

fn link(program: &Path, name: &Path) {
    let copied =
        std::fs::hard_link(program, name).or_else(|_| std::fs::copy(program, name).map(drop));
    copied.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
}
