//! Refuses logins of an address or user name of which too many have failed (abuse C16).

use std::net::IpAddr;

use crate::clients::address::AddressKey;
use crate::clients::failed_logins::LoginSource;
use crate::runtime::log::LogCategory;
use crate::shard::Shard;

/// A login that counts if it fails.
#[derive(Clone, Copy)]
pub(crate) struct LimitedLogin {
    source: LoginSource,
    peer: IpAddr,
}

impl LimitedLogin {
    /// Of a client at `peer`; `None` if that address has no limits, or the peer none.
    pub(crate) fn of(shard: &Shard, peer: Option<IpAddr>, username: Option<&str>) -> Option<Self> {
        let peer = peer?;
        let config = shard.config();
        let is_limited =
            config.failed_logins.per_minute > 0 && config.address_limits.apply_to(peer);
        is_limited.then(|| Self {
            source: LoginSource {
                address: AddressKey::of(peer),
                user: username.map(|name| shard.engine.key_of(name)),
            },
            peer,
        })
    }

    /// Whether it is refused, whatever its password.
    pub(crate) fn is_paused(self, shard: &Shard) -> bool {
        let failed_logins = &shard.engine.failed_logins;
        failed_logins.is_paused(self.source, shard.refresh_now())
    }

    /// Counts it as failed.
    pub(crate) fn fail(self, shard: &Shard) {
        let now = shard.refresh_now();
        let limits = shard.config().failed_logins;
        let paused = shard.engine.failed_logins.count(self.source, limits, now);
        let Some(pause) = paused else { return };
        shard.log.warn(LogCategory::FailedLogins, now, || {
            let (peer, per_minute, pause_s) = (self.peer, limits.per_minute, pause.as_secs());
            format!(
                "{per_minute} failed logins within a minute, the last one from {peer}: \
                 logins from there, or with that user name, are refused for {pause_s} s"
            )
        });
    }

    /// Notes that it succeeded.
    pub(crate) fn succeed(self, shard: &Shard) {
        let failed_logins = &shard.engine.failed_logins;
        failed_logins.succeed(self.source, shard.refresh_now());
    }
}
