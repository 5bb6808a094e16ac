//! What this machine has: devices, limits, features, ports, GIDs.

use anyhow::Result;
use pd_verbs::{Device, PortWish, Verbs};

pub(crate) fn run() -> Result<()> {
    let verbs = Verbs::open()?;
    for name in verbs.device_names()? {
        show(&verbs.open_device(&name)?)?;
    }
    Ok(())
}

fn show(device: &Device) -> Result<()> {
    let name = device.name();
    println!("{name}: {:?}", device.capabilities()?);
    println!("{name}: {:?}", device.probe_features()?);
    for port in device.ports()? {
        let speed = port.mbit_per_s.unwrap_or(0);
        println!(
            "{name} port {}: {:?}, {:?}, MTU {}, {speed} Mbit/s, LID {}",
            port.number,
            port.state,
            port.link_layer,
            port.active_mtu.bytes(),
            port.lid,
        );
        for gid in &port.gids {
            let interface = gid.interface.as_deref().unwrap_or("-");
            println!(
                "{name}   GID {}: {} {:?} {interface}",
                gid.index, gid.gid, gid.kind
            );
        }
    }
    match device.choose_port(&PortWish::default()) {
        Ok(local) => println!(
            "{name}: chosen port {} GID {}",
            local.number, local.gid_index
        ),
        Err(error) => println!("{name}: not usable: {error}"),
    }
    Ok(())
}

/// The first device of this machine.
pub(crate) fn first() -> Result<Device> {
    let verbs = Verbs::open()?;
    let names = verbs.device_names()?;
    Ok(verbs.open_device(&names[0])?)
}
