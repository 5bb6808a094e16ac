//! With the feature `cuda`, compiles the kernels: cubins for sm_80 and sm_90a and PTX for newer
//! devices, in one fat binary per file, with a report of each kernel's resources.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const KERNELS: &str = "src/cuda/kernels";
const FILES: [&str; 20] = [
    "attn_latent",
    "attn_latent_tile",
    "attn_paged",
    "attn_tile",
    "conv",
    "copy_pages",
    "copy_states",
    "delta",
    "embed",
    "experts",
    "gather_rows",
    "hopper",
    "latent",
    "linear",
    "moe",
    "qkv_prep",
    "rms_norm",
    "rope_table",
    "sample",
    "sample_partials",
];
const FLAGS: [&str; 11] = [
    "-std=c++17",
    "-O3",
    "-fatbin",
    "-Xptxas",
    "-v",
    "-gencode",
    "arch=compute_90a,code=sm_90a",
    "-gencode",
    "arch=compute_80,code=sm_80",
    "-gencode",
    "arch=compute_80,code=compute_80",
];
/// Bytes that a kernel may spill; register tiles that do not fit cost more than they bring.
const SPILL_BYTES_MAX: u32 = 0;

fn main() {
    println!("cargo::rerun-if-changed={KERNELS}");
    println!("cargo::rerun-if-env-changed=PDSERVE_NVCC");
    if std::env::var_os("CARGO_FEATURE_CUDA").is_none() {
        return;
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    match compile(&out) {
        Ok(compiled) => write_module(&out, &compiled),
        Err(error) => println!("cargo::error={error}"),
    }
}

/// The compiler named by `PDSERVE_NVCC`, on the `PATH`, or where NVIDIA's packages put it.
fn nvcc() -> Result<PathBuf, String> {
    let named = std::env::var_os("PDSERVE_NVCC").map(PathBuf::from);
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&paths).map(|dir| dir.join("nvcc"));
    let usual = [PathBuf::from("/usr/local/cuda/bin/nvcc")];
    let mut candidates = named.into_iter().chain(on_path).chain(usual);
    candidates.find(|path| path.is_file()).ok_or_else(|| {
        "the feature cuda takes nvcc 13.0: install NVIDIA's toolkit, or run `make cuda-toolkit` and set \
         PDSERVE_NVCC to what it prints"
            .to_owned()
    })
}

/// What the compiler said.
struct Compiled {
    /// A table of all kernels on all architectures.
    report: String,
    /// The names of each file's kernels.
    kernels: Vec<BTreeSet<String>>,
}

/// Makes all fat binaries in `out`, those not made before concurrently, one process each.
fn compile(out: &Path) -> Result<Compiled, String> {
    let nvcc = nvcc()?;
    let made = Made::beside(out, &nvcc)?;
    let compiling = FILES.map(|file| match made.take(file, out) {
        Some(text) => Ok(Compiling::Was(text)),
        None => start(&nvcc, file, out).map(Compiling::Is),
    });
    let mut report = format!(
        "{:32} {:>7} {:>9} {:>6} {:>12}\n",
        "kernel", "arch", "registers", "spills", "shared bytes"
    );
    let mut kernels = Vec::new();
    for (file, compiling) in FILES.into_iter().zip(compiling) {
        let text = match compiling? {
            Compiling::Was(text) => text,
            Compiling::Is(child) => {
                let text = end_of(child, file)?;
                made.put(file, out, &text);
                text
            }
        };
        kernels.push(add_to_report(&text, &mut report)?);
    }
    Ok(Compiled { report, kernels })
}

/// A file that an earlier build compiled, with what ptxas said, or one that is being compiled.
enum Compiling {
    Was(String),
    Is(Child),
}

fn start(nvcc: &Path, file: &str, out: &Path) -> Result<Child, String> {
    let mut command = Command::new(nvcc);
    command.args(FLAGS).args(["-I", KERNELS]);
    command
        .arg("-o")
        .arg(out.join(file).with_extension("fatbin"));
    command.arg(format!("{KERNELS}/{file}.cu"));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
        .spawn()
        .map_err(|e| format!("{} does not start: {e}", nvcc.display()))
}

/// What ptxas said of a file without errors.
fn end_of(child: Child, file: &str) -> Result<String, String> {
    let output = child
        .wait_with_output()
        .map_err(|e| format!("nvcc of {file}.cu was lost: {e}"))?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        let lines = text.lines().filter(|line| line.contains("error"));
        return Err(format!(
            "{file}.cu: {}",
            lines.collect::<Vec<_>>().join("; ")
        ));
    }
    // Products of a warpgroup that wait for each other: ptxas then says so, and goes on.
    if let Some(line) = text.lines().find(|line| line.contains("are serialized")) {
        return Err(format!("{file}.cu: {line}"));
    }
    Ok(text)
}

/// Fat binaries of earlier builds, also in other profiles, with what ptxas said, by what they were made of. nvcc takes a
/// minute and a half for all.
struct Made {
    folder: PathBuf,
    /// Of the compiler, its flags and what files include.
    common: u64,
}

// === impl Made ===

impl Made {
    /// In the target directory: `out` is its PROFILE/build/PACKAGE/out.
    fn beside(out: &Path, nvcc: &Path) -> Result<Self, String> {
        let folder = out.ancestors().nth(4).unwrap_or(out).join("kernels");
        let version = Command::new(nvcc).arg("--version").output();
        let version = version.map_err(|e| format!("{} does not start: {e}", nvcc.display()))?;
        let read = |e| format!("{KERNELS}: {e}");
        let entries = std::fs::read_dir(KERNELS).map_err(read)?;
        let entries: Result<Vec<_>, _> = entries.map(|e| e.map(|e| e.path())).collect();
        let mut headers = entries.map_err(read)?;
        headers.retain(|path| path.extension().is_some_and(|kind| kind == "cuh"));
        headers.sort();
        let mut hasher = DefaultHasher::new();
        (version.stdout, FLAGS).hash(&mut hasher);
        for header in headers {
            std::fs::read(header).map_err(read)?.hash(&mut hasher);
        }
        Ok(Self {
            folder,
            common: hasher.finish(),
        })
    }

    /// The fat binary and what was said.
    fn paths(&self, file: &str) -> Option<(PathBuf, PathBuf)> {
        let text = std::fs::read(format!("{KERNELS}/{file}.cu")).ok()?;
        let mut hasher = DefaultHasher::new();
        (self.common, text).hash(&mut hasher);
        let name = self.folder.join(format!("{file}-{:016x}", hasher.finish()));
        Some((name.with_extension("fatbin"), name.with_extension("txt")))
    }

    fn take(&self, file: &str, out: &Path) -> Option<String> {
        let (fatbin, said) = self.paths(file)?;
        let said = std::fs::read_to_string(said).ok()?;
        std::fs::copy(fatbin, out.join(file).with_extension("fatbin")).ok()?;
        Some(said)
    }

    /// Keeps it if it can: a build without is slow, not wrong.
    fn put(&self, file: &str, out: &Path, said: &str) {
        let Some((fatbin, text)) = self.paths(file) else {
            return;
        };
        let part = fatbin.with_extension(std::process::id().to_string());
        let kept = std::fs::create_dir_all(&self.folder)
            .and_then(|()| std::fs::copy(out.join(file).with_extension("fatbin"), &part))
            .and_then(|_| std::fs::rename(&part, &fatbin))
            .and_then(|()| std::fs::write(&part, said))
            // Last, since it is what is looked for.
            .and_then(|()| std::fs::rename(&part, text));
        drop(kept);
    }
}

/// What ptxas says of each kernel: "Compiling entry function 'k' for 'sm_90a'", then its spills, then
/// what it uses. The names of all of them.
fn add_to_report(text: &str, report: &mut String) -> Result<BTreeSet<String>, String> {
    let number_before = |line: &str, word: &str| {
        let before = line
            .split(word)
            .next()
            .filter(|before| before.len() < line.len());
        let digits =
            before.and_then(|before| before.split([' ', ',']).rfind(|part| !part.is_empty()));
        digits
            .and_then(|digits| digits.parse::<u32>().ok())
            .unwrap_or(0)
    };
    let (mut kernel, mut arch, mut spills) = ("", "", 0);
    let mut kernels = BTreeSet::new();
    for line in text.lines() {
        if line.contains("Compiling entry function") {
            let mut quoted = line.split('\'').skip(1).step_by(2);
            kernel = quoted.next().unwrap_or("?");
            arch = quoted.next().unwrap_or("?");
            kernels.insert(kernel.to_owned());
        } else if line.contains("spill stores") {
            spills = number_before(line, " bytes spill stores");
        } else if line.contains("Used ") {
            let (registers, shared) = (
                number_before(line, " registers"),
                number_before(line, " bytes smem"),
            );
            writeln!(
                report,
                "{kernel:32} {arch:>7} {registers:>9} {spills:>6} {shared:>12}"
            )
            .expect("a string takes what is written");
            if spills > SPILL_BYTES_MAX {
                return Err(format!(
                    "{kernel} for {arch} spills {spills} bytes of its {registers} registers; make its tile smaller"
                ));
            }
        }
    }
    Ok(kernels)
}

fn write_module(out: &Path, compiled: &Compiled) {
    let Compiled { report, kernels } = compiled;
    let mut module = String::new();
    for file in FILES {
        let name = file.to_uppercase();
        writeln!(
            module,
            "static {name}: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{file}.fatbin\")));"
        )
        .expect("a string takes what is written");
    }
    let fatbins: Vec<String> = FILES
        .iter()
        .zip(kernels)
        .map(|(file, kernels)| {
            format!(
                "(&{}.0, &{:?})",
                file.to_uppercase(),
                Vec::from_iter(kernels)
            )
        })
        .collect();
    let fatbins = fatbins.join(", ");
    writeln!(
        module,
        "pub(super) static FATBINS: &[(&[u8], &[&str])] = &[{fatbins}];\npub(super) const REPORT: &str = {report:?};"
    )
    .expect("a string takes what is written");
    std::fs::write(out.join("fatbins.rs"), module).expect("OUT_DIR is writable");
    println!("cargo::rerun-if-changed=build.rs");
}
