//! Speed of whole models in the shapes of Qwen3, through the scheduler, as users see it: decode
//! steps at several batch sizes, prompts of several lengths, and start times, each with the bound
//! that the same run measured. Weights are generated, in the right size.

#![allow(clippy::print_stdout, reason = "a program for a terminal")]

mod checkpoint;
mod measure;

use checkpoint::{SHAPES, Shape};
use measure::{Measured, measure};
use pd_compute::cuda::driver::Driver;
use pd_compute_proof::speed::{Bounds, bounds};
use pd_engine::engine::Device;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

const USAGE: &str = "usage: model-speed TOKENIZER_FOLDER OUT_JSON [--device cuda|cpu] [--models NAME,…] [--scratch FOLDER]
  TOKENIZER_FOLDER  a Hugging Face folder, whose tokenizer is used
  --models          of Qwen3-0.6B, Qwen3-4B, Qwen3-8B, tiny (all but the last)
  --scratch         where checkpoints are made, one at a time (up to 17 GB); the folder for temporary files";

struct Args {
    tokenizer: PathBuf,
    out: PathBuf,
    cuda: bool,
    models: Vec<Shape>,
    scratch: PathBuf,
}

fn main() -> ExitCode {
    let args = match parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(problem) => {
            println!("{problem}\n{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    let driver = match args.cuda.then(open).transpose() {
        Ok(driver) => driver,
        Err(error) => {
            println!("no GPU is usable: {error}");
            return ExitCode::from(2);
        }
    };
    match run(&args, driver) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut next = |what: &str| words.next().ok_or_else(|| format!("{what} is missing"));
    let (tokenizer, out) = (next("TOKENIZER_FOLDER")?.into(), next("OUT_JSON")?.into());
    let mut args = Args {
        tokenizer,
        out,
        cuda: true,
        models: SHAPES[..3].to_vec(),
        scratch: std::env::temp_dir(),
    };
    while let Some(flag) = words.next() {
        let value = words
            .next()
            .ok_or_else(|| format!("{flag} takes a value"))?;
        match flag.as_str() {
            "--device" if value == "cpu" || value == "cuda" => args.cuda = value == "cuda",
            "--models" => {
                let shape = |name: &str| {
                    let shape = SHAPES.iter().find(|shape| shape.name == name);
                    shape
                        .copied()
                        .ok_or_else(|| format!("no model is named {name:?}"))
                };
                args.models = value.split(',').map(shape).collect::<Result<_, _>>()?;
            }
            "--scratch" => args.scratch = value.into(),
            _ => return Err(format!("{flag} {value} is not known")),
        }
    }
    Ok(args)
}

#[cfg(feature = "cuda")]
fn open() -> Result<Arc<dyn Driver>, String> {
    let driver = pd_compute::cuda::gpu::GpuDriver::open(0);
    Ok(Arc::new(driver.map_err(|error| error.to_string())?))
}

#[cfg(not(feature = "cuda"))]
fn open() -> Result<Arc<dyn Driver>, String> {
    Err("this program was built without CUDA kernels (cargo feature `cuda`)".to_owned())
}

fn run(args: &Args, driver: Option<Arc<dyn Driver>>) -> Result<(), Box<dyn std::error::Error>> {
    let bounds = driver
        .as_ref()
        .map(|driver| bounds(&**driver))
        .transpose()?;
    if let Some(Bounds {
        gb_per_s,
        tflop_per_s,
    }) = bounds
    {
        println!(
            "bounds: {gb_per_s:.0} GB/s copied, {tflop_per_s:.0} TFLOP/s multiplied by cuBLASLt"
        );
    }
    let name = driver
        .as_ref()
        .map_or("cpu", |driver| &driver.device().name);
    let mut models = Vec::new();
    for shape in &args.models {
        let folder = args.scratch.join(format!("pdserve-{}", shape.name));
        let found = one(shape, &folder, &args.tokenizer, driver.as_ref(), bounds);
        // A checkpoint is as large as the disk may be.
        std::fs::remove_dir_all(&folder)?;
        models.push(json!({"model": shape.name, "measured": found?}));
        let result = json!({"device": name, "bounds": bounds, "models": models});
        std::fs::write(&args.out, format!("{result:#}\n"))?;
    }
    Ok(())
}

fn one(
    shape: &Shape,
    folder: &Path,
    tokenizer: &Path,
    driver: Option<&Arc<dyn Driver>>,
    bounds: Option<Bounds>,
) -> Result<Vec<Value>, Box<dyn std::error::Error>> {
    shape.write(folder, tokenizer)?;
    let device = || match driver {
        Some(driver) => Device::Cuda {
            driver: driver.clone(),
            mem_fraction_static: 0.9,
            deterministic: false,
            cuda_graph_max_bs: 256,
        },
        None => Device::Cpu {
            threads: None,
            kv_memory_bytes: 1 << 30,
        },
    };
    let mut found = Vec::new();
    measure(shape, folder, &device, &mut |line: Measured| {
        let share = bounds.and_then(|bounds| line.share(bounds));
        let of = share.map_or(String::new(), |share| {
            format!("{:5.1} % of the bound", 100.0 * share)
        });
        println!(
            "{:12} {:28} {:10.3} ms  {of}",
            shape.name, line.what, line.ms
        );
        found
            .push(json!({"what": line.what, "ms": line.ms, "p99_ms": line.p99_ms, "share": share}));
    })?;
    Ok(found)
}
