//! The bodies of the fuzz targets, run from fixed seeds: the same cases on every machine.
//!
//! `PROPTEST_CASES` sets how many; see `fuzz/README.md`.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

#[path = "../../../fuzz/bodies.rs"]
mod bodies;
#[path = "../../../fuzz/kept.rs"]
mod kept;

mod generate;

const DECODE: &str = include_str!("../../../fuzz/kept/decode.hex");
const ROUNDTRIP: &str = include_str!("../../../fuzz/kept/roundtrip.hex");

#[test]
fn inputs_that_fuzz_runs_found_are_answered() {
    assert!(kept::each_input(DECODE, bodies::decode_bytes) > 100);
    assert!(kept::each_input(ROUNDTRIP, bodies::roundtrip) > 100);
}

#[test]
fn random_bytes_are_answered() {
    run([1; 32], &vec(any::<u8>(), 0..200), bodies::decode_bytes);
}

#[test]
fn random_bytes_behind_a_likely_header_are_answered() {
    let header = (any::<u8>(), header(), vec(any::<u8>(), 0..128));
    let input = header.prop_map(|(choice, first_byte, body)| {
        let len = u8::try_from(body.len()).expect("below 128");
        [&[choice, first_byte, len][..], &body].concat()
    });

    run([2; 32], &input, bodies::decode_bytes);
}

#[test]
fn packets_with_broken_bytes_are_answered_and_read_back() {
    run([3; 32], &damaged(), |input| {
        bodies::decode_bytes(input);
        bodies::roundtrip(input);
    });
}

/// A first byte that is mostly right.
fn header() -> impl Strategy<Value = u8> {
    prop_oneof![
        4 => prop::sample::select(&[0x10_u8, 0x20, 0x40, 0x50, 0x62, 0x70, 0x82, 0x90, 0xA2,
            0xB0, 0xC0, 0xD0, 0xE0, 0xF0][..]),
        3 => 0x30_u8..0x3F,
        1 => any::<u8>(),
    ]
}

/// The choice byte and an encoded packet, in which up to three bytes are replaced.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let edits = vec((any::<prop::sample::Index>(), any::<u8>()), 0..=3);
    (generate::version(), edits, any::<bool>())
        .prop_flat_map(|(version, edits, tight)| {
            (generate::packet(version), Just((version, edits, tight)))
        })
        .prop_map(|(packet, (version, edits, tight))| {
            let mut input = vec![version.level() - 3 + if tight { 0xC0 } else { 0 }];
            mqttcore_codec::encode(&packet, version, &mut input).expect("generated packets fit");
            for (at, byte) in edits {
                let at = 1 + at.index(input.len() - 1);
                input[at] = byte;
            }
            input
        })
}

fn run<S>(seed: [u8; 32], strategy: &S, body: impl Fn(&[u8]))
where
    S: Strategy<Value = Vec<u8>>,
{
    let config = Config {
        failure_persistence: None,
        cases: Config::default().cases.max(1024),
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let outcome = TestRunner::new_with_rng(config, rng).run(strategy, |input| {
        body(&input);
        Ok(())
    });

    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}
