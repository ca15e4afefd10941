//! One group from the line to the disk, with what to do when the disk is full.

use std::io;
use std::sync::Arc;

use crate::error::StoreError;
use crate::files::Space;
use crate::wal::log::WalOptions;
use crate::wal::queue::{CommitGroup, SpacePolicy, Ticket};
use crate::wal::writer::{SegmentWriter, WrittenGroup};

const BALLAST: &str = "ballast";

/// How tight the room on the disk is.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum Pressure {
    /// There is room.
    #[default]
    None,
    /// There is little: take nothing new that has to be kept.
    Soft,
    /// There is none: the reserve is in use, and ordinary batches are refused.
    Hard,
}

/// When room counts as little, and how large the reserve is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserve {
    /// Size of the file that is given up when the disk is full; 0 is no reserve.
    pub(crate) ballast_bytes: u64,
    /// Free bytes below which room counts as little; on a small disk a tenth of it.
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

/// The writer, and the reserve for a full disk.
#[derive(Debug)]
pub(crate) struct Committer {
    pub(crate) writer: SegmentWriter,
    reserve: Reserve,
    has_ballast: bool,
    is_full: bool,
}

impl Committer {
    /// Takes the reserve, if there is room for it.
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

    /// Writes `group` behind everything else, and takes out of it what is refused.
    ///
    /// # Errors
    ///
    /// Any error is final.
    pub(crate) fn write(
        &mut self,
        group: &mut CommitGroup,
    ) -> Result<(Option<WrittenGroup>, Vec<Ticket>), StoreError> {
        // While the reserve is in use, or cannot be had, it is not for new things.
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

    /// Gives up new things first, then the reserve, then everything.
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

    /// Takes the reserve again, once there is room for it.
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

    /// How tight the room is.
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

    /// Gives up the reserve for something that must be done; [`Committer::restore`] takes it back.
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
