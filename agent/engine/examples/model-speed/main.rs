//! Speed of whole models in the shapes of real ones, through the scheduler, as users see it: decode
//! steps at several batch sizes, prompts of several lengths, and start times, each with the bound
//! that the same run measured. Weights are generated, in the right size.

#![allow(clippy::print_stdout, reason = "a program for a terminal")]

mod checkpoint;
mod measure;
mod published;
mod work;

use checkpoint::Checkpoint;
use measure::{Measured, measure};
use pd_compute::cuda::driver::Driver;
use pd_compute_proof::speed::{Bounds, bounds};
use pd_engine::engine::Device;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

const USAGE: &str = "usage: model-speed TOKENIZER_FOLDER OUT_JSON [--device cuda|cpu] [--models NAME,…] [--only TEXT] [--scratch FOLDER]
  TOKENIZER_FOLDER  a Hugging Face folder, whose tokenizer is used
  --models          of Qwen3-0.6B, Qwen3-4B, Qwen3-8B (these, unless named), tiny, qwen3-30b-a3b, qwen3.5-27b,
                    qwen3.5-35b-a3b, deepseek-v2-lite, gpt-oss-20b; NAME:LAYERS has the first layers of the last five
  --only            decodes and prompts with this in their names
  --scratch         where checkpoints are made, one at a time (up to 17 GB); the folder for temporary files";

struct Args {
    tokenizer: PathBuf,
    out: PathBuf,
    cuda: bool,
    models: Vec<Checkpoint>,
    only: String,
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
        models: Checkpoint::all_dense(),
        only: String::new(),
        scratch: std::env::temp_dir(),
    };
    while let Some(flag) = words.next() {
        let value = words
            .next()
            .ok_or_else(|| format!("{flag} takes a value"))?;
        match flag.as_str() {
            "--device" if value == "cpu" || value == "cuda" => args.cuda = value == "cuda",
            "--models" => {
                let model = |name: &str| {
                    Checkpoint::named(name).ok_or_else(|| format!("no model is named {name:?}"))
                };
                args.models = value.split(',').map(model).collect::<Result<_, _>>()?;
            }
            "--only" => args.only = value,
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
    let (mut models, mut failed) = (Vec::new(), Vec::new());
    let wanted = |what: &str| what.contains(&args.only);
    for model in &args.models {
        let folder = args.scratch.join(format!("pdserve-{}", model.name));
        let measured = |report: &mut dyn FnMut(Measured)| {
            model.write(&folder, &args.tokenizer)?;
            measure(model, &folder, &|| device(driver.as_ref()), &wanted, report)
        };
        let found = listed(model, bounds, measured);
        // A checkpoint is as large as the disk may be.
        std::fs::remove_dir_all(&folder)?;
        match found {
            Ok(found) => models.push(json!({"model": model.name, "measured": found})),
            Err(error) => {
                println!("{}: {error}", model.name);
                failed.push(model.name.as_str());
            }
        }
        let result = json!({"device": name, "bounds": bounds, "models": models});
        std::fs::write(&args.out, format!("{result:#}\n"))?;
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(format!("not measured: {}", failed.join(", ")).into())
    }
}

fn device(driver: Option<&Arc<dyn Driver>>) -> Device {
    match driver {
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
    }
}

/// What is measured of a model, printed as it comes.
fn listed(
    model: &Checkpoint,
    bounds: Option<Bounds>,
    measured: impl FnOnce(&mut dyn FnMut(Measured)) -> Result<(), Box<dyn std::error::Error>>,
) -> Result<Vec<Value>, Box<dyn std::error::Error>> {
    let mut found = Vec::new();
    measured(&mut |line: Measured| {
        let share = bounds.and_then(|bounds| line.share(bounds));
        let of = share.map_or(String::new(), |share| {
            format!("{:5.1} % of the bound", 100.0 * share)
        });
        println!(
            "{:18} {:28} {:10.3} ms  {of}",
            model.name, line.what, line.ms
        );
        found
            .push(json!({"what": line.what, "ms": line.ms, "p99_ms": line.p99_ms, "share": share}));
    })?;
    Ok(found)
}
