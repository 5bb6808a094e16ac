//! What ldd says, read.

use super::*;

#[test]
fn libraries_and_the_linker_are_found_and_the_kernels_own_is_not() {
    let said = "\tlinux-vdso.so.1 (0x00007ffd)\n\
        \tlibmnl.so.0 => /lib/x86_64-linux-gnu/libmnl.so.0 (0x00007f20)\n\
        \t/lib64/ld-linux-x86-64.so.2 (0x00007f20)\n";
    let found = parse(said).expect("nothing is missing");
    let expected = [
        "/lib/x86_64-linux-gnu/libmnl.so.0",
        "/lib64/ld-linux-x86-64.so.2",
    ];
    assert_eq!(found, expected.map(PathBuf::from));
}

#[test]
fn a_missing_library_is_named() {
    let error = parse("\tlibodd.so.3 => not found\n").expect_err("it is missing");
    assert!(error.to_string().contains("libodd.so.3"), "{error}");
}
