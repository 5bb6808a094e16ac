//! Facts about the sum.

use super::*;

#[test]
fn a_router_may_take_the_sum_of_its_bounds() {
    assert_eq!(
        router_limit_mib(&LimitsSpec::default()),
        128 + 512 + 2 * 256 + 256
    );
    let limits = LimitsSpec {
        max_payload_bytes: 1 << 30,
        ..LimitsSpec::default()
    };
    assert_eq!(router_limit_mib(&limits), 128 + 512 + 2 * 1024 + 256);
}

#[test]
fn the_sum_counts_with_the_flags_defaults() {
    let flags = include_str!("../../../../../docs/flags.md");
    for (flag, default) in [
        ("--max-connections", CONNECTIONS),
        ("--max-total-payload-size", BODIES),
    ] {
        let (_, help) = flags.split_once(flag).expect("docs/flags.md has it");
        let (help, _) = help.split_once("\n      --").unwrap_or((help, ""));
        let stated = format!("[default: {default}]");
        assert!(help.contains(&stated), "{flag}: {stated} in {help}");
    }
}
