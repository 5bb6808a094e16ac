//! Facts about weights on their way to the device.

use super::*;

#[test]
fn weights_without_rows_or_columns_are_refused() {
    let (backend, _) = start(1 << 20);
    for (n, k) in [(0, 8), (3, 0)] {
        let empty = WeightSource {
            name: "empty",
            format: WeightFormat::BF16,
            n,
            k,
            bytes: &[],
            scales: &[],
        };
        let said = format!("weight empty: has {n} rows of {k} values; a weight has one at least");
        let refused = backend.pack_linear(&[empty], Packing::JOINED).unwrap_err();
        assert_eq!(refused.to_string(), said);
        let refused = backend.pack_embedding(&empty).unwrap_err();
        assert_eq!(refused.to_string(), said);
    }
    let long = vec![0; 5 << 20];
    let refused = backend.pack_embedding(&WeightSource {
        name: "long",
        format: WeightFormat::Q8_0,
        n: 1,
        k: long.len() / 34 * 32,
        bytes: &long[..long.len() / 34 * 34],
        scales: &[],
    });
    assert_eq!(
        refused.unwrap_err().to_string(),
        "weight long: makes 1 rows of 4934464 values; the CUDA backend takes up to 4294967295 rows of 8388608 bytes"
    );
}

/// 10 MB in five parts, a row's values all its index.
const ROWS: usize = 10_000;
const COLUMNS: usize = 512;

#[test]
fn weights_of_many_parts_are_packed_row_by_row() {
    let (backend, driver) = start(64 << 20);
    // Exact in bfloat16 below 256.
    let value = |row: usize| f32::from(u8::try_from(row % 251).unwrap());
    let values: Vec<f32> = (0..ROWS * COLUMNS).map(|i| value(i / COLUMNS)).collect();
    let source = matrix("table", COLUMNS, &values);
    let table = backend.pack_embedding(&source).unwrap();
    let ids: Vec<u32> = (0..u32::try_from(ROWS).unwrap()).collect();
    let token_ids = backend.alloc("ids", DType::U32, ROWS).unwrap();
    backend.upload(&token_ids, &ids);
    let out = backend.alloc("rows", DType::BF16, ROWS * COLUMNS).unwrap();
    backend.embed(Embed {
        table: &table,
        token_ids: &token_ids,
        out: &out,
        scale: None,
        rows: ROWS,
    });
    let rows = backend.read(&out).wait().unwrap();
    for (row, stored) in rows.as_slice::<bf16>().chunks_exact(COLUMNS).enumerate() {
        assert!(stored.iter().all(|v| v.to_f32() == value(row)), "row {row}");
    }
    drop(table);
    let before = driver.device_bytes();
    driver.refuse("cuMemcpyAsync", 2);
    let refused = backend.pack_embedding(&source).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "op pack faulted: table: cuMemcpyAsync: CUDA_ERROR_UNKNOWN (as a test wants it); the queue runs nothing \
         after it"
    );
    assert_eq!(driver.device_bytes(), before);
}
