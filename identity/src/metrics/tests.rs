//! Facts about the series of a process's keys.

use crate::Identity;
use crate::identity::tests::mk_keyring;
use prometheus::{Registry, TextEncoder};

fn lines(registry: &Registry) -> Vec<String> {
    let text = TextEncoder::new().encode_to_string(&registry.gather());
    let text = text.expect("registered metrics can be written");
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples.map(str::to_owned).collect()
}

#[test]
fn the_series_are_the_keys_of_the_moment_and_end_with_the_process() {
    let identity = Identity::new(mk_keyring([1, 2]));
    let registry = Registry::new();
    registry.register(identity.collector("pd_test")).unwrap();
    let expected = |keys: [usize; 2]| {
        let ids = mk_keyring(keys).key_ids();
        let mut lines: Vec<String> = ids
            .iter()
            .map(|(id, key_use)| {
                let word = key_use.as_str();
                format!("pd_test_peer_key_info{{key_id=\"{id}\",use=\"{word}\"}} 1")
            })
            .collect();
        lines.sort();
        lines
    };
    assert_eq!(lines(&registry), expected([1, 2]));
    assert!(
        lines(&registry)[0].contains("use=\"signs\"")
            != lines(&registry)[1].contains("use=\"signs\"")
    );
    identity.replace(mk_keyring([2, 1]));
    assert_eq!(lines(&registry), expected([2, 1]));
    drop(identity);
    assert_eq!(lines(&registry), Vec::<String>::new());
}
