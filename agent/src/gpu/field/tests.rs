//! Names, units and bounds.

use super::Field;
use std::collections::BTreeSet;

#[test]
fn every_field_is_exported_once_in_dcgms_name_space() {
    let names: BTreeSet<&str> = Field::ALL.into_iter().map(Field::name).collect();
    assert_eq!(names.len(), Field::ALL.len());
    assert!(names.iter().all(|name| name.starts_with("DCGM_FI_DEV_")));
    assert!(Field::ALL.is_sorted(), "exported in the order of the enum");
}

#[test]
fn units_are_dcgms() {
    assert_eq!(Field::PowerUsage.in_dcgm_units(312_500), 312.5);
    assert_eq!(Field::FbUsed.in_dcgm_units((81_559 << 20) + 17), 81_559.0);
    assert_eq!(Field::GpuUtil.in_dcgm_units(42), 42.0);
}

#[test]
fn implausible_values_are_refused() {
    assert!(Field::GpuUtil.is_plausible(100));
    assert!(!Field::GpuUtil.is_plausible(101));
    assert!(!Field::GpuTemp.is_plausible(u64::from(u32::MAX)));
    assert!(!Field::PowerUsage.is_plausible(u64::from(u32::MAX)));
    assert!(!Field::EccDbeVolTotal.is_plausible(u64::MAX));
    assert!(Field::TotalEnergyConsumption.is_plausible(1 << 50));
}
