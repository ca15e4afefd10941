//! Limits of failed logins by address and user name (abuse C16).

use mqttcore_codec::ReasonCode;

use crate::clients::failed_logins::{LoginSource, Paused};
use crate::config::Peer;
use crate::config::hooks::Login;
use crate::runtime::log::LogCategory;
use crate::shard::Shard;
use crate::transport::address::AddressKey;

/// Whether a rejection with `reason` means that the credentials were wrong.
pub(crate) fn is_failed_login(reason: ReasonCode) -> bool {
    matches!(
        reason,
        ReasonCode::BAD_USER_NAME_OR_PASSWORD | ReasonCode::NOT_AUTHORIZED
    )
}

/// A login that is counted if it fails.
#[derive(Clone, Copy)]
pub(crate) struct LimitedLogin {
    source: LoginSource,
    peer: Peer,
}

impl LimitedLogin {
    /// `None` if there is no limit, or if a certificate or the kernel identifies the client: its user name is then no
    /// guess.
    pub(crate) fn of(shard: &Shard, login: &Login) -> Option<Self> {
        let config = shard.config();
        if config.failed_logins.per_minute == 0 || login.is_certified {
            return None;
        }
        let ip = login.peer.ip();
        Some(Self {
            source: LoginSource {
                address: ip.map(AddressKey::of),
                is_exempt: !config.address_limits.apply_to(ip),
                user: login
                    .username
                    .as_deref()
                    .map(|name| shard.engine.key_of(name)),
            },
            peer: login.peer,
        })
    }

    /// Counts for this user name from now on: the exchange names it.
    pub(crate) fn set_user(&mut self, shard: &Shard, username: &str) {
        self.source.user = Some(shard.engine.key_of(username));
    }

    /// Counts for the address alone from now on.
    pub(crate) fn forget_user(&mut self) {
        self.source.user = None;
    }

    /// Whether the login is rejected, whatever its password.
    pub(crate) fn is_paused(self, shard: &Shard) -> bool {
        let failed_logins = &shard.engine.failed_logins;
        failed_logins.is_paused(self.source, shard.refresh_now())
    }

    /// Counts a failure.
    pub(crate) fn fail(self, shard: &Shard) {
        let now = shard.refresh_now();
        let limits = shard.config().failed_logins;
        let pause = shard.engine.failed_logins.count(self.source, limits, now);
        let Some(pause) = pause else { return };
        shard.log.warn(LogCategory::FailedLogins, now, || {
            let (peer, per_minute, pause_s) = (self.peer, limits.per_minute, pause.time.as_secs());
            let of = match pause.of {
                Paused::Address => "from there",
                Paused::User => "with that user name",
                Paused::Pair => "from there with that user name",
            };
            format!(
                "{per_minute} failed logins within a minute, the last one from {peer}: \
                 logins {of} are refused for {pause_s} s"
            )
        });
    }

    /// Records a success, or that the client disconnects after one.
    pub(crate) fn succeed(self, shard: &Shard) {
        let failed_logins = &shard.engine.failed_logins;
        failed_logins.succeed(self.source, shard.refresh_now());
    }
}
