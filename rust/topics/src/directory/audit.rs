//! Walks one version and checks its invariants; for tests.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::version::{DirectoryCounts, DirectoryVersion};
use crate::SubscriberId;
use crate::subscribers::{PackedSubscription, SharedGroup, parts, set};
use crate::tree::hamt::{DIGIT_BITS, KeyKind, item_hash, key_of};
use crate::tree::hash::{Hasher, tag};
use crate::tree::node::{Block, Branches, HandleLookup, TreeVersion, measure};
use crate::tree::update::{Fields, HASH, HERE, KIDS, PLUS, fields_of};
use crate::tree::word::{View, Word};

/// Checks a version; returns its shape as text, equal for equal content.
pub(crate) fn audit<'a>(
    version: &'a DirectoryVersion,
    hasher: &'a Hasher,
    (handles, is_removed): (HandleLookup<'a>, &'a dyn Fn(SubscriberId) -> bool),
) -> Result<String, String> {
    let mut audit = Audit {
        hasher,
        handles,
        is_removed,
        counts: DirectoryCounts::default(),
        shape: String::new(),
    };
    audit.map(version.exact(), KeyKind::Whole, 0, 0)?;
    let exact = audit.counts;
    audit.node(version.wild())?;
    audit.counts.wild_filters = audit.counts.filters - exact.filters;
    audit.counts.wild_subscriptions = audit.counts.subscriptions - exact.subscriptions;
    audit.counts.size = measure(&version.roots());
    ensure(audit.counts == version.counts, "I6", || {
        format!("{:?} reachable, {:?} counted", audit.counts, version.counts)
    })?;
    Ok(audit.shape)
}

struct Audit<'a> {
    hasher: &'a Hasher,
    handles: HandleLookup<'a>,
    is_removed: &'a dyn Fn(SubscriberId) -> bool,
    counts: DirectoryCounts,
    shape: String,
}

fn ensure(holds: bool, rule: &str, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(format!("{rule}: {}", what()))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Audit<'_> {
    fn describe(&mut self, what: impl AsRef<str>) {
        let _ = write!(self.shape, "{} ", what.as_ref());
    }

    /// Adds the content below a node to the counts.
    fn node(&mut self, fields: Fields<'_>) -> Result<(), String> {
        self.describe("{");
        self.map(fields[KIDS], KeyKind::Level, 0, 0)?;
        if !fields[PLUS].is_empty() {
            ensure(key_of(fields[PLUS], KeyKind::Level) == b"+", "I4", || {
                "plus is not `+`".into()
            })?;
            self.item(fields[PLUS], 0)?;
        }
        for field in [HASH, HERE] {
            self.describe("|");
            self.payload(fields[field], false)?;
        }
        self.describe("}");
        Ok(())
    }

    /// Checks a map whose keys agree with `path` in the lowest `shift` bits.
    fn map(&mut self, map: Word<'_>, keys: KeyKind, path: u64, shift: u32) -> Result<(), String> {
        match map.view() {
            View::Empty => Ok(()),
            View::Hamt(branches) => self.hamt(branches, keys, path, shift),
            View::Collision(list) => self.list(map, list, keys, path, shift),
            View::Leaf(_) | View::Entry(_) => {
                let hash = item_hash(map, keys, self.hasher);
                Self::place(map, hash, path, shift)?;
                self.item(map, tag(hash))
            }
            _ => Err("I4: not a map".into()),
        }
    }

    fn place(item: Word<'_>, hash: u64, path: u64, shift: u32) -> Result<(), String> {
        let mask = if shift >= 64 {
            u64::MAX
        } else {
            (1 << shift) - 1
        };
        ensure(hash & mask == path, "I4", || {
            text(key_of(item, KeyKind::Whole))
        })
    }

    fn hamt(
        &mut self,
        branches: Branches<'_>,
        keys: KeyKind,
        path: u64,
        shift: u32,
    ) -> Result<(), String> {
        let (bitmap, slots) = (branches.bitmap(), branches.slots());
        ensure(!slots.is_empty(), "I1", || "an empty HAMT".into())?;
        ensure(slots.len() > 1 || slots[0].is_hamt(), "I3", || {
            "one slot, no HAMT".into()
        })?;
        self.describe(format!("hamt:{bitmap:x}"));
        let digits = (0..64).filter(|digit| bitmap & (1 << digit) != 0);
        for (digit, slot) in digits.zip(slots) {
            ensure(!slot.is_empty(), "I1", || "an empty slot".into())?;
            self.map(*slot, keys, path | digit << shift, shift + DIGIT_BITS)?;
        }
        Ok(())
    }

    fn list(
        &mut self,
        word: Word<'_>,
        list: Block<'_>,
        keys: KeyKind,
        path: u64,
        shift: u32,
    ) -> Result<(), String> {
        let hash = item_hash(word, keys, self.hasher);
        Self::place(word, hash, path, shift)?;
        ensure(
            list.words().len() > 1 && list.tag() == tag(hash),
            "I1",
            || "short list".into(),
        )?;
        ensure(
            list.words()
                .is_sorted_by(|one, two| key_of(*one, keys) < key_of(*two, keys)),
            "I4",
            || "a list out of order".into(),
        )?;
        self.describe("list");
        for item in list.words() {
            ensure(item_hash(*item, keys, self.hasher) == hash, "I4", || {
                "in a list".into()
            })?;
            self.item(*item, tag(hash))?;
        }
        Ok(())
    }

    fn item(&mut self, item: Word<'_>, tag: u32) -> Result<(), String> {
        match item.view() {
            View::Leaf(leaf) => {
                ensure(leaf.tag() == tag, "I4", || text(leaf.text()))?;
                self.describe(format!("leaf:{}", text(leaf.text())));
                ensure(!leaf.word(0).is_empty(), "I1", || text(leaf.text()))?;
                self.handle(leaf)?;
                self.payload(leaf.word(0), false)
            }
            View::Entry(entry) => {
                ensure(entry.tag() == tag, "I4", || text(entry.text()))?;
                self.describe(format!("entry:{}", text(entry.text())));
                let before = self.counts.filters;
                let fields = fields_of(entry);
                let mut present = fields.iter().filter(|word| !word.is_empty());
                let only = present.next().filter(|_| present.next().is_none());
                let is_entry = |word: &Word<'_>| matches!(word.view(), View::Entry(_));
                ensure(!only.is_some_and(is_entry), "I2", || {
                    format!("{} holds one entry only", text(entry.text()))
                })?;
                self.node(*fields)?;
                ensure(self.counts.filters - before > 1, "I2", || {
                    text(entry.text())
                })
            }
            _ => Err("I4: not an item".into()),
        }
    }

    /// Checks that a leaf stores the handle of its only subscriber, and no handle with other payloads.
    fn handle(&self, leaf: Block<'_>) -> Result<(), String> {
        let due = match leaf.word(0).view() {
            View::Inline(value) => (self.handles)(value),
            _ => None,
        };
        let kept = &leaf.words()[1..];
        let is_kept = match (kept, due) {
            ([], None) => true,
            ([kept], Some(due)) => kept.is_same(due),
            _ => false,
        };
        ensure(is_kept, "I7", || text(leaf.text()))
    }

    /// Checks the payload of a filter, or of a group if `is_group`.
    fn payload(&mut self, payload: Word<'_>, is_group: bool) -> Result<(), String> {
        if payload.is_empty() {
            return Ok(());
        }
        if is_group {
            let group = SharedGroup::of(payload);
            let has_members = group.cursor().is_some() && !group.members.is_empty();
            ensure(has_members, "I8", || "a group without members".into())?;
            self.counts.groups += 1;
            self.counts.subscriptions += set::len(group.members);
            self.counts.shared_subscriptions += set::len(group.members);
            self.set(group.members)?;
            self.available(group)?;
            return self.ring(group);
        }
        self.counts.filters += 1;
        let (plain, groups) = parts(payload);
        self.counts.subscriptions += set::len(plain);
        self.set(plain)?;
        if let View::Extended(_) = payload.view() {
            ensure(!groups.is_empty(), "I8", || {
                "extended without groups".into()
            })?;
        }
        self.groups(groups, 0, 0)
    }

    /// Checks the map of groups: only leaves, one for each group, each at the place of its hash.
    fn groups(&mut self, groups: Word<'_>, path: u64, shift: u32) -> Result<(), String> {
        match groups.view() {
            View::Empty => Ok(()),
            View::Leaf(leaf) => {
                let hash = item_hash(groups, KeyKind::Whole, self.hasher);
                Self::place(groups, hash, path, shift)?;
                ensure(leaf.tag() == tag(hash), "I4", || text(leaf.text()))?;
                self.describe(format!("group:{}", text(leaf.text())));
                self.payload(leaf.word(0), true)
            }
            View::Hamt(branches) => {
                let (bitmap, slots) = (branches.bitmap(), branches.slots());
                let is_due = slots.len() > 1 || slots.first().is_some_and(|slot| slot.is_hamt());
                ensure(is_due, "I3", || "groups".into())?;
                let digits = (0..64).filter(|digit| bitmap & (1 << digit) != 0);
                digits.zip(slots).try_for_each(|(digit, slot)| {
                    self.groups(*slot, path | digit << shift, shift + DIGIT_BITS)
                })
            }
            View::Collision(list) => {
                let words = list.words();
                let key = |word: &Word<'_>| text(key_of(*word, KeyKind::Whole));
                let is_due = words.len() > 1 && words.is_sorted_by(|one, two| key(one) < key(two));
                ensure(is_due, "I4", || "a list of groups".into())?;
                words
                    .iter()
                    .try_for_each(|word| self.groups(*word, path, shift))
            }
            _ => Err("I8: not a map of groups".into()),
        }
    }

    fn set(&mut self, set: Word<'_>) -> Result<(), String> {
        self.set_shape(set)?;
        let all: Vec<PackedSubscription> = set::Iter::new(set).collect();
        ensure(
            all.is_sorted_by(|one, two| one.subscriber() < two.subscriber()),
            "I5",
            || "a set out of order".into(),
        )?;
        ensure(all.len() == set::len(set), "I5", || {
            "a set miscounts".into()
        })?;
        self.describe(format!("{all:?}"));
        Ok(())
    }

    /// Checks that the available members of a group are its members, or have left.
    fn available(&mut self, group: SharedGroup<'_>) -> Result<(), String> {
        self.describe("available");
        self.set(group.available)?;
        set::Iter::new(group.available).try_for_each(|one| {
            let is_member = set::of(group.members, one.subscriber()) == Some(one);
            ensure(
                is_member || (self.is_removed)(one.subscriber()),
                "I8",
                || "an available one is no member".into(),
            )
        })
    }

    /// Checks that each member has a seat on the ring, if there is one, and that all other seats are of members that
    /// have left.
    fn ring(&mut self, group: SharedGroup<'_>) -> Result<(), String> {
        if group.ring.is_empty() {
            return Ok(());
        }
        self.describe("ring");
        self.set(group.ring)?;
        let seats: BTreeSet<_> = set::Iter::new(group.ring)
            .map(|seat| seat.seated().0)
            .collect();
        let is_member = |number: u32| set::of(group.members, SubscriberId(number)).is_some();
        let is_right =
            |number: &u32| is_member(*number) || (self.is_removed)(SubscriberId(*number));
        ensure(seats.iter().all(is_right), "I8", || {
            "one with a seat is no member".into()
        })?;
        let mut members = set::Iter::new(group.members);
        ensure(
            members.all(|member| seats.contains(&member.subscriber().0)),
            "I8",
            || "a member without a seat".into(),
        )
    }

    fn set_shape(&mut self, set: Word<'_>) -> Result<(), String> {
        match set.view() {
            View::Array(array) => {
                self.describe("array");
                let len = array.words().len();
                ensure((2..=set::ARRAY_LEN).contains(&len), "I5", || {
                    format!("array of {len}")
                })
            }
            View::Branch(branch) => {
                self.describe(format!("branch:{:x}", branch.tag()));
                ensure(set::len(set) > set::ARRAY_LEN, "I5", || {
                    "a small branch".into()
                })?;
                let children = &branch.words()[1..];
                let sum: usize = children.iter().map(|child| set::len(*child)).sum();
                ensure(children.len() > 1 && sum == set::len(set), "I5", || {
                    "a branch".into()
                })?;
                children.iter().try_for_each(|child| self.set_shape(*child))
            }
            _ => Ok(()),
        }
    }
}
