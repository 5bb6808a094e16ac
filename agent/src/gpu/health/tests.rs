//! Which GPUs are degraded.

use super::*;

fn mk_gpu(fields: &[(Field, u64)]) -> Gpu {
    Gpu {
        fields: fields.iter().copied().collect(),
        ..Gpu::default()
    }
}

fn mk_slowed(reasons: u64) -> Gpu {
    mk_gpu(&[(Field::ClocksEventReasons, reasons)])
}

#[test]
fn a_busy_gpu_at_its_power_cap_is_healthy() {
    // Idle, application clocks, power cap, sync boost, software thermal, display.
    for reasons in [0x0, 0x1, 0x2, 0x4, 0x10, 0x20, 0x100, 0x137] {
        assert_eq!(faults(&mk_slowed(reasons)), []);
    }
}

#[test]
fn a_gpu_that_hardware_slows_down_is_degraded() {
    let hot = mk_slowed(0x4 | HW_SLOWDOWN | HW_THERMAL_SLOWDOWN);
    assert_eq!(faults(&hot), [Fault::HwSlowdown, Fault::HwThermal]);
    let braked = mk_slowed(HW_POWER_BRAKE_SLOWDOWN);
    assert_eq!(faults(&braked), [Fault::HwPowerBrake]);
}

#[test]
fn double_bit_errors_count_and_single_bit_errors_do_not() {
    let gpu = mk_gpu(&[(Field::EccSbeVolTotal, 900), (Field::EccDbeVolTotal, 0)]);
    assert_eq!(faults(&gpu), []);
    let gpu = mk_gpu(&[(Field::EccDbeVolTotal, 1)]);
    assert_eq!(faults(&gpu), [Fault::DoubleBitEcc]);
}

#[test]
fn an_xid_of_the_program_is_not_a_fault_of_the_gpu() {
    for xid in [0, 13, 31, 43, 45, 63, 68, 94] {
        assert!(!is_fatal(xid), "{xid}");
    }
    for xid in [48, 64, 74, 79, 95, 119] {
        assert!(is_fatal(xid), "{xid}");
    }
}

#[test]
fn a_fatal_xid_outlives_later_ones() {
    let gpu = Gpu {
        fatal_xid: Some(79),
        ..mk_gpu(&[(Field::XidErrors, 45)])
    };
    assert_eq!(faults(&gpu), [Fault::FatalXid]);
}

#[test]
fn an_unreported_fault_is_neither_present_nor_absent() {
    let mute = mk_gpu(&[]);
    assert_eq!(faults(&mute), []);
    let known = Fault::ALL
        .into_iter()
        .filter(|fault| fault.of(&mute).is_some());
    assert_eq!(known.collect::<Vec<_>>(), [Fault::Lost]);
    let lost = Gpu { lost: true, ..mute };
    assert_eq!(faults(&lost), [Fault::Lost]);
}
