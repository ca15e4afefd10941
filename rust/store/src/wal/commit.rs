//! Writes commit groups to the log, and decides which batches to refuse when the disk is full.

use std::io;
use std::sync::Arc;

use crate::error::StoreError;
use crate::files::Space;
use crate::wal::log::WalOptions;
use crate::wal::queue::{CommitGroup, SpacePolicy, Ticket};
use crate::wal::writer::{SegmentWriter, WrittenGroup};

const BALLAST: &str = "ballast";

/// How little space is free on the disk.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum Pressure {
    /// Enough space is free.
    #[default]
    None,
    /// Little space is free: the caller should accept nothing new that must be stored.
    Soft,
    /// No space is free: the reserve is in use, and ordinary batches are refused.
    Hard,
}

/// Size of the reserve, and the limit of free space for [`Pressure::Soft`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserve {
    /// Size of the file that is removed when the disk is full; 0: no reserve.
    pub(crate) ballast_bytes: u64,
    /// Free bytes below which the pressure is [`Pressure::Soft`]; at most a tenth of the disk.
    pub(crate) soft_bytes: u64,
}

impl Reserve {
    fn soft_bytes(&self, space: Space) -> u64 {
        self.soft_bytes.min(space.total_bytes / 10)
    }
}

impl From<&WalOptions> for Reserve {
    fn from(options: &WalOptions) -> Self {
        Self {
            ballast_bytes: options.ballast_bytes,
            soft_bytes: options.soft_bytes,
        }
    }
}

/// Writes groups, and owns the reserve for a full disk.
#[derive(Debug)]
pub(crate) struct Committer {
    pub(crate) writer: SegmentWriter,
    reserve: Reserve,
    has_ballast: bool,
    is_full: bool,
}

impl Committer {
    /// Allocates the reserve if there is space for it.
    pub(crate) fn new(writer: SegmentWriter, reserve: Reserve) -> Result<Self, StoreError> {
        let mut committer = Self {
            writer,
            reserve,
            has_ballast: false,
            is_full: false,
        };
        committer.restore()?;
        Ok(committer)
    }

    /// Appends `group` to the log; removes the batches that are refused from it first.
    ///
    /// # Errors
    ///
    /// Every error is final: the log cannot continue.
    pub(crate) fn write(
        &mut self,
        group: &mut CommitGroup,
    ) -> Result<(Option<WrittenGroup>, Vec<Ticket>), StoreError> {
        // While the reserve is in use or missing, ordinary batches are refused.
        let mut refused = if self.lacks_reserve() {
            group.refuse(|mark| mark.space == SpacePolicy::Ordinary)
        } else {
            Vec::new()
        };
        loop {
            if group.batches.is_empty() {
                return Ok((None, refused));
            }
            match self.writer.write(&mut group.bytes, group.records) {
                Ok(written) => {
                    self.is_full &= !refused.is_empty();
                    return Ok((Some(written), refused));
                }
                Err(StoreError::NoSpace) => self.make_do(group, &mut refused)?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Frees space in this order: refuses ordinary batches, uses the reserve, fails.
    fn make_do(
        &mut self,
        group: &mut CommitGroup,
        refused: &mut Vec<Ticket>,
    ) -> Result<(), StoreError> {
        self.is_full = true;
        let ordinary = group.refuse(|mark| mark.space == SpacePolicy::Ordinary);
        if !ordinary.is_empty() {
            refused.extend(ordinary);
        } else if self.has_ballast {
            self.remove_ballast()?;
        } else {
            refused.extend(group.refuse(|_| true));
        }
        Ok(())
    }

    /// Allocates the reserve again when there is space for it.
    pub(crate) fn restore(&mut self) -> Result<(), StoreError> {
        let ballast_bytes = self.reserve.ballast_bytes;
        if self.has_ballast || ballast_bytes == 0 {
            return Ok(());
        }
        let files = Arc::clone(&self.writer.files);
        let failed = |error| StoreError::io("make", BALLAST, error);
        match files.open(BALLAST) {
            Ok(_) => {
                self.has_ballast = true;
                return Ok(());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let space = files.space().map_err(failed)?;
        let soft_bytes = self.reserve.soft_bytes(space);
        if space.free_bytes < ballast_bytes.saturating_add(soft_bytes) {
            return Ok(());
        }
        match files.create(BALLAST, ballast_bytes) {
            Err(error) if crate::wal::segment::is_full(&error) => return Ok(()),
            other => other.and_then(|file| file.sync()).map_err(failed)?,
        }
        files.sync_names().map_err(failed)?;
        self.has_ballast = true;
        self.is_full = false;
        Ok(())
    }

    /// Measures the pressure.
    pub(crate) fn pressure(&self) -> Result<Pressure, StoreError> {
        if self.is_full || self.lacks_reserve() {
            return Ok(Pressure::Hard);
        }
        let space = self.writer.files.space();
        let space = space.map_err(|error| StoreError::io("measure", ".", error))?;
        let is_soft = space.free_bytes < self.reserve.soft_bytes(space);
        Ok(if is_soft {
            Pressure::Soft
        } else {
            Pressure::None
        })
    }

    /// Frees the reserve for work that must be done; [`Committer::restore`] allocates it again.
    pub(crate) fn give_up_reserve(&mut self) -> Result<(), StoreError> {
        if self.has_ballast {
            self.remove_ballast()
        } else {
            Ok(())
        }
    }

    fn lacks_reserve(&self) -> bool {
        !self.has_ballast && self.reserve.ballast_bytes > 0
    }

    fn remove_ballast(&mut self) -> Result<(), StoreError> {
        let files = &self.writer.files;
        let removed = files.remove(BALLAST).and_then(|()| files.sync_names());
        removed.map_err(|error| StoreError::io("remove", BALLAST, error))?;
        self.has_ballast = false;
        Ok(())
    }
}
