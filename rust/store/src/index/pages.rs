//! Reads the pages of a redb file without redb, which opens no file that has a damaged page.
//!
//! Only pages with a correct checksum are used. The checksum of a page (XXH3, 128 bits) is in its parent page; the
//! checksum of a tree's root is in the commit slot or in the table of tables. So a damaged leaf loses only its own
//! rows, and pages below a damaged branch can still be verified. A single wrong bit loses nothing: it is found by
//! flipping every bit in turn. The format is version 3 of redb, see `docs/design.md` there.

use std::collections::BTreeMap;
use std::ops::Range;

use twox_hash::XxHash3_128;

use crate::error::StoreError;
use crate::files::{File, read_full, write_all};
use crate::index::tables::FILE;
use crate::wire::RecordReader;

const PAGE: u64 = 4_096;
/// Pages of a region; regions have no header of their own.
const REGION_PAGES: u64 = 1 << 20;
const INDEX: u64 = 0xF_FFFF;
/// Flags of the file; no checksum covers them.
const GOD_BYTE: usize = 9;
/// Flag: the second slot is the primary commit.
const PRIMARY: u8 = 1;
const SLOTS: Range<usize> = 64..320;
const SLOT: usize = 128;
const CHECKSUM: usize = 16;
const LEAF: u8 = 1;
const BRANCH: u8 = 2;
/// An upper bound for the depth of a tree.
const DEPTH: u32 = 64;
/// Larger pages are not repaired bit by bit.
const MENDABLE: usize = 64 * 1_024;
/// Limit of bytes to hash for repairs: about a minute.
const PATIENCE: u64 = 512 << 30;

/// The root of a tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree {
    page: u64,
    checksum: u128,
}

/// Bytes of each key and each value, if they are the same for all rows of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Widths {
    pub(super) key: Option<usize>,
    pub(super) value: Option<usize>,
}

/// One step of a walk, in key order.
pub(super) enum PageVisit<'p> {
    /// Key and value, encoded.
    Row(&'p [u8], &'p [u8]),
    /// An unreadable page: rows are missing here.
    Lost,
}

type Visit<'v> = dyn FnMut(PageVisit<'_>) -> Result<(), StoreError> + 'v;

/// A commit: its number, and its tables by name.
#[derive(Debug)]
pub(super) struct CheckpointRoot {
    pub(super) number: u64,
    pub(super) tables: BTreeMap<String, Tree>,
}

/// The pages of a file, and a count of damaged ones.
#[derive(Debug)]
pub(super) struct Pages<'f> {
    file: &'f dyn File,
    bytes: u64,
    patience: u64,
    /// Repaired pages by number; `None` if a page has more than one wrong bit.
    tried: BTreeMap<u64, Option<Vec<u8>>>,
    /// Unreadable pages, counted at every visit.
    pub(super) lost: u64,
}

impl<'f> Pages<'f> {
    pub(super) fn of(file: &'f dyn File) -> Result<Self, StoreError> {
        Ok(Self {
            file,
            bytes: file.bytes().map_err(unread)?,
            patience: PATIENCE,
            tried: BTreeMap::new(),
            lost: 0,
        })
    }

    /// Whether both of the last two commits are readable and the older one is marked as primary.
    pub(super) fn is_older_primary(&self) -> Result<bool, StoreError> {
        let slots = self.slots()?;
        let mut numbers = slots.iter().map(|(number, _)| number);
        Ok(numbers
            .next()
            .zip(numbers.next())
            .is_some_and(|(primary, other)| primary < other))
    }

    /// Marks the other of the last two commits as primary.
    pub(super) fn change_primary(&self) -> Result<(), StoreError> {
        let mut flags = [0];
        let changed = read_full(self.file, &mut flags, GOD_BYTE as u64)
            .and_then(|_| write_all(self.file, &[flags[0] ^ PRIMARY], GOD_BYTE as u64))
            .and_then(|()| self.file.sync());
        changed.map_err(|error| StoreError::io("change the header of", FILE, error))
    }

    /// The readable ones of the last two commits, the primary one first.
    pub(super) fn commits(&mut self) -> Result<Vec<CheckpointRoot>, StoreError> {
        let mut commits = Vec::new();
        for (number, root) in self.slots()? {
            let tables = match root {
                Some(root) => self.tables(root)?,
                None => BTreeMap::new(),
            };
            commits.push(CheckpointRoot { number, tables });
        }
        Ok(commits)
    }

    /// Number and root of the readable ones of the last two commits, the primary one first.
    fn slots(&self) -> Result<Vec<(u64, Option<Tree>)>, StoreError> {
        let mut header = [0; SLOTS.end];
        read_full(self.file, &mut header, 0).map_err(unread)?;
        let is_second = header[GOD_BYTE] & PRIMARY != 0;
        let mut slots: Vec<_> = header[SLOTS].chunks_exact_mut(SLOT).collect();
        if is_second {
            slots.reverse();
        }
        Ok(slots.into_iter().filter_map(read_slot).collect())
    }

    fn tables(&mut self, root: Tree) -> Result<BTreeMap<String, Tree>, StoreError> {
        let mut tables = BTreeMap::new();
        let widths = Widths {
            key: None,
            value: None,
        };
        self.walk(root, widths, &mut |step| {
            if let PageVisit::Row(name, definition) = step
                && let Ok(name) = std::str::from_utf8(name)
                && let Some(tree) = definition.get(9..).and_then(read_tree)
            {
                tables.insert(name.to_owned(), tree);
            }
            Ok(())
        })?;
        Ok(tables)
    }

    /// Calls `visit` for every row of a tree in key order, and for every place where rows are missing.
    ///
    /// # Errors
    ///
    /// Errors of reading the file and of `visit`.
    pub(super) fn walk(
        &mut self,
        tree: Tree,
        widths: Widths,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        self.descend(tree, widths, (DEPTH, true), visit)
    }

    fn descend(
        &mut self,
        tree: Tree,
        widths: Widths,
        (depth, is_below_proven): (u32, bool),
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        let (page, is_proven) = self.page(tree, widths)?;
        if !is_proven {
            self.lost += 1;
        }
        let is_leaf = page.first() == Some(&LEAF);
        if is_proven
            && is_leaf
            && let Some(rows) = leaf(&page, widths)
        {
            return rows
                .into_iter()
                .try_for_each(|(key, value)| visit(PageVisit::Row(&page[key], &page[value])));
        }
        // Children of an unverified page are followed only if its parent is verified.
        let may_follow = depth > 0 && (is_proven || is_below_proven) && !is_leaf;
        match children(&page).filter(|_| may_follow) {
            Some(children) => children
                .into_iter()
                .try_for_each(|child| self.descend(child, widths, (depth - 1, is_proven), visit)),
            None => visit(PageVisit::Lost),
        }
    }

    /// The content of a page, and whether its checksum is correct.
    fn page(&mut self, tree: Tree, widths: Widths) -> Result<(Vec<u8>, bool), StoreError> {
        if let Some(Some(page)) = self.tried.get(&tree.page) {
            let is_proven = is_whole(page, tree.checksum, widths);
            return Ok((page.clone(), is_proven));
        }
        let Some(place) = self.place(tree.page) else {
            return Ok((Vec::new(), false));
        };
        let bytes = usize::try_from(place.end - place.start).unwrap_or(usize::MAX);
        let mut page = vec![0; bytes];
        let read = read_full(self.file, &mut page, place.start).map_err(unread)?;
        page.truncate(read);
        if is_whole(&page, tree.checksum, widths) {
            return Ok((page, true));
        }
        let is_mended =
            !self.tried.contains_key(&tree.page) && self.mend(&mut page, tree.checksum, widths);
        self.tried
            .insert(tree.page, is_mended.then(|| page.clone()));
        Ok((page, is_mended))
    }

    /// The byte range of a page; `None` if the file is too short.
    fn place(&self, page: u64) -> Option<Range<u64>> {
        let order = page >> 59;
        let bytes = PAGE.checked_shl(u32::try_from(order).ok()?)?;
        let region = (page >> 20) & INDEX;
        let start = PAGE * (1 + region * REGION_PAGES) + (page & (INDEX >> order)) * bytes;
        let end = start.checked_add(bytes)?;
        (end <= self.bytes).then_some(start..end)
    }

    /// Searches for a single wrong bit and corrects it.
    fn mend(&mut self, page: &mut [u8], checksum: u128, widths: Widths) -> bool {
        if page.len() > MENDABLE {
            return false;
        }
        for bit in 0..page.len() * 8 {
            page[bit / 8] ^= 1 << (bit % 8);
            // A bit outside the checksum's range cannot make the page valid.
            let covered = content(page, widths).filter(|content| bit / 8 < content.len());
            if let Some(content) = covered {
                let Some(left) = self.patience.checked_sub(content.len() as u64) else {
                    return false;
                };
                self.patience = left;
                if XxHash3_128::oneshot(content) == checksum {
                    return true;
                }
            }
            page[bit / 8] ^= 1 << (bit % 8);
        }
        false
    }

    /// Number of repaired pages.
    pub(super) fn mended(&self) -> u64 {
        self.tried.values().flatten().count() as u64
    }
}

fn unread(error: std::io::Error) -> StoreError {
    StoreError::io("read", FILE, error)
}

/// Number and table root of a commit slot (no root before the first row); `None` if more than one bit is wrong.
fn read_slot(slot: &mut [u8]) -> Option<(u64, Option<Tree>)> {
    let (content, checksum) = slot.split_at_mut(SLOT - CHECKSUM);
    let checksum = u128::from_le_bytes(checksum.first_chunk().copied()?);
    let is_whole = |content: &[u8]| (XxHash3_128::oneshot(content) ^ checksum).count_ones() <= 1;
    if !is_whole(content) {
        let mut bits = 0..content.len() * 8;
        bits.find(|bit| {
            content[bit / 8] ^= 1 << (bit % 8);
            let found = is_whole(content);
            if !found {
                content[bit / 8] ^= 1 << (bit % 8);
            }
            found
        })?;
    }
    let number = u64::from_le_bytes(content.last_chunk().copied()?);
    let root = if content[1] == 0 {
        None
    } else {
        Some(tree_at(&content[8..])?)
    };
    Some((number, root))
}

/// Decodes an optional root: a byte that says whether it exists, then the root.
fn read_tree(bytes: &[u8]) -> Option<Tree> {
    let (is_there, tree) = bytes.split_first()?;
    (*is_there != 0).then(|| tree_at(tree)).flatten()
}

fn tree_at(bytes: &[u8]) -> Option<Tree> {
    let (page, checksum) = bytes.split_first_chunk()?;
    Some(Tree {
        page: u64::from_le_bytes(*page),
        checksum: u128::from_le_bytes(checksum.first_chunk().copied()?),
    })
}

fn is_whole(page: &[u8], checksum: u128, widths: Widths) -> bool {
    content(page, widths).is_some_and(|content| XxHash3_128::oneshot(content) == checksum)
}

/// The part of a page that its checksum covers.
fn content(page: &[u8], widths: Widths) -> Option<&[u8]> {
    let count = count(page)?;
    let last = count.checked_sub(1)?;
    let end = match page[0] {
        LEAF => Leaf {
            page,
            count,
            widths,
        }
        .value_end(last)?,
        BRANCH => {
            let links = 8 + (CHECKSUM + 8) * (count + 1);
            match widths.key {
                Some(width) => links + width * count,
                None => number(page, links + 4 * last)?,
            }
        }
        _ => return None,
    };
    page.get(..end)
}

/// Number of rows of a leaf, or of keys of a branch.
fn count(page: &[u8]) -> Option<usize> {
    let count = page.get(2..4)?.first_chunk().copied()?;
    Some(u16::from_le_bytes(count).into())
}

fn number(page: &[u8], at: usize) -> Option<usize> {
    let bytes = page.get(at..)?.first_chunk().copied()?;
    usize::try_from(u32::from_le_bytes(bytes)).ok()
}

/// Positions of the rows of a leaf.
struct Leaf<'p> {
    page: &'p [u8],
    count: usize,
    widths: Widths,
}

impl Leaf<'_> {
    fn keys(&self) -> usize {
        let ends =
            usize::from(self.widths.key.is_none()) + usize::from(self.widths.value.is_none());
        4 + 4 * self.count * ends
    }

    fn key_end(&self, row: usize) -> Option<usize> {
        match self.widths.key {
            Some(width) => Some(self.keys() + width * (row + 1)),
            None => number(self.page, 4 + 4 * row),
        }
    }

    fn value_end(&self, row: usize) -> Option<usize> {
        if let Some(width) = self.widths.value {
            return Some(self.key_end(self.count.checked_sub(1)?)? + width * (row + 1));
        }
        let ends = 4 + 4 * self.count * usize::from(self.widths.key.is_none());
        number(self.page, ends + 4 * row)
    }
}

type Row = (Range<usize>, Range<usize>);

fn leaf(page: &[u8], widths: Widths) -> Option<Vec<Row>> {
    let count = count(page)?;
    let leaf = Leaf {
        page,
        count,
        widths,
    };
    let (mut key, mut value) = (leaf.keys(), leaf.key_end(count.checked_sub(1)?)?);
    let mut rows = Vec::with_capacity(count);
    for row in 0..count {
        let (key_end, value_end) = (leaf.key_end(row)?, leaf.value_end(row)?);
        page.get(key..key_end).zip(page.get(value..value_end))?;
        rows.push((key..key_end, value..value_end));
        (key, value) = (key_end, value_end);
    }
    Some(rows)
}

fn children(page: &[u8]) -> Option<Vec<Tree>> {
    let count = count(page)? + 1;
    let mut checksums = RecordReader(page.get(8..)?);
    let mut pages = RecordReader(page.get(8 + CHECKSUM * count..)?);
    let mut children = Vec::with_capacity(count);
    for _ in 0..count {
        let checksum = checksums.take(CHECKSUM).ok()?.first_chunk().copied()?;
        children.push(Tree {
            page: pages.u64().ok()?,
            checksum: u128::from_le_bytes(checksum),
        });
    }
    Some(children)
}
