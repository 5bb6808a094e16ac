//! With the feature `cuda`, compiles the kernels: cubins for sm_80 and sm_90a and PTX for newer
//! devices, in one fat binary per file, with a report of each kernel's resources.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const KERNELS: &str = "src/cuda/kernels";
const FILES: [&str; 17] = [
    "attn_latent",
    "attn_paged",
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
        Ok(report) => write_module(&out, &report),
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

/// Compiles all files concurrently, one process each; returns the report's lines.
fn compile(out: &Path) -> Result<String, String> {
    let nvcc = nvcc()?;
    let started: Vec<_> = FILES
        .iter()
        .map(|file| {
            let mut command = Command::new(&nvcc);
            command.args([
                "-std=c++17",
                "-O3",
                "-fatbin",
                "-Xptxas",
                "-v",
                "-I",
                KERNELS,
            ]);
            for target in [
                "arch=compute_90a,code=sm_90a",
                "arch=compute_80,code=sm_80",
                "arch=compute_80,code=compute_80",
            ] {
                command.args(["-gencode", target]);
            }
            command
                .arg("-o")
                .arg(out.join(file).with_extension("fatbin"));
            command.arg(format!("{KERNELS}/{file}.cu"));
            command.stdout(std::process::Stdio::piped());
            command.stderr(std::process::Stdio::piped());
            let child = command
                .spawn()
                .map_err(|e| format!("{} does not start: {e}", nvcc.display()))?;
            Ok((file, child))
        })
        .collect::<Result<_, String>>()?;
    let mut report = format!(
        "{:32} {:>7} {:>9} {:>6} {:>12}\n",
        "kernel", "arch", "registers", "spills", "shared bytes"
    );
    for (file, child) in started {
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
        add_to_report(&text, &mut report)?;
    }
    Ok(report)
}

/// What ptxas says of each kernel: "Compiling entry function 'k' for 'sm_90a'", then its spills, then
/// what it uses.
fn add_to_report(text: &str, report: &mut String) -> Result<(), String> {
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
    for line in text.lines() {
        if line.contains("Compiling entry function") {
            let mut quoted = line.split('\'').skip(1).step_by(2);
            kernel = quoted.next().unwrap_or("?");
            arch = quoted.next().unwrap_or("?");
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
    Ok(())
}

fn write_module(out: &Path, report: &str) {
    let mut module = String::new();
    for file in FILES {
        let name = file.to_uppercase();
        writeln!(
            module,
            "static {name}: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{file}.fatbin\")));"
        )
        .expect("a string takes what is written");
    }
    let names = FILES
        .map(|file| format!("&{}.0", file.to_uppercase()))
        .join(", ");
    writeln!(
        module,
        "pub(super) static FATBINS: &[&[u8]] = &[{names}];\npub(super) const REPORT: &str = {report:?};"
    )
    .expect("a string takes what is written");
    std::fs::write(out.join("fatbins.rs"), module).expect("OUT_DIR is writable");
    println!("cargo::rerun-if-changed=build.rs");
}
