//! Keeps a device open until it is gone, and prints its events.

use crate::wait::{self, PATIENCE};
use anyhow::{Result, bail};
use std::os::fd::AsFd;
use std::time::Instant;

pub(crate) fn run() -> Result<()> {
    let device = crate::devices::first()?;
    println!("holding {}", device.name());
    let deadline = Instant::now() + PATIENCE;
    loop {
        if !wait::readable(&[device.as_fd()], deadline)? {
            bail!("{} reported no event", device.name());
        }
        while let Some(event) = device.next_event()? {
            println!("event: {event:?}");
        }
        match device.ports() {
            Err(error) if error.is_device_gone() => {
                println!("{error}");
                return Ok(());
            }
            ports => drop(ports?),
        }
    }
}
