//! The calls of the simulated disk, as the store makes them.

use std::io;
use std::sync::Arc;

use crate::faults::{Body, Disk, SECTOR, State, index};
use crate::files::{Claim, File, Files, FolderAccess, Space};

const EIO: i32 = 5;

impl Files for Disk {
    fn create(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn File>> {
        let mut state = self.change()?;
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
        let mut state = self.change()?;
        let body = state.find(&self.folder, from);
        let body = body.ok_or(io::ErrorKind::NotFound)?;
        state.names(&self.folder)?.change(|names| {
            names.remove(from);
            names.insert(to.to_owned(), body);
        });
        Ok(())
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.change()?;
        let body = state.find(&self.folder, from);
        let body = body.ok_or(io::ErrorKind::NotFound)?;
        if state.find(&self.folder, to).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.names(&self.folder)?.change(|names| {
            names.insert(to.to_owned(), body);
        });
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.change()?;
        if state.find(&self.folder, name).is_none() {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.names(&self.folder)?.change(|names| {
            names.remove(name);
        });
        Ok(())
    }

    fn folder(&self, name: &str, _: FolderAccess) -> io::Result<Arc<dyn Files>> {
        let folder = format!("{}{name}/", self.folder);
        self.change()?.folders.entry(folder.clone()).or_default();
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
        let mut state = self.change()?;
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
        let body = &state.bodies[self.body];
        if body.is_unreadable {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        let rest = body.now.get(index(offset)..).unwrap_or_default();
        let read = rest.len().min(buffer.len());
        buffer[..read].copy_from_slice(&rest[..read]);
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        // The power may go in the middle of it.
        let mut state = self.disk.lock();
        let was_off = state.is_off;
        state.burn();
        state.burn_change();
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
        let mut state = self.disk.change()?;
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
        let mut state = self.disk.change()?;
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
        let mut state = self.disk.change()?;
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
