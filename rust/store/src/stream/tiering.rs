//! Moves sealed files to object storage.
//!
//! The order for each file: object, its verification, the local index, the index in the store, the local index without
//! the file, removal of the file. So after a crash at any point each row is in a file or an object that an index names.
//! An object is removed after the grace since the index in the store does not name it any more.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, TryLockError};
use std::time::Duration;

use crate::error::StoreError;
use crate::stream::manifest::{self, ALIASES, SEALED, Sealed, SealedFile};
use crate::stream::sealing::remove_due;
use crate::stream::streams::{Stream, Streams, lock};
use crate::stream::tier::{StreamTier, TierReport, TierState};
use crate::stream::tier_owner;
use crate::stream::upload::{NotUploaded, upload};

impl Streams {
    /// Numbers of the streams that use object storage.
    pub(crate) fn tiered(&self) -> Vec<usize> {
        let streams = self.list.iter().enumerate();
        streams
            .filter_map(|(number, stream)| stream.tier.is_some().then_some(number))
            .collect()
    }

    /// Uploads the files of a stream that are due, and removes what is not needed any more, as of `now_us` of kept time.
    /// Blocks while the store answers; nobody who publishes or seals waits for it.
    ///
    /// # Errors
    ///
    /// Those of the store and of the file system; what was not done is done by the next call.
    pub(crate) fn tier(&self, number: usize, now_us: u64) -> Result<(), StoreError> {
        let stream = &self.list[number];
        let Some(tier) = &stream.tier else {
            return Ok(());
        };
        let moved = self.move_files(stream, tier, now_us);
        lock(&tier.told).1 = moved.as_ref().err().map(ToString::to_string);
        moved
    }

    /// Ends the calls to object stores that run.
    pub(crate) fn close_tiers(&self) {
        for tier in self.list.iter().filter_map(|stream| stream.tier.as_ref()) {
            tier.options.objects.close();
        }
    }

    /// Has a thread that is in a call to an object store change nothing here when the call returns. Returns the streams
    /// whose stores did not answer within `limit`, and an error for each.
    pub(crate) fn leave_tiers(&self, limit: Duration) -> Vec<(String, StoreError)> {
        let work = self.lock_work();
        // ORDERING: written and read under the lock.
        self.are_tiers_left.store(true, Ordering::Relaxed);
        drop(work);
        let mut left = Vec::new();
        for stream in &self.list {
            let Some(tier) = &stream.tier else {
                continue;
            };
            // Its thread keeps it locked while it moves the files of the stream.
            if matches!(tier.state.try_lock(), Err(TryLockError::WouldBlock)) {
                let seconds = limit.as_secs();
                let text = format!(
                    "the broker stops, and a call did not end within {seconds} s: it is not waited for. The next start \
                     goes on"
                );
                let error = io::Error::new(io::ErrorKind::TimedOut, text);
                let error = tier.failed("use", "data", error);
                left.push((stream.identity.name.clone(), error));
            }
        }
        left
    }

    /// Locks `work` for a change by the thread that uploads; `None` if a stop did not wait for it: another process may
    /// have the folder by now.
    fn lock_tier_work(&self) -> Option<MutexGuard<'_, ()>> {
        let work = self.lock_work();
        // ORDERING: written and read under the lock.
        (!self.are_tiers_left.load(Ordering::Relaxed)).then_some(work)
    }

    /// Status of the object storage of each stream that has it, for operators.
    pub fn tier_reports(&self) -> Vec<TierReport> {
        self.list.iter().filter_map(Stream::tier_report).collect()
    }

    /// The name of a stream.
    pub(crate) fn name_of(&self, number: usize) -> &str {
        &self.list[number].identity.name
    }

    fn move_files(
        &self,
        stream: &Stream,
        tier: &StreamTier,
        now_us: u64,
    ) -> Result<(), StoreError> {
        let mut state = lock(&tier.state);
        if state.published.is_none() {
            *state = contact(stream, tier, now_us)?;
        }
        // What can be done is done; the first problem is told.
        let uploaded = self.upload_due(stream, tier, &mut state, now_us);
        let moved = publish(stream, tier, &mut state, now_us)
            .and_then(|()| remove_objects(tier, &mut state, now_us))
            .and_then(|()| self.let_go_of_files(stream, tier, &state, now_us));
        uploaded.and(moved)
    }

    /// Uploads the files that are due, until the store fails, and notes their objects in the local index.
    fn upload_due(
        &self,
        stream: &Stream,
        tier: &StreamTier,
        state: &mut TierState,
        now_us: u64,
    ) -> Result<(), StoreError> {
        let due = due(stream, tier, now_us, self.limits().merged_bytes);
        if due.is_empty() {
            return Ok(());
        }
        tier_owner::check(tier, &stream.identity)?;
        let (mut told, mut is_marked) = (Ok(()), false);
        for (partition, file) in due {
            let folder = lock(&stream.partitions[partition]).history.folder();
            let (error, goes_on) = match upload(tier, &*folder, &file) {
                Ok(object) => {
                    lock(&tier.told).0 += file.bytes;
                    // An interrupted upload may have left the object, without a name in an index.
                    state.to_remove.retain(|(name, _)| *name != object);
                    state.known.insert(object.clone());
                    let note = |noted: &mut SealedFile| noted.object = Some(object);
                    is_marked |= self.with_file(stream, partition, &file, note);
                    continue;
                }
                Err(NotUploaded::File(error)) => (error, true),
                Err(NotUploaded::Store(error)) => (error, false),
            };
            // A merge may have taken its name, or retention may have removed it.
            if self.with_file(stream, partition, &file, |_| ()) {
                told = told.and(Err(tier.failed("upload to", "data", error)));
            }
            if !goes_on {
                break;
            }
        }
        if is_marked && let Some(_work) = self.lock_tier_work() {
            stream.write_index()?;
        }
        told
    }

    /// Calls `act` with a file, if the stream still has exactly this one; returns whether it has.
    fn with_file(
        &self,
        stream: &Stream,
        partition: usize,
        file: &SealedFile,
        act: impl FnOnce(&mut SealedFile),
    ) -> bool {
        let _work = self.lock_work();
        let mut partition = lock(&stream.partitions[partition]);
        let mut files = partition.history.files.iter_mut();
        let same = |found: &&mut SealedFile| {
            (&found.file, found.last, found.bytes) == (&file.file, file.last, file.bytes)
        };
        files.find(same).map(act).is_some()
    }

    /// Gives up the files here that are too old or too many, if the index in the store has their objects and the store
    /// answers. Each is removed after the grace.
    fn let_go_of_files(
        &self,
        stream: &Stream,
        tier: &StreamTier,
        state: &TierState,
        now_us: u64,
    ) -> Result<(), StoreError> {
        let Some(published) = &state.published else {
            return Ok(());
        };
        let surplus = surplus(stream, published, tier, now_us);
        if !surplus.is_empty() {
            tier_owner::check(tier, &stream.identity)?;
        }
        let Some(_work) = self.lock_tier_work() else {
            return Ok(());
        };
        let is_changed = !surplus.is_empty();
        let grace_ms = u64::try_from(tier.options.grace.as_millis()).unwrap_or(u64::MAX);
        let gone_ms = (now_us / 1_000).saturating_add(grace_ms);
        for (partition, object) in surplus {
            let mut partition = lock(&stream.partitions[partition]);
            let mut files = partition.history.files.iter_mut();
            if let Some(file) = files.find(|file| file.object.as_ref() == Some(&object)) {
                file.is_remote = true;
                let name = file.file.clone();
                partition.to_remove.push((name, gone_ms));
            }
        }
        if is_changed {
            stream.write_index()?;
        }
        remove_due(stream, now_us / 1_000)
    }
}

impl Stream {
    /// Status of the stream's object storage, for operators.
    pub(super) fn tier_report(&self) -> Option<TierReport> {
        let tier = self.tier.as_ref()?;
        let count = |wanted: fn(&SealedFile) -> bool| {
            let partitions = self.partitions.iter();
            let counts = partitions.map(|partition| {
                let files = &lock(partition).history.files;
                files.iter().filter(|file| wanted(file)).count() as u64
            });
            counts.sum()
        };
        let (uploaded_bytes, problem) = lock(&tier.told).clone();
        Some(TierReport {
            url: tier.url(),
            waiting_files: count(|file| file.object.is_none()),
            remote_files: count(|file| file.is_remote),
            uploaded_bytes,
            problem,
        })
    }
}

/// Reads what the store has of a stream, and claims it.
///
/// # Errors
///
/// Those of [`tier_owner::claim`].
fn contact(stream: &Stream, tier: &StreamTier, now_us: u64) -> Result<TierState, StoreError> {
    let sealed = stream.sealed();
    let has_objects = sealed.objects().next().is_some();
    let published = tier_owner::claim(tier, &stream.identity, has_objects)?;
    let objects = tier.options.objects.list(&tier.path("data"));
    let objects = objects.map_err(|error| tier.failed("list", "data", error))?;
    let known = objects.into_iter().collect();
    let mut state = TierState {
        known,
        ..TierState::default()
    };
    schedule(&mut state, &[&published, &sealed], tier, now_us);
    state.published = Some(published);
    Ok(state)
}

/// The files to upload, oldest first: those that are not merged any more, and those that have waited for it.
fn due(
    stream: &Stream,
    tier: &StreamTier,
    now_us: u64,
    merged_bytes: u64,
) -> Vec<(usize, SealedFile)> {
    let wait_us = tier.options.upload_after.as_micros();
    let is_due = |file: &&SealedFile| {
        let sealed_us = file.sealed_us.unwrap_or(now_us);
        file.object.is_none()
            && (file.bytes >= merged_bytes
                || u128::from(now_us.saturating_sub(sealed_us)) >= wait_us)
    };
    let mut found = Vec::new();
    for (number, partition) in stream.partitions.iter().enumerate() {
        let partition = lock(partition);
        let files = partition.history.files.iter().filter(is_due);
        found.extend(files.map(|file| (number, file.clone())));
    }
    found.sort_by_key(|(number, file)| (file.sealed_us, *number, file.base));
    found
}

/// Writes the index into the store, if it has changed.
fn publish(
    stream: &Stream,
    tier: &StreamTier,
    state: &mut TierState,
    now_us: u64,
) -> Result<(), StoreError> {
    let stamp = stream.index.stamp();
    if state.stamp == Some(stamp) {
        return Ok(());
    }
    let sealed = stream.sealed();
    let old = state.published.take().unwrap_or_default();
    let new = view(&sealed, &old);
    let written = if new == old {
        Ok(())
    } else {
        write_index(stream, tier, &new)
    };
    // Of a failed write nothing is known; the old index names the objects that must stay.
    let kept = if written.is_ok() { new } else { old };
    if written.is_ok() {
        schedule(state, &[&kept, &sealed], tier, now_us);
        state.stamp = Some(stamp);
    }
    state.published = Some(kept);
    written
}

fn write_index(stream: &Stream, tier: &StreamTier, sealed: &Sealed) -> Result<(), StoreError> {
    // Another broker may have taken the objects over since.
    tier_owner::check(tier, &stream.identity)?;
    if let Some(aliases) = manifest::content(&*stream.folder, ALIASES)? {
        tier.write(ALIASES, &aliases)?;
    }
    // INVARIANT: all keys are strings.
    let text = serde_json::to_vec(sealed).expect("a value of texts, numbers and lists");
    tier.write(SEALED, &text)
}

/// The index for the store: the files of each partition that have objects, up to the first that has none. A partition
/// keeps what the store's index had if that reaches further: its objects were merged into a file that has no object yet.
fn view(sealed: &Sealed, published: &Sealed) -> Sealed {
    let mut view = Sealed {
        earliest: sealed.earliest.clone(),
        tier: sealed.tier.clone(),
        snapshot: sealed.snapshot,
        ..Sealed::default()
    };
    for (place, files) in sealed.partitions.iter().enumerate() {
        let uploaded = files.iter().take_while(|file| file.object.is_some());
        let uploaded = uploaded.map(|file| SealedFile {
            is_remote: true,
            ..file.clone()
        });
        let mut found: Vec<_> = uploaded.collect();
        let end = |files: &[SealedFile]| files.last().map_or(0, |file| file.last + 1);
        let earliest = sealed.earliest.get(place).copied().unwrap_or_default();
        if let Some(old) = published.partitions.get(place)
            && end(old) > end(&found)
        {
            let old = old.iter().filter(|file| file.last >= earliest);
            found = old.cloned().collect();
        }
        view.partitions.push(found);
    }
    view
}

/// Has the objects removed after the grace that none of `indexes` names.
fn schedule(state: &mut TierState, indexes: &[&Sealed], tier: &StreamTier, now_us: u64) {
    let named: HashSet<&str> = indexes.iter().flat_map(|sealed| sealed.objects()).collect();
    let grace_ms = u64::try_from(tier.options.grace.as_millis()).unwrap_or(u64::MAX);
    let gone_ms = (now_us / 1_000).saturating_add(grace_ms);
    let known = state.known.iter();
    let gone: Vec<String> = known
        .filter(|object| !named.contains(&***object))
        .cloned()
        .collect();
    for object in gone {
        state.known.remove(&object);
        state.to_remove.push((object, gone_ms));
    }
}

fn remove_objects(tier: &StreamTier, state: &mut TierState, now_us: u64) -> Result<(), StoreError> {
    let is_due = |(_, at_ms): &&(String, u64)| *at_ms <= now_us / 1_000;
    while let Some((object, _)) = state.to_remove.iter().find(is_due).cloned() {
        match tier.options.objects.remove(&tier.data(&object)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(tier.failed("remove", &object, error));
            }
            _ => state.to_remove.retain(|(name, _)| *name != object),
        }
    }
    Ok(())
}

/// Partition and object of the files that are not to stay here, oldest first.
fn surplus(
    stream: &Stream,
    published: &Sealed,
    tier: &StreamTier,
    now_us: u64,
) -> Vec<(usize, String)> {
    let options = &tier.options;
    if options.local_age.is_none() && options.local_bytes.is_none() {
        return Vec::new();
    }
    let mut here = Vec::new();
    for (number, partition) in stream.partitions.iter().enumerate() {
        let files = &lock(partition).history.files;
        let files = files.iter().filter(|file| !file.is_remote);
        here.extend(files.map(|file| {
            let sealed_us = file.sealed_us.unwrap_or(now_us);
            (sealed_us, number, file.bytes, file.object.clone())
        }));
    }
    here.sort_unstable();
    let published: HashSet<&str> = published.objects().collect();
    let mut bytes: u64 = here.iter().map(|(.., bytes, _)| bytes).sum();
    let mut found = Vec::new();
    for (sealed_us, number, file_bytes, object) in here {
        let age_us = u128::from(now_us.saturating_sub(sealed_us));
        let is_old = options
            .local_age
            .is_some_and(|age| age_us >= age.as_micros());
        let is_much = options.local_bytes.is_some_and(|most| bytes > most);
        if let Some(object) = object
            && (is_old || is_much)
            && published.contains(&*object)
        {
            bytes -= file_bytes;
            found.push((number, object));
        }
    }
    found
}
