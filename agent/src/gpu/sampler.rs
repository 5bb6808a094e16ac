//! `GpuSampler`: the newest reading of this process's GPUs. A thread of its own reads them, because
//! a driver in trouble holds its callers for seconds; whoever asks gets what was read last, or
//! nothing once that is old.

use super::Gpu;
use super::export::{Place, families};
use super::health::{Fault, faults};
use super::nvml::{self, Reader};
use prometheus::proto::MetricFamily;
use std::convert::Infallible;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Dropping it ends the thread, after the call that it may be in.
#[derive(Debug)]
pub(crate) struct GpuSampler {
    readings: watch::Receiver<Reading>,
    place: Place,
    _stop: mpsc::SyncSender<Infallible>,
}

/// All GPUs at one time.
#[derive(Clone, Debug)]
struct Reading {
    gpus: Vec<Gpu>,
    at: Instant,
}

/// Pause between two readings; nobody scrapes more often.
const INTERVAL: Duration = Duration::from_secs(1);
/// What is older is not told, and its GPUs count as lost: a driver that hangs must not look like a
/// healthy one.
const AGE_MAX: Duration = Duration::from_secs(5);
const CUDA_VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";

// === impl GpuSampler ===

impl GpuSampler {
    /// Reads every second from now on, if there is a driver; the log says if there is none.
    pub(crate) fn spawn() -> Self {
        let nothing = Reading {
            gpus: Vec::new(),
            at: Instant::now(),
        };
        let (readings_tx, readings) = watch::channel(nothing);
        let (stop, stopped) = mpsc::sync_channel(0);
        let thread = thread::Builder::new().name("pd-gpu".to_owned());
        if let Err(why) = thread.spawn(move || sample(&readings_tx, &stopped)) {
            tracing::warn!("no GPU metrics: no thread for them can be started: {why}");
        }
        Self {
            readings,
            place: Place::here(),
            _stop: stop,
        }
    }

    /// The newest figures; none where there is no GPU, or the driver has not answered of late.
    pub(crate) fn families(&self) -> Vec<MetricFamily> {
        let reading = self.readings.borrow().clone();
        families(&reading.told(Instant::now()), &self.place)
    }
}

// === impl Reading ===

impl Reading {
    fn told(self, now: Instant) -> Vec<Gpu> {
        if now.saturating_duration_since(self.at) <= AGE_MAX {
            return self.gpus;
        }
        let lost = self.gpus.into_iter().map(|gpu| Gpu {
            identity: gpu.identity,
            lost: true,
            ..Gpu::default()
        });
        lost.collect()
    }
}

fn sample(readings: &watch::Sender<Reading>, stopped: &mpsc::Receiver<Infallible>) {
    let nvml = match nvml::open(nvml::LIBRARY) {
        Ok(nvml) => nvml,
        Err(why) => return tracing::info!("no GPU metrics, for NVML cannot be opened: {why}"),
    };
    let cuda = std::env::var(CUDA_VISIBLE_DEVICES).ok();
    let mut reader = match Reader::new(&nvml, cuda.as_deref()) {
        Ok(reader) => reader,
        Err(why) => return tracing::warn!("no GPU metrics, for NVML counts no GPUs: {why}"),
    };
    match reader.len() {
        0 => return tracing::info!("no GPU metrics, for no GPU is visible to this process"),
        count => tracing::info!("GPU metrics of {count} GPUs, by NVML"),
    }
    read_until(stopped, INTERVAL, || {
        let gpus = reader.read();
        tell_faults(&readings.borrow().gpus, &gpus);
        let at = Instant::now();
        readings.send_replace(Reading { gpus, at });
    });
}

fn read_until(stopped: &mpsc::Receiver<Infallible>, pause: Duration, mut read: impl FnMut()) {
    loop {
        read();
        if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// A fault goes to the log when it comes and when it goes.
fn tell_faults(before: &[Gpu], now: &[Gpu]) {
    for (gpu, change) in changes(before, now) {
        let (index, uuid) = (gpu.identity.index, &gpu.identity.uuid);
        if change.is_empty() {
            tracing::info!("GPU {index} ({uuid}) is to be counted on again");
        } else {
            let faults = change.join(", ");
            tracing::warn!("GPU {index} ({uuid}) is not to be counted on: {faults}");
        }
    }
}

/// The GPUs whose faults are others than before, with those that they have.
fn changes<'a>(before: &[Gpu], now: &'a [Gpu]) -> Vec<(&'a Gpu, Vec<&'static str>)> {
    let words = |gpu: &Gpu| -> Vec<&'static str> {
        let faults = faults(gpu).into_iter();
        faults.map(Fault::as_str).collect()
    };
    let earlier = |gpu: &Gpu| {
        let same = before.iter().find(|old| old.identity == gpu.identity);
        same.map(words).unwrap_or_default()
    };
    let changed = now.iter().filter(|gpu| words(gpu) != earlier(gpu));
    changed.map(|gpu| (gpu, words(gpu))).collect()
}

#[cfg(test)]
mod tests;
