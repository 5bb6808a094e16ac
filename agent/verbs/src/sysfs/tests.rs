//! A device's folder as kernels lay it out.

use super::*;

fn mk_file(folder: &Path, path: &str, text: &str) {
    let path = folder.join(path);
    fs::create_dir_all(path.parent().expect("a folder")).expect("the folder can be made");
    fs::write(path, text).expect("the file can be written");
}

#[test]
fn the_gid_table_is_read_with_its_kinds_and_without_its_empty_rows() {
    let class = tempfile::tempdir().expect("a temporary folder");
    let port = class.path().join("rxe0/ports/1");
    mk_file(&port, "gids/0", "fe80:0000:0000:0000:5054:00ff:fe12:3456\n");
    mk_file(&port, "gid_attrs/types/0", "IB/RoCE v1\n");
    mk_file(&port, "gids/1", "0000:0000:0000:0000:0000:ffff:0a00:0001\n");
    mk_file(&port, "gid_attrs/types/1", "RoCE v2\n");
    mk_file(&port, "gid_attrs/ndevs/1", "eth0\n");
    mk_file(&port, "gids/2", "0000:0000:0000:0000:0000:0000:0000:0000\n");
    let gids = PortFolder::new(class.path(), "rxe0", 1).gids(4);
    let rows: Vec<_> = gids
        .iter()
        .map(|g| (g.index, g.gid.to_string(), g.kind))
        .collect();
    assert_eq!(
        rows,
        [
            (
                0,
                "fe80::5054:ff:fe12:3456".to_owned(),
                GidKind::InfiniBandOrRoceV1
            ),
            (1, "::ffff:10.0.0.1".to_owned(), GidKind::RoceV2),
        ]
    );
    assert_eq!(gids[1].interface.as_deref(), Some("eth0"));
}

#[test]
fn a_rate_is_read_and_nonsense_is_none() {
    for (text, mbit_per_s) in [
        ("100 Gb/sec (4X EDR)", Some(100_000)),
        ("2.5 Gb/sec (1X SDR)", Some(2_500)),
        ("800 Gb/sec (8X NDR)", Some(800_000)),
        ("fast", None),
        ("18446744073709551615 Gb/sec", None),
        ("1. Gb/sec", None),
    ] {
        assert_eq!(parse_rate(text), mbit_per_s, "{text}");
    }
}
