//! `CUDA_VISIBLE_DEVICES` as CUDA reads it.

use super::*;

fn visible(cuda: Option<&str>) -> Vec<u32> {
    let all: Vec<Identity> = (0..4)
        .map(|index| Identity {
            index,
            uuid: format!("GPU-{index}{index}aa-bb"),
            ..Identity::default()
        })
        .collect();
    let shown = all.iter().filter(|gpu| is_visible(gpu, &all, cuda));
    shown.map(|gpu| gpu.index).collect()
}

#[test]
fn without_the_variable_all_are_visible() {
    assert_eq!(visible(None), [0, 1, 2, 3]);
}

#[test]
fn indices_and_uuids_name_gpus() {
    assert_eq!(visible(Some("2,0")), [0, 2]);
    assert_eq!(visible(Some(" 3 ")), [3]);
    assert_eq!(visible(Some("GPU-11aa-bb")), [1]);
    assert_eq!(visible(Some("GPU-2,3")), [2, 3], "a beginning is enough");
}

#[test]
fn the_list_ends_at_the_first_entry_that_names_none() {
    assert!(visible(Some("")).is_empty());
    assert!(visible(Some("-1")).is_empty());
    assert_eq!(visible(Some("1,9,2")), [1]);
    assert!(visible(Some("GPU-")).is_empty(), "a beginning of all");
    assert!(visible(Some("MIG-11aa-bb")).is_empty());
    assert_eq!(visible(Some("1,NoDevFiles,2")), [1]);
}
