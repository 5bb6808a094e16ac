//! The archive's form.

use super::*;

#[test]
fn folders_come_once_and_before_what_is_in_them() {
    let mut archive = Initramfs::default();
    archive.add("/etc/a", 0o644, b"x");
    archive.add("/etc/b", 0o755, b"");
    archive.add("/etc/a", 0o644, b"another");
    let bytes = archive.finish();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let at = |name: &str| {
        text.find(&format!("{name}\0"))
            .expect("it is in the archive")
    };
    assert!(at("etc") < at("etc/a") && at("etc/a") < at("etc/b"));
    assert_eq!(text.matches("070701").count(), 4);
    assert_eq!(text.matches("etc/a").count(), 1);
}

#[test]
fn an_entry_is_padded_and_states_its_lengths() {
    let mut archive = Initramfs::default();
    archive.add("init", 0o755, b"hello");
    let bytes = archive.finish();
    let field = |nr: usize| {
        let digits = &bytes[6 + 8 * nr..14 + 8 * nr];
        u32::from_str_radix(std::str::from_utf8(digits).expect("digits"), 16).expect("a number")
    };
    assert_eq!((field(1), field(6), field(11)), (0o100_755, 5, 5));
    let data = (110 + 5_usize).next_multiple_of(4);
    assert_eq!(&bytes[data..data + 5], b"hello");
    assert_eq!(bytes.len() % 4, 0);
}
