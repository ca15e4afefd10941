//! A disk in memory that does what disks do when the power goes.
//!
//! What is not synced may be lost, in any order, sector by sector, and torn inside of a sector;
//! names that are not synced may be lost from the last one back. Calls fail, writes come up
//! short, and the room ends. Everything follows from the seed.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::files::{Access, Claim, File, Files, Space};

const SECTOR: usize = 512;

/// What goes wrong, besides the power; nothing by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// One of so many writes comes up short; 0 is none.
    pub short_write_one_in: u64,
    /// One of so many writes fails; 0 is none.
    pub write_error_one_in: u64,
    /// One of so many syncs fails, and loses what it should have saved; 0 is none.
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
    /// What every reader sees.
    now: Vec<u8>,
    /// What would survive.
    safe: Vec<u8>,
    /// Contents of sectors since they were last safe, oldest first.
    dirty: BTreeMap<usize, Vec<Vec<u8>>>,
    /// The shortest that it was since it was last safe.
    cut: Option<usize>,
}

impl Disk {
    /// An empty disk.
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self::outermost(State {
            random: Random(seed),
            faults,
            fuse: None,
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

    /// Changes what goes wrong from now on.
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

    /// The disk after a power cut: of what was not synced, some has survived. This one is off.
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

    /// Changes a file behind everybody's back, as a failing disk does; what it holds is safe.
    pub fn corrupt(&self, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.lock();
        if let Some(body) = state.find(&self.folder, path) {
            let body = &mut state.bodies[body];
            change(&mut body.now);
            body.safe.clone_from(&body.now);
            body.dirty.clear();
        }
    }

    fn successor(&self) -> State {
        let mut state = self.lock();
        let mut next = state.clone();
        state.is_off = true;
        next.is_off = false;
        next.fuse = None;
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
}

impl State {
    fn burn(&mut self) {
        if let Some(fuse) = &mut self.fuse {
            *fuse = fuse.saturating_sub(1);
            self.is_off |= *fuse == 0;
        }
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

    /// Whether something else than zeros is in this part of a sector, or could come back there.
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

    /// A failed sync forgets some of what it should have saved: nobody will try again.
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

impl Files for Disk {
    fn create(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn File>> {
        let mut state = self.call()?;
        if state.names(&self.folder)?.now.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if !state.has_room(bytes) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let body = state.bodies.len();
        state.bodies.push(Body {
            now: vec![0; index(bytes)],
            ..Body::default()
        });
        state.names(&self.folder)?.change(|names| {
            names.insert(name.to_owned(), body);
        });
        drop(state);
        Ok(Arc::new(Opened {
            disk: self.clone(),
            body,
        }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let state = self.call()?;
        let body = state.find(&self.folder, name);
        drop(state);
        let body = body.ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(Opened {
            disk: self.clone(),
            body,
        }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.call()?;
        let body = state.find(&self.folder, from);
        let body = body.ok_or(io::ErrorKind::NotFound)?;
        state.names(&self.folder)?.change(|names| {
            names.remove(from);
            names.insert(to.to_owned(), body);
        });
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.call()?;
        if state.find(&self.folder, name).is_none() {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.names(&self.folder)?.change(|names| {
            names.remove(name);
        });
        Ok(())
    }

    fn folder(&self, name: &str, _: Access) -> io::Result<Arc<dyn Files>> {
        let folder = format!("{}{name}/", self.folder);
        self.call()?.folders.entry(folder.clone()).or_default();
        let state = Arc::clone(&self.state);
        Ok(Arc::new(Self { state, folder }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut state = self.call()?;
        let mut names: Vec<String> = state.names(&self.folder)?.now.keys().cloned().collect();
        let inner = state.folders.keys();
        let inner = inner.filter_map(|path| path.strip_prefix(&self.folder)?.strip_suffix('/'));
        names.extend(inner.filter(|name| !name.contains('/')).map(str::to_owned));
        names.sort_unstable();
        Ok(names)
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut state = self.call()?;
        let names = state.names(&self.folder)?;
        names.old = vec![names.now.clone()];
        Ok(())
    }

    fn space(&self) -> io::Result<Space> {
        let state = self.call()?;
        let total_bytes = match state.faults.capacity_bytes {
            0 => u64::MAX,
            bytes => bytes,
        };
        let free_bytes = total_bytes.saturating_sub(state.used_bytes());
        Ok(Space {
            free_bytes,
            total_bytes,
        })
    }

    fn claim(&self) -> io::Result<Claim> {
        let mut state = self.call()?;
        if std::mem::replace(&mut state.is_claimed, true) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        drop(state);
        Ok(Claim(Box::new(Claimed(self.clone()))))
    }
}

#[derive(Debug)]
struct Claimed(Disk);

impl Drop for Claimed {
    fn drop(&mut self) {
        self.0.lock().is_claimed = false;
    }
}

/// A file of a [`Disk`] that is open.
#[derive(Debug)]
struct Opened {
    disk: Disk,
    body: usize,
}

impl File for Opened {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.disk.call()?;
        let content = &state.bodies[self.body].now;
        let rest = content.get(index(offset)..).unwrap_or_default();
        let read = rest.len().min(buffer.len());
        buffer[..read].copy_from_slice(&rest[..read]);
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        // The power may go in the middle of it.
        let mut state = self.disk.lock();
        let was_off = state.is_off;
        state.burn();
        let goes_off = state.is_off && !was_off;
        if was_off {
            return Err(io::Error::other("the power is off"));
        }
        let faults = state.faults;
        if state.one_in(faults.write_error_one_in) {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        let is_short = goes_off || state.one_in(faults.short_write_one_in);
        let part = if is_short {
            index(state.random.below(bytes.len() as u64) + 1)
        } else {
            bytes.len()
        };
        let grows = (offset + part as u64).saturating_sub(state.bodies[self.body].now.len() as u64);
        if grows > 0 && !state.has_room(grows) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.bodies[self.body].write(&bytes[..part], index(offset));
        if goes_off {
            return Err(io::Error::other("the power went off"));
        }
        Ok(part)
    }

    fn zero(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let mut state = self.disk.call()?;
        let body = &mut state.bodies[self.body];
        let (mut at, end) = (index(offset), index(offset + bytes).min(body.now.len()));
        while at < end {
            let step = (SECTOR - at % SECTOR).min(end - at);
            if body.may_show(at..at + step) {
                body.write(&[0; SECTOR][..step], at);
            }
            at += step;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.call()?;
        let odds = state.faults.sync_error_one_in;
        let fails = state.one_in(odds);
        let State { bodies, random, .. } = &mut *state;
        let body = &mut bodies[self.body];
        if fails {
            body.fail_sync(random);
            return Err(io::Error::from_raw_os_error(EIO));
        }
        body.sync();
        state.syncs += 1;
        Ok(())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.disk.call()?;
        let body = &mut state.bodies[self.body];
        if index(bytes) < body.now.len() {
            body.cut = Some(body.cut.map_or(index(bytes), |cut| cut.min(index(bytes))));
        }
        body.now.resize(index(bytes), 0);
        body.dirty
            .retain(|&sector, _| ((sector * SECTOR) as u64) < bytes);
        Ok(())
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.disk.call()?.bodies[self.body].now.len() as u64)
    }
}

const EIO: i32 = 5;

fn sector_of(content: &[u8], sector: usize) -> &[u8] {
    let start = sector * SECTOR;
    &content[start..content.len().min(start + SECTOR)]
}

fn index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// SplitMix64: small, seeded, good enough to choose faults.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`; 0 below 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { self.draw() % limit }
    }
}
