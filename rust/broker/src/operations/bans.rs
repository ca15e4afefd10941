//! Bans by operators.

use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::clients::bans::{Ban, BanReason, BanTarget, TooManyBans};
use crate::config::measures::Tally;
use crate::service::{BrokerHandle, BrokerStopped};
use crate::sessions::listing;
use crate::shard::{EngineState, Shard};

/// Why a ban is not added.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BanError {
    /// The broker has stopped.
    #[error(transparent)]
    Stopped(#[from] BrokerStopped),
    /// The maximum number of bans is reached: lift others first.
    #[error(transparent)]
    TooMany(#[from] TooManyBans),
}

impl EngineState {
    /// Adds a ban, in the store, too. Clients that it matches stay connected.
    ///
    /// # Errors
    ///
    /// [`TooManyBans`]
    pub(crate) fn add_ban(
        &self,
        target: BanTarget,
        reason: BanReason,
        duration: Option<Duration>,
    ) -> Result<(), TooManyBans> {
        let now = Instant::now();
        // A time that the clock cannot represent means no end.
        let until = duration.and_then(|duration| now.checked_add(duration));
        let _change = self.bans.begin_change();
        let ended = self.bans.take_ended(now);
        if let Some(log) = &self.log {
            for target in &ended {
                log.forget_ban(target);
            }
        }
        self.bans.check_room(&target, now)?;
        if let Some(log) = &self.log {
            log.keep_ban(&target, &reason, until);
        }
        self.bans.add(target, reason, until, now);
        Ok(())
    }

    /// Lifts a ban; false if there is none.
    pub(crate) fn remove_ban(&self, target: &BanTarget) -> bool {
        let _change = self.bans.begin_change();
        if let Some(log) = &self.log {
            log.forget_ban(target);
        }
        self.bans.remove(target, Instant::now())
    }
}

impl BrokerHandle {
    /// Like [`Broker::ban`](crate::Broker::ban). Shards that do not answer in time disconnect their clients later;
    /// these clients are not counted.
    ///
    /// # Errors
    ///
    /// [`BanError`]
    pub async fn ban(
        &self,
        target: BanTarget,
        reason: BanReason,
        duration: Option<Duration>,
    ) -> Result<usize, BanError> {
        let engine = self.engine().ok_or(BrokerStopped)?;
        engine.add_ban(target.clone(), reason, duration)?;
        drop(engine);
        let mut disconnected = 0;
        for shard in 0..self.shards() {
            let target = target.clone();
            let disconnect = move |shard: &Rc<Shard>| listing::disconnect_banned(shard, &target);
            disconnected += self.read(shard, disconnect).await.unwrap_or(0);
        }
        Ok(disconnected)
    }

    /// Lifts a ban; returns false if `target` is not banned.
    ///
    /// # Errors
    ///
    /// [`BrokerStopped`]
    pub fn unban(&self, target: &BanTarget) -> Result<bool, BrokerStopped> {
        let engine = self.engine().ok_or(BrokerStopped)?;
        Ok(engine.remove_ban(target))
    }

    /// The number of bans in force, by those who made them.
    pub fn ban_counts(&self) -> Tally {
        let engine = self.engine();
        let counts = engine.map(|engine| engine.bans.counts(Instant::now()));
        let [operator, broker] = counts.unwrap_or_default();
        vec![("operator", operator), ("broker", broker)]
    }

    /// The bans in force, in no particular order.
    pub fn bans(&self) -> Vec<Ban> {
        let engine = self.engine();
        engine.map_or_else(Vec::new, |engine| engine.bans.list(Instant::now()))
    }
}
