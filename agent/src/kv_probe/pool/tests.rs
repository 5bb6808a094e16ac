//! Contents of a probe's pages.

use super::*;

/// Decode's pool after `src_pages` came to pages 0, 1 and so on.
fn mk_received(src_pages: &[u32]) -> Pool {
    let pool = Pool::allocate(4, 1).unwrap();
    let mut bytes = vec![0; PAGE_BYTES];
    for (page, &src_page) in (0..).zip(src_pages) {
        write_pattern(src_page, &mut bytes);
        pool.write(page, &bytes).unwrap();
    }
    pool
}

fn wrong(pool: &Pool, src_pages: &[u32], dst_pages: &[u32]) -> String {
    let error = pool.check(src_pages, dst_pages).unwrap_err();
    error.downcast::<WrongByte>().unwrap().to_string()
}

#[test]
fn a_page_has_the_bytes_of_the_layout() {
    let layout = layout(3, 1);
    layout.validate().unwrap();
    assert_eq!(layout.region_lens()[0], 3 * PAGE_BYTES as u64);
}

#[test]
fn intact_pages_are_right_in_any_order() {
    let pool = mk_received(&[7, 0, 16_383]);
    pool.check(&[16_383, 7, 0], &[2, 0, 1]).unwrap();
}

#[test]
fn prefills_own_pages_are_what_decode_expects() {
    let pool = Pool::allocate(4, 1).unwrap();
    pool.fill().unwrap();
    pool.check(&[0, 1, 2, 3], &[0, 1, 2, 3]).unwrap();
}

#[test]
fn a_wrong_byte_is_named_with_page_and_offset() {
    let pool = mk_received(&[5, 6]);
    let mut byte = [0];
    let place = PAGE_BYTES as u64 + 4097;
    pool.kv.kv[0].read(place, &mut byte).unwrap();
    pool.kv.kv[0].write(place, &[byte[0] ^ 1]).unwrap();
    let message = wrong(&pool, &[5, 6], &[0, 1]);
    assert!(
        message.contains("page 1, byte 4097 is ") && message.contains("prefill's page 6 has"),
        "{message}"
    );
}

#[test]
fn a_misplaced_page_is_found() {
    let pool = mk_received(&[5, 6]);
    assert!(wrong(&pool, &[6, 5], &[0, 1]).contains("page 0, byte "));
}

#[test]
fn a_missing_page_is_found() {
    let pool = mk_received(&[5, 6]);
    pool.clear([1]).unwrap();
    assert!(wrong(&pool, &[5, 6], &[0, 1]).contains("page 1, byte 0 is 0x00"));
}
