//! The cluster's programs, built once from Go modules into the cache folder. Modules and build cache
//! lie there too and not in Go's own folders: one folder holds everything that is written, and it can
//! be deleted. The two are removed once every program stands; they are ten times as large.

mod wrapper;

use crate::kube::host;
use crate::kube::versions::{Extra, KUBERNETES, SOURCES, Source, folder_name};
use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{FlockOperation, flock};
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The built programs.
#[derive(Clone, Debug)]
pub struct Tools {
    bin: PathBuf,
}

/// What [`Extra`] names, ready for use.
#[derive(Clone, Debug)]
pub struct ExtraTool {
    pub program: PathBuf,
    /// Copies of its folders, in their order.
    pub folders: Vec<PathBuf>,
}

/// Binary, and its package.
type Program = (&'static str, &'static str);

/// Where one build reads and writes.
struct Workshop {
    /// Modules, build cache and wrapper modules.
    go: PathBuf,
    bin: PathBuf,
}

/// `$PDSERVE_CACHE`, or `.cache` of this checkout.
pub fn cache() -> PathBuf {
    std::env::var_os("PDSERVE_CACHE").map_or_else(
        || crate::binaries::workspace().join(".cache"),
        PathBuf::from,
    )
}

// === impl Tools ===

impl Tools {
    /// Finds the programs under `cache`, and builds those that are missing: minutes the first time.
    /// A second caller waits for the first.
    ///
    /// # Errors
    /// When Go is missing or too old, or a build fails.
    pub fn ready(cache: &Path) -> Result<Self> {
        let root = cache.join("kube");
        let workshop = Workshop {
            go: root.join("go"),
            bin: root.join(folder_name()).join("bin"),
        };
        if workshop.is_done() {
            return Ok(Self { bin: workshop.bin });
        }
        fs::create_dir_all(&workshop.bin).context("make the tools' folder")?;
        let lock = File::create(root.join("tools.lock")).context("make the tools' lock")?;
        flock(&lock, FlockOperation::LockExclusive).context("wait for the tools' lock")?;
        workshop.build_missing()?;
        workshop.tidy()?;
        Ok(Self { bin: workshop.bin })
    }

    pub fn folder(&self) -> &Path {
        &self.bin
    }
}

// === impl ExtraTool ===

impl ExtraTool {
    /// Finds the program under `cache`, or builds it and copies its folders: minutes the first time.
    ///
    /// # Errors
    /// When Go is missing or too old, or the build fails.
    pub fn ready(cache: &Path, extra: &'static Extra) -> Result<Self> {
        let Extra {
            source,
            folders,
            main,
        } = extra;
        let (name, package) = source.commands[0];
        let root = cache.join("kube");
        let home = root.join(format!("{name}-{}", source.version));
        let tool = Self {
            program: home.join(name),
            folders: folders.iter().map(|folder| home.join(folder)).collect(),
        };
        fs::create_dir_all(&home).context("make the tool's folder")?;
        let lock = File::create(root.join("tools.lock")).context("make the tools' lock")?;
        flock(&lock, FlockOperation::LockExclusive).context("wait for the tools' lock")?;
        // The program comes last.
        if tool.program.is_file() {
            return Ok(tool);
        }
        host::check_go()?;
        eprintln!(
            "building {name} {} from its Go module, once: about 5 minutes on 2 idle cores",
            source.version
        );
        let workshop = Workshop {
            go: root.join("go"),
            bin: home,
        };
        fs::create_dir_all(&workshop.go).context("make the build's folder")?;
        let module = workshop.download(source)?;
        let module = Path::new(module["Dir"].as_str().context("go names no folder")?);
        for (folder, copy) in folders.iter().zip(&tool.folders) {
            copy_files(&module.join(folder), copy)?;
        }
        if let Some(main) = main {
            fs::write(workshop.wrapper(source)?.join("main.go"), main)?;
        }
        let context = || format!("build {name} from {}@{}", source.module, source.version);
        workshop
            .build(source, &[(name, package)])
            .with_context(context)?;
        workshop.tidy()?;
        Ok(tool)
    }
}

fn copy_files(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("read {}", from.display()))? {
        let entry = entry?;
        // Not a copy of the file: a module's are read-only.
        fs::write(to.join(entry.file_name()), fs::read(entry.path())?)?;
    }
    Ok(())
}

// === impl Workshop ===

impl Workshop {
    /// What does not stand yet, in build order.
    fn missing(&self) -> Vec<(&'static Source, Vec<Program>)> {
        let all = SOURCES.iter().map(|source| {
            let commands = source.commands.iter().copied();
            let missing = commands.filter(|(name, _)| !self.bin.join(name).is_file());
            (source, missing.collect::<Vec<_>>())
        });
        all.filter(|(_, programs)| !programs.is_empty()).collect()
    }

    fn is_done(&self) -> bool {
        self.missing().is_empty() && !self.go.exists()
    }

    /// Removes what only building needs.
    fn tidy(&self) -> Result<()> {
        if self.go.exists() {
            fs::remove_dir_all(&self.go).context("remove the build cache")?;
        }
        Ok(())
    }

    fn build_missing(&self) -> Result<()> {
        let missing = self.missing();
        if missing.is_empty() {
            return Ok(());
        }
        host::check_go()?;
        let started = Instant::now();
        let count: usize = missing.iter().map(|(_, programs)| programs.len()).sum();
        eprintln!(
            "building {count} programs for the cluster from Go modules, once: about 7 minutes on 2 idle cores"
        );
        for (source, programs) in missing {
            let begun = Instant::now();
            let names: Vec<&str> = programs.iter().map(|&(name, _)| name).collect();
            eprint!("  {} {} … ", names.join(", "), source.version);
            self.build(source, &programs)
                .with_context(|| format!("build {}@{}", source.module, source.version))?;
            eprintln!("{} s", begun.elapsed().as_secs());
        }
        eprintln!("built in {} s", started.elapsed().as_secs());
        Ok(())
    }

    /// At once, so that one is linked while others compile.
    fn build(&self, source: &Source, programs: &[Program]) -> Result<()> {
        let module = self.wrapper(source)?;
        let partial = self.bin.join(".partial");
        fs::create_dir_all(&partial)?;
        let mut go = self.go(&module);
        go.args(["build", "-mod=mod", "-trimpath", "-tags", "providerless"]);
        // No debug information, which `-s -w` would strip again.
        go.arg("-gcflags=all=-dwarf=false");
        go.arg("-ldflags").arg(ldflags());
        // One is named after its folder, unless its file is given.
        match programs {
            [(name, _)] => go.arg("-o").arg(partial.join(name)),
            _ => go.arg("-o").arg(&partial),
        };
        run(go.args(programs.iter().map(|(_, package)| package)))?;
        for (name, _) in programs {
            fs::rename(partial.join(name), self.bin.join(name)).context("put it in place")?;
        }
        fs::remove_dir(&partial).context("remove the build's folder")
    }

    /// The folder of a module that wraps `source`.
    fn wrapper(&self, source: &Source) -> Result<PathBuf> {
        let (name, _) = source.commands[0];
        let folder = self.go.join("wrappers").join(name);
        if folder.join("go.mod").is_file() {
            return Ok(folder);
        }
        fs::create_dir_all(&folder)?;
        let output = self.download(source)?;
        let upstream = output["GoMod"].as_str().context("go names no go.mod")?;
        let upstream = fs::read_to_string(upstream)?;
        fs::write(folder.join("go.mod"), wrapper::go_mod(source, &upstream))?;
        Ok(folder)
    }

    /// What `go` says of a module that is here then.
    fn download(&self, source: &Source) -> Result<serde_json::Value> {
        let Source {
            module, version, ..
        } = source;
        let mut download = self.go(&self.go);
        download.args(["mod", "download", "-json"]);
        let output = run(download.arg(format!("{module}@{version}")))?;
        Ok(serde_json::from_str(&output)?)
    }

    /// `go`, writing below [`Workshop::go`] only.
    fn go(&self, folder: &Path) -> Command {
        let mut command = Command::new("go");
        command
            .current_dir(folder)
            .stdin(Stdio::null())
            .env("GOCACHE", self.go.join("build"))
            .env("GOMODCACHE", self.go.join("modules"))
            .env("GOTMPDIR", &self.go)
            .env("GOTELEMETRY", "off")
            .env("GOWORK", "off")
            .env("CGO_ENABLED", "0")
            // A compiler that collects no garbage takes a fifth less of the processors, and a gigabyte for most.
            .env("GOGC", "off")
            .env("GOMEMLIMIT", "3GiB")
            // Modules that their owner can delete.
            .env("GOFLAGS", "-modcacherw -buildvcs=false");
        command
    }
}

/// Without the version, clients see `v0.0.0-master`.
fn ldflags() -> OsString {
    let mut parts = KUBERNETES.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next().unwrap_or("0"), parts.next().unwrap_or("0"));
    let package = "k8s.io/component-base/version";
    format!(
        "-s -w -X {package}.gitVersion={KUBERNETES} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
    )
    .into()
}

/// Runs to the end and gives back its standard output.
fn run(command: &mut Command) -> Result<String> {
    let output = command.output().context("start go")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}", errors.trim_end());
    match String::from_utf8(output.stdout) {
        Ok(text) => Ok(text),
        Err(e) => bail!("go wrote bytes that are not UTF-8: {e}"),
    }
}
