//! Reads the pages of a redb file without redb, which opens no file that has a damaged page.
//!
//! Only pages whose checksum is right are believed. The checksum of a page (XXH3, 128 bits) stands in the
//! page above it, that of a tree's root in the commit slot or in the tree of all tables. So a damaged page of
//! rows costs these rows alone, and below a damaged branch each page still proves itself. A single wrong bit
//! costs nothing: it is found by trying all of them. The format is version 3 of redb, `docs/design.md` there.

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
/// Flags of the file, which no checksum covers.
const GOD_BYTE: usize = 9;
/// The second slot has the commit that counts.
const PRIMARY: u8 = 1;
const SLOTS: Range<usize> = 64..320;
const SLOT: usize = 128;
const CHECKSUM: usize = 16;
const LEAF: u8 = 1;
const BRANCH: u8 = 2;
/// No tree is deeper.
const DEPTH: u32 = 64;
/// Larger pages are not tried bit by bit.
const MENDABLE: usize = 64 * 1_024;
/// Bytes that are hashed at most in trying: about a minute.
const PATIENCE: u64 = 512 << 30;

/// The root of a tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree {
    page: u64,
    checksum: u128,
}

/// Bytes of each key and of each value, where all of a table have the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Widths {
    pub(super) key: Option<usize>,
    pub(super) value: Option<usize>,
}

/// What a walk comes upon, in the order of the keys.
pub(super) enum PageVisit<'p> {
    /// Key and value, encoded.
    Row(&'p [u8], &'p [u8]),
    /// A page that cannot be read: rows are missing here.
    Lost,
}

type Visit<'v> = dyn FnMut(PageVisit<'_>) -> Result<(), StoreError> + 'v;

/// A commit, by its number, and its tables by name.
#[derive(Debug)]
pub(super) struct CheckpointRoot {
    pub(super) number: u64,
    pub(super) tables: BTreeMap<String, Tree>,
}

/// The pages of a file, and how many of them were damaged.
#[derive(Debug)]
pub(super) struct Pages<'f> {
    file: &'f dyn File,
    bytes: u64,
    patience: u64,
    /// Pages of which one bit was wrong, righted, by their number; `None` of which more was.
    tried: BTreeMap<u64, Option<Vec<u8>>>,
    /// Pages that cannot be read, each time that one was come upon.
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

    /// Whether both of the two last commits can be found, and the file says that the older one counts.
    pub(super) fn is_older_primary(&self) -> Result<bool, StoreError> {
        let slots = self.slots()?;
        let mut numbers = slots.iter().map(|(number, _)| number);
        Ok(numbers
            .next()
            .zip(numbers.next())
            .is_some_and(|(primary, other)| primary < other))
    }

    /// Makes the other one of the two last commits the one that counts.
    pub(super) fn change_primary(&self) -> Result<(), StoreError> {
        let mut flags = [0];
        let changed = read_full(self.file, &mut flags, GOD_BYTE as u64)
            .and_then(|_| write_all(self.file, &[flags[0] ^ PRIMARY], GOD_BYTE as u64))
            .and_then(|()| self.file.sync());
        changed.map_err(|error| StoreError::io("change the header of", FILE, error))
    }

    /// The two last commits, as far as they can be read; the file says that the first of them counts.
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

    /// Number and root of the two last commits, as far as they can be found, that first which counts.
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

    /// Hands every row of a tree to `visit`, in the order of their keys, and says where some are missing.
    ///
    /// # Errors
    ///
    /// Those of reading the file, and what `visit` returns.
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
        // What a page says of others that is no branch any more is not followed further.
        let may_follow = depth > 0 && (is_proven || is_below_proven) && !is_leaf;
        match children(&page).filter(|_| may_follow) {
            Some(children) => children
                .into_iter()
                .try_for_each(|child| self.descend(child, widths, (depth - 1, is_proven), visit)),
            None => visit(PageVisit::Lost),
        }
    }

    /// The content of a page, and whether it is what was written.
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

    /// Where a page is; `None` if the file ends before its end.
    fn place(&self, page: u64) -> Option<Range<u64>> {
        let order = page >> 59;
        let bytes = PAGE.checked_shl(u32::try_from(order).ok()?)?;
        let region = (page >> 20) & INDEX;
        let start = PAGE * (1 + region * REGION_PAGES) + (page & (INDEX >> order)) * bytes;
        let end = start.checked_add(bytes)?;
        (end <= self.bytes).then_some(start..end)
    }

    /// Looks for the one bit that is wrong, and rights it.
    fn mend(&mut self, page: &mut [u8], checksum: u128, widths: Widths) -> bool {
        if page.len() > MENDABLE {
            return false;
        }
        for bit in 0..page.len() * 8 {
            page[bit / 8] ^= 1 << (bit % 8);
            // What the checksum does not cover makes no page whole.
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

    /// Pages of which one bit was righted.
    pub(super) fn mended(&self) -> u64 {
        self.tried.values().flatten().count() as u64
    }
}

fn unread(error: std::io::Error) -> StoreError {
    StoreError::io("read", FILE, error)
}

/// Number of a commit and the tree of its tables, `None` before the first row; nothing if more than a bit of
/// it is wrong.
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

/// A root behind a byte that says whether there is one.
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

/// What of a page its checksum is of.
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

/// Rows of a leaf, keys of a branch.
fn count(page: &[u8]) -> Option<usize> {
    let count = page.get(2..4)?.first_chunk().copied()?;
    Some(u16::from_le_bytes(count).into())
}

fn number(page: &[u8], at: usize) -> Option<usize> {
    let bytes = page.get(at..)?.first_chunk().copied()?;
    usize::try_from(u32::from_le_bytes(bytes)).ok()
}

/// Where the rows of a leaf are.
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
