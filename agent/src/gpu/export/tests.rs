//! The text that a scrape gets.

use super::super::Identity;
use super::*;
use prometheus::{Encoder, TextEncoder};

fn mk_gpu(index: u32, fields: &[(Field, u64)]) -> Gpu {
    Gpu {
        identity: Identity {
            index,
            uuid: format!("GPU-{index}"),
            pci_bus_id: format!("00000000:3{index}:00.0"),
            minor: Some(index + 4),
            model: "NVIDIA H100".to_owned(),
        },
        fields: fields.iter().copied().collect(),
        ..Gpu::default()
    }
}

fn mk_place() -> InstanceLabels {
    let known = |value: &str| Some(value.to_owned());
    InstanceLabels::new(known("node-a\n"), known("llm"), known("tiny-decode-0-1"))
}

/// Without comments.
fn lines(gpus: &[Gpu], place: &InstanceLabels) -> Vec<String> {
    let mut text = Vec::new();
    TextEncoder::new()
        .encode(&families(gpus, place), &mut text)
        .unwrap();
    let text = String::from_utf8(text).unwrap();
    let series = text.lines().filter(|line| !line.starts_with('#'));
    series.map(str::to_owned).collect()
}

const LABELS_OF_0: &str = "Hostname=\"node-a\",UUID=\"GPU-0\",device=\"nvidia4\",gpu=\"0\",\
    modelName=\"NVIDIA H100\",namespace=\"llm\",pci_bus_id=\"00000000:30:00.0\",\
    pod=\"tiny-decode-0-1\"";

#[test]
fn no_gpu_is_no_family() {
    assert!(families(&[], &mk_place()).is_empty());
}

#[test]
fn a_figure_has_dcgms_name_unit_and_labels() {
    let gpu = mk_gpu(
        0,
        &[(Field::PowerUsage, 312_500), (Field::FbUsed, 81_000 << 20)],
    );
    assert_eq!(
        lines(&[gpu], &mk_place()),
        [
            format!("DCGM_FI_DEV_POWER_USAGE{{{LABELS_OF_0}}} 312.5"),
            format!("DCGM_FI_DEV_FB_USED{{{LABELS_OF_0}}} 81000"),
            format!("pdserve_gpu_degraded{{{LABELS_OF_0},reason=\"lost\"}} 0"),
        ]
    );
}

#[test]
fn a_field_that_a_gpu_does_not_report_is_absent_and_not_zero() {
    let gpus = [
        mk_gpu(0, &[(Field::GpuTemp, 40), (Field::EccDbeVolTotal, 0)]),
        mk_gpu(1, &[(Field::GpuTemp, 90)]),
    ];
    let lines = lines(&gpus, &InstanceLabels::default());
    let of = |name: &str| lines.iter().filter(|line| line.starts_with(name)).count();
    assert_eq!(of("DCGM_FI_DEV_GPU_TEMP{"), 2);
    assert_eq!(of("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{"), 1);
    assert_eq!(of("DCGM_"), 3);
}

#[test]
fn a_fault_is_exported_under_its_reason() {
    let gpu = mk_gpu(1, &[(Field::ClocksEventReasons, 0x48)]);
    let lines = lines(&[gpu], &InstanceLabels::default());
    let is_exported = |reason: &str, value: u8| {
        let end = format!("reason=\"{reason}\"}} {value}");
        lines.iter().any(|line| line.ends_with(&end))
    };
    assert!(
        is_exported("hw_slowdown", 1) && is_exported("hw_thermal", 1),
        "{lines:#?}"
    );
    assert!(
        is_exported("hw_power_brake", 0) && is_exported("lost", 0),
        "{lines:#?}"
    );
    assert!(!lines.iter().any(|line| line.contains("double_bit_ecc")));
}

#[test]
fn counters_and_gauges_are_typed() {
    let fields = [(Field::EccSbeVolTotal, 3), (Field::XidErrors, 13)];
    let families = families(&[mk_gpu(0, &fields)], &InstanceLabels::default());
    let types: Vec<_> = families
        .iter()
        .map(|family| (family.name(), family.get_field_type()))
        .collect();
    use prometheus::proto::MetricType::{COUNTER, GAUGE};
    assert_eq!(
        types,
        [
            ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", COUNTER),
            ("DCGM_FI_DEV_XID_ERRORS", GAUGE),
            ("pdserve_gpu_degraded", GAUGE),
        ]
    );
}
