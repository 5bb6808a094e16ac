//! Any text as metrics.

use super::*;
use pd_fuzz::{Memory, fuzz};

const MEMORY: Memory = Memory {
    base: 4096,
    per_byte: 8,
};

#[test]
fn metrics_text() {
    fuzz!("metrics_text", MEMORY, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        for sample in samples(&text).flatten() {
            for name in ["le", "reason", ""] {
                let value = sample.label(name).unwrap_or_default();
                assert!(value.len() <= text.len(), "{value:?}");
            }
            assert_eq!(read_again(&sample), (sample.name, sample.value.to_bits()));
        }
    });
}

/// Writes a sample as a line and reads that.
fn read_again<'a>(sample: &Sample<'a>) -> (&'a str, u64) {
    let labels = sample.labels.map(|labels| format!("{{{labels}}}"));
    let labels = labels.unwrap_or_default();
    let line = format!("{}{labels} {:?}", sample.name, sample.value);
    let mut again = samples(&line);
    let read = again.next().expect("a sample").expect("well-formed");
    assert_eq!((read.name, read.labels), (sample.name, sample.labels));
    assert!(again.next().is_none(), "{line:?} is one line");
    let is_nan = read.value.is_nan() && sample.value.is_nan();
    let value = if is_nan { sample.value } else { read.value };
    (sample.name, value.to_bits())
}
