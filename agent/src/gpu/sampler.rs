//! `GpuSampler`: the newest reading of this process's GPUs. A dedicated thread reads them, because
//! a driver in trouble blocks its callers for seconds; scrapes get the last reading, or nothing
//! once that is too old.

use super::Gpu;
use super::export::{InstanceLabels, families};
use super::health::{Fault, faults};
use super::nvml::{self, Reader};
use parking_lot::Mutex;
use prometheus::proto::MetricFamily;
use std::convert::Infallible;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Dropping it ends the thread, after the call that the thread may be in.
#[derive(Debug)]
pub(crate) struct GpuSampler {
    readings: watch::Receiver<Reading>,
    place: InstanceLabels,
    /// Without it the thread ends.
    stop: Mutex<Option<mpsc::SyncSender<Infallible>>>,
}

/// All GPUs at one moment.
#[derive(Clone, Debug)]
struct Reading {
    gpus: Vec<Gpu>,
    at: Instant,
}

/// Pause between two readings; scrapes are not more frequent.
const INTERVAL: Duration = Duration::from_secs(1);
/// Older readings are not exported, and their GPUs count as lost: a hanging driver must not look
/// like a healthy one.
const AGE_MAX: Duration = Duration::from_secs(5);
const CUDA_VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";

// === impl GpuSampler ===

impl GpuSampler {
    /// Reads every second from now on, if there is a driver; logs it if there is none.
    pub(crate) fn spawn() -> Self {
        let nothing = Reading {
            gpus: Vec::new(),
            at: Instant::now(),
        };
        let (readings_tx, readings) = watch::channel(nothing);
        let (stop, stopped) = mpsc::sync_channel(0);
        let thread = thread::Builder::new().name("pd-gpu".to_owned());
        if let Err(why) = thread.spawn(move || sample(&readings_tx, &stopped)) {
            tracing::warn!("no GPU metrics: cannot start their thread: {why}");
        }
        Self {
            readings,
            place: InstanceLabels::here(),
            stop: Mutex::new(Some(stop)),
        }
    }

    /// Ends the thread, and waits until it is out of the driver.
    pub(crate) async fn end(&self) {
        drop(self.stop.lock().take());
        let mut readings = self.readings.clone();
        while readings.changed().await.is_ok() {}
    }

    /// The newest values; empty where there is no GPU, or the driver has stopped answering.
    pub(crate) fn families(&self) -> Vec<MetricFamily> {
        let reading = self.readings.borrow().clone();
        families(&reading.at(Instant::now()), &self.place)
    }
}

// === impl Reading ===

impl Reading {
    fn at(self, now: Instant) -> Vec<Gpu> {
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
        Err(why) => return tracing::info!("no GPU metrics: cannot open NVML: {why}"),
    };
    let cuda = std::env::var(CUDA_VISIBLE_DEVICES).ok();
    let mut reader = match Reader::new(&nvml, cuda.as_deref()) {
        Ok(reader) => reader,
        Err(why) => return tracing::warn!("no GPU metrics: NVML cannot count GPUs: {why}"),
    };
    match reader.len() {
        0 => return tracing::info!("no GPU metrics: no GPU is visible to this process"),
        count => tracing::info!("exporting metrics of {count} GPUs"),
    }
    read_until(stopped, INTERVAL, || {
        let gpus = reader.read();
        log_faults(&readings.borrow().gpus, &gpus);
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

/// Logs each fault when it appears and when it clears.
fn log_faults(before: &[Gpu], now: &[Gpu]) {
    for (gpu, change) in changes(before, now) {
        let (index, uuid) = (gpu.identity.index, &gpu.identity.uuid);
        if change.is_empty() {
            tracing::info!("GPU {index} ({uuid}) has recovered");
        } else {
            let faults = change.join(", ");
            tracing::warn!("GPU {index} ({uuid}) is degraded: {faults}");
        }
    }
}

/// The GPUs whose faults have changed, with their present ones.
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
