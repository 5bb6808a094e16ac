//! How a host is described to the emulator and to its own start script.

use super::*;

fn mk_nic(last: u8) -> Nic {
    Nic {
        link: "/run/a.link".into(),
        address: Ipv4Addr::new(10, 9, 0, last),
    }
}

#[test]
fn the_start_script_learns_name_and_addresses() {
    let parts = Parts {
        name: "a".to_owned(),
        kernel: PathBuf::new(),
        initramfs: PathBuf::new(),
        nics: vec![mk_nic(1), mk_nic(2)],
    };
    let line = command_line(&parts);
    assert!(
        line.ends_with("host=a nic=eth0:10.9.0.1 nic=eth1:10.9.0.2"),
        "{line}"
    );
}

#[test]
fn nics_differ_in_name_and_hardware_address() {
    let [_, first, _, first_device] = nic_arguments(0, &mk_nic(1));
    let [_, second, _, second_device] = nic_arguments(1, &mk_nic(2));
    assert!(first.contains("id=nic0,") && second.contains("id=nic1,"));
    assert!(
        first_device.ends_with("mac=52:54:00:09:00:01"),
        "{first_device}"
    );
    assert!(
        second_device.ends_with("mac=52:54:00:09:00:02"),
        "{second_device}"
    );
}
