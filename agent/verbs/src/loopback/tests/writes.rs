//! Bytes, immediates, completions, and their order.

use super::*;
use proptest::prelude::*;

#[test]
fn ranges_are_gathered_where_the_peer_wants_them() {
    let Stand {
        loopback,
        a,
        b,
        mut from_a,
        from_b: _from_b,
    } = mk_stand();
    for (offset, byte) in [(0, 1_u8), (1000, 2), (4000, 3)] {
        a.fill(offset, &[byte; 50]);
    }
    let range = |offset, len| a.region.range(offset, len).expect("inside");
    let write = Write {
        src: &[range(4000, 50), range(0, 7), range(1000, 50)],
        dst: b.at(300),
        immediate: None,
        tag: 5,
        signalled: true,
    };
    assert_eq!(from_a.post(&[write]).expect("no error"), 1);
    let expected = [&[0; 3][..], &[3; 50], &[1; 7], &[2; 50], &[0; 3]].concat();
    assert_eq!(b.bytes(297, 113), expected);
    assert_eq!(a.poll(), [written(&from_a, 5)]);
    assert_eq!(b.poll(), []);
    assert_eq!((loopback.landed("a"), loopback.landed("b")), (0, 1));
}

#[test]
fn only_what_was_signalled_completes() {
    let Stand {
        a,
        b,
        mut from_a,
        from_b: _from_b,
        ..
    } = mk_stand();
    let src = [a.region.range(0, 64).expect("inside")];
    let writes = [false, false, true].map(|signalled| Write {
        src: &src,
        dst: b.at(0),
        immediate: None,
        tag: u64::from(signalled),
        signalled,
    });
    assert_eq!(from_a.post(&writes).expect("no error"), 3);
    assert_eq!(a.poll(), [written(&from_a, 1)]);
    assert_eq!(from_a.outstanding(), 0);
}

#[test]
fn an_immediate_takes_a_receive_and_announces_the_bytes() {
    let Stand {
        a,
        b,
        mut from_a,
        mut from_b,
        ..
    } = mk_stand();
    assert_eq!(from_b.post_receives(2).expect("no error"), 2);
    a.fill(0, b"here it is");
    post(&mut from_a, (&a.region, 0, 10), b.at(0), Some(99), 1);
    let expected = Completion::Immediate {
        qp_num: from_b.qp_num(),
        immediate: 99,
        bytes: 10,
    };
    assert_eq!(b.poll(), [expected]);
    assert_eq!(b.bytes(0, 10), b"here it is");
    assert_eq!(from_b.receives_posted(), 1);
    assert_eq!(a.poll(), [written(&from_a, 1)]);
}

#[test]
fn an_immediate_alone_needs_no_memory() {
    let Stand {
        a,
        b,
        mut from_a,
        mut from_b,
        ..
    } = mk_stand();
    from_b.post_receives(1).expect("no error");
    let write = Write {
        src: &[],
        dst: RemoteAddr {
            addr: 0,
            rkey: crate::RKey(0),
        },
        immediate: Some(7),
        tag: 0,
        signalled: false,
    };
    from_a.post(&[write]).expect("no error");
    let expected = Completion::Immediate {
        qp_num: from_b.qp_num(),
        immediate: 7,
        bytes: 0,
    };
    assert_eq!(b.poll(), [expected]);
    assert_eq!(a.poll(), []);
}

#[test]
fn without_a_receive_an_immediate_waits_and_holds_what_is_behind_it() {
    let Stand {
        loopback,
        a,
        b,
        mut from_a,
        mut from_b,
    } = mk_stand();
    a.fill(0, &[9; 64]);
    post(&mut from_a, (&a.region, 0, 64), b.at(0), Some(1), 1);
    post_plain(&mut from_a, &a, b.at(100), 2);
    assert_eq!((a.poll(), b.poll()), (vec![], vec![]));
    assert_eq!((loopback.landed("b"), b.bytes(0, 1)), (0, vec![0]));
    assert_eq!(from_a.outstanding(), 2);

    // The other direction is not held.
    post_plain(&mut from_b, &b, a.at(4096), 3);
    assert_eq!(b.poll(), [written(&from_b, 3)]);

    from_b.post_receives(1).expect("no error");
    assert_eq!(a.poll(), [written(&from_a, 1), written(&from_a, 2)]);
    assert_eq!(
        (b.bytes(0, 64), b.bytes(100, 64)),
        (vec![9; 64], vec![9; 64])
    );
    assert!(matches!(
        b.poll()[..],
        [Completion::Immediate { immediate: 1, .. }]
    ));
}

#[test]
fn retries_for_a_receive_that_end_have_ended_at_once() {
    let loopback = Loopback::new(&["a", "b"]);
    let (a, b) = (mk_end(&loopback, "a"), mk_end(&loopback, "b"));
    let (from_a, from_b) = (a.init(), b.init());
    let (to_a, to_b) = (from_a.endpoint(), from_b.endpoint());
    let mut from_a = tie(from_a, &to_b, Retry::default());
    let _from_b = tie(from_b, &to_a, Retry::default());
    post(&mut from_a, (&a.region, 0, 64), b.at(0), Some(1), 1);
    assert_eq!(a.poll_failures(), [(1, WcStatus::RNR_RETRY_EXC_ERR)]);
}

#[test]
fn a_device_writes_to_itself() {
    let loopback = Loopback::new(&["a"]);
    let a = mk_end(&loopback, "a");
    let (mut one, _other) = connect(&a, &a);
    a.fill(0, &[1; 64]);
    // The ranges overlap.
    post_plain(&mut one, &a, a.at(32), 1);
    assert_eq!(a.bytes(0, 100), [vec![1; 96], vec![0; 4]].concat());
}

#[test]
fn writes_with_relaxed_ordering_are_writes() {
    let Stand {
        a,
        b,
        mut from_a,
        from_b: _from_b,
        ..
    } = mk_stand();
    let memory = Arc::new(HostMemory::zeroed(64));
    let registration = Registration {
        relaxed_ordering: true,
        ..WRITABLE
    };
    let region = b.domain.register(Arc::clone(&memory), registration);
    let region = region.expect("a region");
    assert!(region.has_relaxed_ordering());
    a.fill(0, &[4; 64]);
    let dst = region.remote().at(0, 64).expect("inside");
    post_plain(&mut from_a, &a, dst, 1);
    let mut bytes = [0; 64];
    memory.read(0, &mut bytes).expect("inside");
    assert_eq!(bytes, [4; 64]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Against plain arrays: writes of any size and place, in both directions, by two queue pairs.
    #[test]
    fn memory_is_as_if_each_write_was_a_copy(
        writes in prop::collection::vec(
            (any::<bool>(), any::<bool>(), 0..BYTES - 600, 0..BYTES - 600, 0_usize..600),
            1..40,
        ),
    ) {
        let Stand { a, b, mut from_a, mut from_b, .. } = mk_stand();
        let (mut other_a, mut other_b) = connect(&a, &b);
        let mut model = [0_u8, 1].map(|seed| -> Vec<u8> {
            (0..BYTES).map(|i| (i % 251).to_le_bytes()[0].wrapping_mul(3 + seed)).collect()
        });
        a.fill(0, &model[0]);
        b.fill(0, &model[1]);
        for &(is_from_a, is_other, from, to, len) in &writes {
            let (src, dst) = if is_from_a { (&a, &b) } else { (&b, &a) };
            let qp = match (is_from_a, is_other) {
                (true, false) => &mut from_a,
                (true, true) => &mut other_a,
                (false, false) => &mut from_b,
                (false, true) => &mut other_b,
            };
            let bytes = u32::try_from(len).expect("small");
            post(qp, (&src.region, from as u64, bytes), dst.at(to as u64), None, 0);
            let copied = model[usize::from(!is_from_a)][from..from + len].to_vec();
            model[usize::from(is_from_a)][to..to + len].copy_from_slice(&copied);
            prop_assert_eq!(src.poll().len(), 1);
        }
        prop_assert!(a.bytes(0, BYTES) == model[0]);
        prop_assert!(b.bytes(0, BYTES) == model[1]);
    }
}
