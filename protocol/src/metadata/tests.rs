//! Facts about metadata rows.

use super::*;
use proptest::prelude::*;

const LAYOUT: MetadataLayout = MetadataLayout {
    hidden_size: 48,
    hidden_dtype: KvDtype::Bfloat16,
};

fn mk_room(room: u64) -> BootstrapRoom {
    BootstrapRoom::new(room).unwrap()
}

#[test]
fn offsets_are_those_of_the_reference() {
    let at = LAYOUT.offsets();
    let expected = [0, 64, 128, 192, 256, 768, 1280, 1344, 1472, 1600, 1664];
    let actual = [
        at.output_ids,
        at.cached_tokens,
        at.output_token_logprobs_val,
        at.output_token_logprobs_idx,
        at.output_top_logprobs_val,
        at.output_top_logprobs_idx,
        at.output_topk_p,
        at.output_topk_index,
        at.output_hidden_states,
        at.bootstrap_room,
        at.row_bytes,
    ];
    assert_eq!(actual, expected);
}

#[test]
fn a_row_of_another_room_is_refused() {
    let row = MetadataRow::new(mk_room(7), 1).encode(&LAYOUT).unwrap();
    assert_eq!(
        MetadataRow::decode(&LAYOUT, &row, mk_room(8)),
        Err(MetadataError::RoomMismatch {
            expected: mk_room(8),
            actual: 7
        })
    );
}

#[test]
fn an_empty_row_has_not_arrived() {
    let row = vec![0; LAYOUT.row_bytes()];
    let expected = mk_room(8);
    assert_eq!(
        MetadataRow::decode(&LAYOUT, &row, expected),
        Err(MetadataError::NotArrived { expected })
    );
}

#[test]
fn a_list_longer_than_its_field_is_refused() {
    let mut row = MetadataRow::new(mk_room(7), 1);
    row.output_ids = vec![0; NARROW + 1];
    assert!(row.encode(&LAYOUT).is_err());
}

fn any_logprob() -> impl Strategy<Value = TokenLogprob> {
    (-100f32..0.0, 0i32..200_000).prop_map(|(logprob, token_id)| TokenLogprob { logprob, token_id })
}

proptest! {
    #[test]
    fn a_row_reads_back_as_written(
        room in 1..=BootstrapRoom::MAX.get(),
        output_ids in prop::collection::vec(any::<i32>(), 0..=NARROW),
        cached_tokens in prop::collection::vec(any::<i32>(), 0..=NARROW),
        token in prop::collection::vec(any_logprob(), 0..=NARROW),
        top in prop::collection::vec(any_logprob(), 0..=TOP_LOGPROBS),
        topk in prop::collection::vec((0f32..1.0, any::<i64>()), 0..=NARROW),
        hidden in prop::collection::vec(any::<u8>(), 0..=96),
        prompt_digest: u64,
    ) {
        let row = MetadataRow {
            bootstrap_room: mk_room(room),
            output_ids,
            cached_tokens,
            output_token_logprobs: token,
            output_top_logprobs: top,
            output_topk: topk,
            output_hidden_states: hidden,
            prompt_digest,
        };
        let bytes = row.encode(&LAYOUT).unwrap();
        prop_assert_eq!(MetadataRow::decode(&LAYOUT, &bytes, mk_room(room)), Ok(row));
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 1664)) {
        bytes[1600..1608].copy_from_slice(&7u64.to_le_bytes());
        let _ = MetadataRow::decode(&LAYOUT, &bytes, mk_room(7));
    }
}
