//! A simulated disk in memory that loses power as real disks do.
//!
//! Unsynced data may be lost, in any order of sectors, also a part of a sector. Unsynced names may be lost, the
//! latest first. Calls fail, writes are incomplete, and the space runs out. Everything is determined by the seed.

mod calls;
mod random;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use self::random::Random;

const SECTOR: usize = 512;

/// Faults besides power losses; none by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// One of this many writes is incomplete; 0: none.
    pub short_write_one_in: u64,
    /// One of this many writes fails; 0: none.
    pub write_error_one_in: u64,
    /// One of this many syncs fails and loses its data; 0: none.
    pub sync_error_one_in: u64,
    /// Room for files, in bytes; 0 is no limit.
    pub capacity_bytes: u64,
}

/// A simulated disk, or a folder of one. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct Disk {
    state: Arc<Mutex<State>>,
    /// Path of the folder, with a slash behind each name; empty for the outermost.
    folder: String,
}

#[derive(Clone, Debug)]
struct State {
    random: Random,
    faults: Faults,
    /// Calls until the power goes.
    fuse: Option<u64>,
    /// Calls that change something until it does.
    change_fuse: Option<u64>,
    is_off: bool,
    is_claimed: bool,
    folders: BTreeMap<String, Names>,
    bodies: Vec<Body>,
    syncs: u64,
}

/// The files of one folder.
#[derive(Clone, Debug)]
struct Names {
    now: BTreeMap<String, usize>,
    /// As they were at the last sync, and after each change since.
    old: Vec<BTreeMap<String, usize>>,
}

/// One file's content.
#[derive(Clone, Debug, Default)]
struct Body {
    /// The content that readers see.
    now: Vec<u8>,
    /// The content that would survive a power loss.
    safe: Vec<u8>,
    /// Contents of sectors since they were last safe, oldest first.
    dirty: BTreeMap<usize, Vec<Vec<u8>>>,
    /// The shortest that it was since it was last safe.
    cut: Option<usize>,
    /// Whether reads fail.
    is_unreadable: bool,
}

impl Disk {
    /// An empty disk.
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self::outermost(State {
            random: Random(seed),
            faults,
            fuse: None,
            change_fuse: None,
            is_off: false,
            is_claimed: false,
            folders: BTreeMap::from([(String::new(), Names::default())]),
            bodies: Vec::new(),
            syncs: 0,
        })
    }

    fn outermost(state: State) -> Self {
        Self {
            state: Arc::new(Mutex::new(state)),
            folder: String::new(),
        }
    }

    /// Lets the power go in the `calls`-th call from now.
    pub fn cut_after(&self, calls: u64) {
        self.lock().fuse = Some(calls);
    }

    /// Lets the power go in the `changes`-th call from now that may change something on the disk: between two of them
    /// it makes no difference when it goes.
    pub fn cut_after_changes(&self, changes: u64) {
        self.lock().change_fuse = Some(changes);
    }

    /// Sets a new seed for random events.
    pub fn reseed(&self, seed: u64) {
        self.lock().random = Random(seed);
    }

    /// Sets the faults from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    /// Whether the power is gone: every call fails.
    pub fn is_off(&self) -> bool {
        self.lock().is_off
    }

    /// Successful syncs of files so far.
    pub fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    /// The disk after a power loss, with a random part of the unsynced data. This one is off.
    #[must_use]
    pub fn after_power_cut(&self) -> Self {
        let mut state = self.successor();
        state.lose_unsynced();
        Self::outermost(state)
    }

    /// The disk after the death of the process: everything written is still there to be read,
    /// whether it is safe or not. This one is off.
    #[must_use]
    pub fn after_kill(&self) -> Self {
        Self::outermost(self.successor())
    }

    /// Bytes of all files.
    pub fn used_bytes(&self) -> u64 {
        self.lock().used_bytes()
    }

    /// A copy of the content of a file, named from here with slashes.
    pub fn content(&self, path: &str) -> Option<Vec<u8>> {
        let state = self.lock();
        let body = state.find(&self.folder, path)?;
        Some(state.bodies[body].now.clone())
    }

    /// Changes a file without a call, as a failing disk does; its content counts as safe.
    pub fn corrupt(&self, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.lock();
        if let Some(body) = state.find(&self.folder, path) {
            let body = &mut state.bodies[body];
            change(&mut body.now);
            body.safe.clone_from(&body.now);
            body.dirty.clear();
        }
    }

    /// From now on reads of a file fail.
    pub fn make_unreadable(&self, path: &str) {
        let mut state = self.lock();
        if let Some(body) = state.find(&self.folder, path) {
            state.bodies[body].is_unreadable = true;
        }
    }

    fn successor(&self) -> State {
        let mut state = self.lock();
        let mut next = state.clone();
        state.is_off = true;
        next.is_off = false;
        next.fuse = None;
        next.change_fuse = None;
        next.is_claimed = false;
        next
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.lock();
        state.burn();
        if state.is_off {
            return Err(io::Error::other("the power is off"));
        }
        Ok(state)
    }

    /// A call that may change something on the disk.
    fn change(&self) -> io::Result<MutexGuard<'_, State>> {
        self.lock().burn_change();
        self.call()
    }
}

impl State {
    fn burn(&mut self) {
        self.is_off |= is_burnt(&mut self.fuse);
    }

    fn burn_change(&mut self) {
        self.is_off |= is_burnt(&mut self.change_fuse);
    }

    fn one_in(&mut self, odds: u64) -> bool {
        odds > 0 && self.random.below(odds) == 0
    }

    fn used_bytes(&self) -> u64 {
        let held = self.folders.values().flat_map(|names| names.now.values());
        held.map(|&body| self.bodies[body].now.len() as u64).sum()
    }

    fn has_room(&self, bytes: u64) -> bool {
        let capacity = self.faults.capacity_bytes;
        capacity == 0 || self.used_bytes() + bytes <= capacity
    }

    fn names(&mut self, folder: &str) -> io::Result<&mut Names> {
        self.folders
            .get_mut(folder)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn find(&self, folder: &str, path: &str) -> Option<usize> {
        let path = format!("{folder}{path}");
        let name = path.rfind('/').map_or(0, |slash| slash + 1);
        let names = self.folders.get(&path[..name])?;
        names.now.get(&path[name..]).copied()
    }

    fn lose_unsynced(&mut self) {
        for names in self.folders.values_mut() {
            let survived = self.random.below(names.old.len() as u64);
            names.now = names.old.swap_remove(index(survived));
            names.old = vec![names.now.clone()];
        }
        for body in &mut self.bodies {
            body.lose_unsynced(&mut self.random);
        }
    }
}

impl Default for Names {
    fn default() -> Self {
        let now = BTreeMap::new();
        let old = vec![now.clone()];
        Self { now, old }
    }
}

impl Names {
    fn change(&mut self, change: impl FnOnce(&mut BTreeMap<String, usize>)) {
        change(&mut self.now);
        self.old.push(self.now.clone());
    }
}

impl Body {
    fn write(&mut self, bytes: &[u8], offset: usize) {
        let end = offset + bytes.len();
        if self.now.len() < end {
            self.now.resize(end, 0);
        }
        self.now[offset..end].copy_from_slice(bytes);
        for sector in offset / SECTOR..end.div_ceil(SECTOR) {
            let content = sector_of(&self.now, sector).to_vec();
            self.dirty.entry(sector).or_default().push(content);
        }
    }

    /// Whether this part of a sector has other bytes than zeros, or may have them after a power loss.
    fn may_show(&self, part: std::ops::Range<usize>) -> bool {
        let shows = |content: &[u8]| {
            let end = part.end.min(content.len());
            content[part.start.min(end)..end]
                .iter()
                .any(|&byte| byte != 0)
        };
        shows(&self.now) || shows(&self.safe) || self.dirty.contains_key(&(part.start / SECTOR))
    }

    fn sync(&mut self) {
        if let Some(cut) = self.cut.take() {
            self.safe.truncate(cut);
        }
        self.safe.resize(self.now.len(), 0);
        for (sector, versions) in std::mem::take(&mut self.dirty) {
            if let Some(content) = versions.last() {
                let start = sector * SECTOR;
                let kept = content.len().min(self.safe.len().saturating_sub(start));
                self.safe[start..start + kept].copy_from_slice(&content[..kept]);
            }
        }
    }

    /// A failed sync discards some of the data that it should have saved, which is not written again.
    fn fail_sync(&mut self, random: &mut Random) {
        self.dirty.retain(|_, _| random.below(2) == 0);
    }

    fn lose_unsynced(&mut self, random: &mut Random) {
        let mut survived = std::mem::take(&mut self.safe);
        if random.below(2) == 0 {
            survived.resize(self.now.len(), 0);
        }
        for (sector, versions) in std::mem::take(&mut self.dirty) {
            let start = sector * SECTOR;
            let chosen = index(random.below(versions.len() as u64 + 1));
            let Some(version) = chosen.checked_sub(1).map(|chosen| &versions[chosen]) else {
                continue;
            };
            let torn = if random.below(8) == 0 {
                random.below(SECTOR as u64)
            } else {
                SECTOR as u64
            };
            let room = survived.len().saturating_sub(start);
            let kept = version.len().min(index(torn)).min(room);
            if kept > 0 {
                survived[start..start + kept].copy_from_slice(&version[..kept]);
            }
        }
        self.now.clone_from(&survived);
        self.safe = survived;
    }
}

fn is_burnt(fuse: &mut Option<u64>) -> bool {
    fuse.as_mut().is_some_and(|left| {
        *left = left.saturating_sub(1);
        *left == 0
    })
}

fn sector_of(content: &[u8], sector: usize) -> &[u8] {
    let start = sector * SECTOR;
    &content[start..content.len().min(start + SECTOR)]
}

fn index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
