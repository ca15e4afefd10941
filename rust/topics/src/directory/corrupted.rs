//! The audit detects a violation of each invariant, I1 to I8: states that violate one, made by hand, are refused with
//! its name.

use mqttcore_codec::QoS;

use super::audit::audit;
use super::version::{DirectoryCounts, DirectoryVersion};
use crate::subscribers::PackedSubscription;
use crate::sync::{GarbageCounter, pin};
use crate::tree::hamt::digit;
use crate::tree::hash::{Hasher, tag};
use crate::tree::node::{Edit, Size};
use crate::tree::update::{Fields, HASH, HERE, KIDS, PLUS};
use crate::tree::word::{BlockKind, Word};
use crate::{Options, SubscriberId, SubscriptionFilter, TopicLimits};

const NOTHING: Fields<'static> = [Word::EMPTY; 4];

/// Makes blocks.
struct Forge<'e, 'g> {
    edit: &'e mut Edit<'g>,
    hasher: &'e Hasher,
}

fn of<'g>(number: u32) -> Word<'g> {
    PackedSubscription::new(SubscriberId(number), Options::at(QoS::AtMostOnce)).word()
}

/// The handle that a leaf stores here: the number of the subscriber, except for subscriber 7.
fn handle_of<'g>(lone: u64) -> Option<Word<'g>> {
    let number = PackedSubscription::from_bits(lone).subscriber().get();
    (number != 7).then(|| of_handle(number))
}

fn of_handle<'g>(handle: u32) -> Word<'g> {
    Word::inline(u64::from(handle) << 1 | 1)
}

impl<'g> Forge<'_, 'g> {
    fn block(&mut self, kind: BlockKind, tag: u32, words: &[Word<'g>], text: &str) -> Word<'g> {
        self.edit.make(kind, tag, &[words], &[text.as_bytes()])
    }

    /// A leaf with the key of its text, in a map of levels or of whole texts.
    fn leaf(&mut self, text: &str, key: &str, payload: Word<'g>) -> Word<'g> {
        let tag = tag(self.hasher.hash(key.as_bytes()));
        self.edit.make_leaf(tag, &[text.as_bytes()], payload)
    }

    fn entry(&mut self, level: &str, fields: &Fields<'g>) -> Word<'g> {
        let tag = tag(self.hasher.hash(level.as_bytes()));
        self.block(BlockKind::Entry, tag, fields, level)
    }

    fn first_digit(&self, key: &str) -> u32 {
        digit(self.hasher.hash(key.as_bytes()), 0)
    }

    /// The cursor of the group `g` on `a`.
    fn cursor(&mut self) -> Word<'g> {
        let group = SubscriptionFilter::parse("$share/g/a", &TopicLimits::default());
        self.edit.make_group_cursor(&group.expect("a filter"))
    }

    fn set(&mut self, numbers: impl IntoIterator<Item = u32>) -> Word<'g> {
        let words: Vec<_> = numbers.into_iter().map(of).collect();
        self.block(BlockKind::Array, 0, &words, "")
    }
}

/// Audits a state of an exact map and a tree; all its counts are zero.
fn verdict(forge: impl for<'g> FnOnce(&mut Forge<'_, 'g>) -> (Word<'g>, Fields<'g>)) -> String {
    // What passes has no verdict, and starts with no rule.
    let verdict = verdict_with(DirectoryCounts::default(), u64::MAX, forge);
    verdict.err().unwrap_or_default()
}

fn verdict_with(
    counts: DirectoryCounts,
    mask: u64,
    forge: impl for<'g> FnOnce(&mut Forge<'_, 'g>) -> (Word<'g>, Fields<'g>),
) -> Result<String, String> {
    let (guard, garbage, hasher) = (pin(), GarbageCounter::new(), Hasher::masked(7, mask));
    let mut edit = Edit::new(&guard, &garbage, Size::default());
    edit.keep_handles(&handle_of);
    let (exact, wild) = forge(&mut Forge {
        edit: &mut edit,
        hasher: &hasher,
    });
    // What the forge made is freed with the edit, after this pin.
    audit(
        &DirectoryVersion::forged(exact, wild, counts),
        &hasher,
        (&handle_of, &|_| false),
    )
}

#[track_caller]
fn assert_breaks(rule: &str, verdict: &str) {
    assert!(verdict.starts_with(rule), "{verdict}");
}

#[test]
fn i1_an_empty_leaf_is_refused() {
    let verdict = verdict(|forge| (forge.leaf("a", "a", Word::EMPTY), NOTHING));

    assert_breaks("I1", &verdict);
}

#[test]
fn i1_an_empty_branch_is_refused() {
    let verdict = verdict(|forge| (forge.edit.make_branches(0, &[]), NOTHING));

    assert_breaks("I1", &verdict);
}

#[test]
fn i2_an_entry_with_one_filter_is_refused() {
    let verdict = verdict(|forge| {
        let mut below = NOTHING;
        below[HASH] = of(1);
        let mut root = NOTHING;
        root[KIDS] = forge.entry("a", &below);
        (Word::EMPTY, root)
    });

    assert_breaks("I2", &verdict);
}

#[test]
fn i2_an_entry_above_one_entry_is_refused() {
    for field in [KIDS, PLUS] {
        let verdict = verdict(|forge| {
            let mut below = NOTHING;
            (below[HASH], below[HERE]) = (of(1), of(2));
            let lower = if field == PLUS {
                forge.block(BlockKind::Entry, 0, &below, "+")
            } else {
                forge.entry("b", &below)
            };
            let (mut above, mut root) = (NOTHING, NOTHING);
            above[field] = lower;
            root[KIDS] = forge.entry("a", &above);
            (Word::EMPTY, root)
        });

        assert_breaks("I2: a holds one entry only", &verdict);
    }
}

#[test]
fn i3_a_branch_with_one_slot_that_holds_a_leaf_is_refused() {
    let verdict = verdict(|forge| {
        let leaf = forge.leaf("a", "a", of(1));
        let bit = 1 << forge.first_digit("a");
        (forge.edit.make_branches(bit, &[&[leaf]]), NOTHING)
    });

    assert_breaks("I3", &verdict);
}

#[test]
fn i4_a_leaf_in_the_slot_of_another_is_refused() {
    let verdict = verdict(|forge| {
        let (one, two) = ("a", "b");
        let leaves = [forge.leaf(one, one, of(1)), forge.leaf(two, two, of(1))];
        let (first, second) = (forge.first_digit(one), forge.first_digit(two));
        assert_ne!(first, second);
        // In the order of the other's digits.
        let swapped = if first < second {
            [leaves[1], leaves[0]]
        } else {
            leaves
        };
        (
            forge
                .edit
                .make_branches(1 << first | 1 << second, &[&swapped]),
            NOTHING,
        )
    });

    assert_breaks("I4", &verdict);
}

#[test]
#[should_panic(expected = "a slot a bit")]
fn i4_more_slots_than_bits_cannot_be_made() {
    let _ = verdict(|forge| {
        let leaf = forge.leaf("a", "a", of(1));
        (forge.edit.make_branches(1, &[&[leaf, leaf]]), NOTHING)
    });
}

#[test]
fn i4_a_leaf_with_the_tag_of_another_text_is_refused() {
    let verdict = verdict(|forge| (forge.leaf("a", "b", of(1)), NOTHING));

    assert_breaks("I4", &verdict);
}

#[test]
fn i7_a_leaf_keeps_the_handle_of_a_lone_subscriber_and_no_other() {
    let a = tag(Hasher::masked(7, u64::MAX).hash(b"a"));
    for (payload, kept, holds) in [
        (of(1), Some(of_handle(1)), true),
        (of(1), Some(of_handle(2)), false),
        (of(1), None, false),
        (of(7), None, true),
        (of(7), Some(of_handle(7)), false),
    ] {
        let verdict = verdict(|forge| {
            let words = [&[payload], kept.as_slice()].concat();
            (forge.block(BlockKind::Leaf, a, &words, "a"), NOTHING)
        });

        assert_eq!(!verdict.starts_with("I7"), holds, "{verdict}");
    }
    let verdict = verdict(|forge| {
        let words = [forge.set([1, 2]), of_handle(1)];
        (forge.block(BlockKind::Leaf, a, &words, "a"), NOTHING)
    });
    assert_breaks("I7", &verdict);
}

#[test]
fn i4_a_list_of_equal_hashes_out_of_order_is_refused() {
    let verdict = verdict_with(DirectoryCounts::default(), 0, |forge| {
        let items = [forge.leaf("b", "b", of(1)), forge.leaf("a", "a", of(1))];
        (forge.block(BlockKind::Collision, 0, &items, ""), NOTHING)
    });

    assert_breaks("I4", &verdict.unwrap_err());
}

#[test]
fn i4_a_literal_in_the_place_of_a_plus_is_refused() {
    let verdict = verdict(|forge| {
        let mut root = NOTHING;
        root[PLUS] = forge.leaf("a", "a", of(1));
        (Word::EMPTY, root)
    });

    assert_breaks("I4", &verdict);
}

#[test]
fn i5_sets_out_of_order_too_short_or_too_long_are_refused() {
    for numbers in [vec![2, 1], vec![1, 1], vec![1], (0..257).collect()] {
        let verdict = verdict(|forge| {
            let set = forge.set(numbers);
            (forge.leaf("a", "a", set), NOTHING)
        });

        assert_breaks("I5", &verdict);
    }
}

#[test]
fn i5_a_branch_that_miscounts_is_refused() {
    for (len, rule) in [(300_u64, "I5"), (399, "I5"), (401, "I5"), (400, "I6")] {
        let verdict = verdict(|forge| {
            let children = [forge.set(0..200), forge.set(256..456)];
            let summary = Word::inline(len << 1 | 1);
            let words = [summary, children[0], children[1]];
            // Digits 0 and 1 of the subscriber's bits 8 to 11.
            let set = forge.block(BlockKind::Branch, 0b11 | 8 << 16, &words, "");
            (forge.leaf("a", "a", set), NOTHING)
        });

        assert_breaks(rule, &verdict);
    }
}

#[test]
fn i6_counts_that_differ_from_the_walk_are_refused_each() {
    let right = DirectoryCounts {
        filters: 2,
        wild_filters: 1,
        subscriptions: 2,
        shared_subscriptions: 0,
        wild_subscriptions: 1,
        groups: 0,
        // Two leaves of header, word, and text: rounded up to 8 bytes short of a multiple of 16.
        size: Size {
            nodes: 2,
            bytes: 64,
        },
    };
    let audited = |counts: DirectoryCounts| {
        verdict_with(counts, u64::MAX, |forge| {
            let mut root = NOTHING;
            root[KIDS] = forge.leaf("b/+", "b", of(2));
            (forge.leaf("a", "a", of(1)), root)
        })
    };

    assert_eq!(audited(right).err(), None);
    let wrong: [fn(&mut DirectoryCounts); 8] = [
        |counts| counts.filters += 1,
        |counts| counts.wild_filters -= 1,
        |counts| counts.subscriptions += 1,
        |counts| counts.shared_subscriptions += 1,
        |counts| counts.wild_subscriptions += 1,
        |counts| counts.groups += 1,
        |counts| counts.size.nodes -= 1,
        |counts| counts.size.bytes += 16,
    ];
    for change in wrong {
        let mut counts = right;
        change(&mut counts);
        assert_breaks("I6", &audited(counts).unwrap_err());
    }
}

/// I2 or I3 refuse equal content with another shape; a state that passes has another shape text if its content
/// differs.
#[test]
fn i7_the_shape_tells_contents_apart() {
    let shape = |text: &'static str, client: u32| {
        let counts = DirectoryCounts {
            filters: 1,
            subscriptions: 1,
            size: Size {
                nodes: 1,
                bytes: 32,
            },
            ..DirectoryCounts::default()
        };
        verdict_with(counts, u64::MAX, |forge| {
            (forge.leaf(text, text, of(client)), NOTHING)
        })
        .unwrap()
    };

    assert_eq!(shape("a", 1), shape("a", 1));
    assert_ne!(shape("a", 1), shape("b", 1));
    assert_ne!(shape("a", 1), shape("a", 2));
}

#[test]
fn i8_groups_without_members_or_turn_are_refused() {
    let no_group = verdict(|forge| {
        let payload = forge.block(BlockKind::Extended, 0, &[of(1), Word::EMPTY], "");
        (forge.leaf("a", "a", payload), NOTHING)
    });
    let no_turn = verdict(|forge| {
        let group = forge.block(BlockKind::Extended, 1, &[of(1), Word::EMPTY, of(1)], "");
        let groups = forge.leaf("g", "g", group);
        let payload = forge.block(BlockKind::Extended, 0, &[Word::EMPTY, groups], "");
        (forge.leaf("a", "a", payload), NOTHING)
    });
    let no_member = verdict(|forge| {
        let cursor = forge.cursor();
        let group = forge.block(
            BlockKind::Extended,
            1,
            &[Word::EMPTY, cursor, Word::EMPTY],
            "",
        );
        let groups = forge.leaf("g", "g", group);
        let mut root = NOTHING;
        root[HERE] = forge.block(BlockKind::Extended, 0, &[of(1), groups], "");
        (Word::EMPTY, root)
    });

    let no_such_member = verdict(|forge| {
        let cursor = forge.cursor();
        let group = forge.block(BlockKind::Extended, 1, &[of(1), cursor, of(2)], "");
        let groups = forge.leaf("g", "g", group);
        let payload = forge.block(BlockKind::Extended, 0, &[Word::EMPTY, groups], "");
        (forge.leaf("a", "a", payload), NOTHING)
    });

    for verdict in [no_group, no_turn, no_member, no_such_member] {
        assert_breaks("I8", &verdict);
    }
}

/// Groups hang in a map like filters do.
#[test]
fn i8_a_group_in_the_place_of_another_is_refused() {
    let verdict = verdict(|forge| {
        let cursor = forge.cursor();
        let group = forge.block(BlockKind::Extended, 1, &[of(1), cursor, of(1)], "");
        let groups = forge.leaf("g", "h", group);
        let payload = forge.block(BlockKind::Extended, 0, &[Word::EMPTY, groups], "");
        (forge.leaf("a", "a", payload), NOTHING)
    });

    assert_breaks("I4", &verdict);
}
