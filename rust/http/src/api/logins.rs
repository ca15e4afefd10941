//! Logins of users by cookies (ADR 0075): secrets in memory, stored as hashes.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper::HeaderMap;
use hyper::header::COOKIE;
use mqttcore_broker::Operator;
use sha2::{Digest, Sha256};

use super::identity::CallerIdentity;
use super::keys::secret;
use super::scope::{Scope, Scopes};

/// Name of the cookie.
pub(super) const COOKIE_NAME: &str = "mqttcore_session";
/// How long a login lasts.
pub(super) const LASTS: Duration = Duration::from_secs(12 * 60 * 60);
/// Maximum number of logins, in total and of one user; a new login removes the oldest.
const LOGINS_MAX: usize = 1_024;
const OF_USER_MAX: usize = 16;

/// The logins that last, by the SHA-256 of their secrets.
#[derive(Debug)]
pub(crate) struct Logins<O = Operator>(Mutex<Table<O>>);

type Table<O> = HashMap<[u8; 32], ActiveLogin<O>>;

#[derive(Debug)]
struct ActiveLogin<O> {
    user: String,
    operator: O,
    scopes: Scopes,
    since: Instant,
}

impl<O> Default for Logins<O> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<O> Logins<O> {
    /// Locks the table and removes logins that are over.
    fn table(&self, now: Instant) -> MutexGuard<'_, Table<O>> {
        let mut logins = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        logins.retain(|_, login| now.saturating_duration_since(login.since) < LASTS);
        logins
    }

    /// Adds a login of `user` with `scopes` and returns the secret of its cookie.
    ///
    /// # Errors
    ///
    /// The system has no random bytes.
    pub(super) fn add(
        &self,
        user: &str,
        operator: O,
        scopes: Scopes,
        now: Instant,
    ) -> io::Result<String> {
        let secret = secret()?;
        let mut logins = self.table(now);
        let is_own = |login: &ActiveLogin<O>| login.user == user;
        if logins.values().filter(|login| is_own(login)).count() >= OF_USER_MAX {
            remove_oldest(&mut logins, is_own);
        } else if logins.len() >= LOGINS_MAX {
            remove_oldest(&mut logins, |_| true);
        }
        let login = ActiveLogin {
            user: user.to_owned(),
            operator,
            scopes,
            since: now,
        };
        logins.insert(digest_of(&secret), login);
        Ok(secret)
    }

    /// The identity of the user whose cookie is in `headers`. `may_stay` is false for users whose rights have changed:
    /// their logins end.
    pub(crate) fn identify(
        &self,
        headers: &HeaderMap,
        now: Instant,
        may_stay: impl Fn(&O) -> bool,
    ) -> Option<CallerIdentity> {
        let digest = digest_of(cookie(headers)?);
        let mut logins = self.table(now);
        let login = logins.get(&digest)?;
        if !may_stay(&login.operator) {
            logins.remove(&digest);
            return None;
        }
        let identity = CallerIdentity::new(name_of(&login.user), login.scopes);
        Some(identity.with_cookie(digest))
    }

    /// Whether the login whose secret has this SHA-256 lasts, with this scope.
    pub(super) fn admits(
        &self,
        digest: &[u8; 32],
        scope: Scope,
        now: Instant,
        may_stay: impl Fn(&O) -> bool,
    ) -> bool {
        let logins = self.table(now);
        let login = logins.get(digest);
        login.is_some_and(|login| login.scopes.has(scope) && may_stay(&login.operator))
    }

    /// Ends the login whose secret has this SHA-256.
    pub(super) fn end(&self, digest: &[u8; 32], now: Instant) {
        self.table(now).remove(digest);
    }
}

/// Name of a user in errors, logs and the audit log.
pub(super) fn name_of(user: &str) -> String {
    format!("user {user:?}")
}

fn digest_of(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

fn remove_oldest<O>(logins: &mut Table<O>, counts: impl Fn(&ActiveLogin<O>) -> bool) {
    let counted = logins.iter().filter(|(_, login)| counts(login));
    let oldest = counted.min_by_key(|(_, login)| login.since);
    if let Some(digest) = oldest.map(|(digest, _)| *digest) {
        logins.remove(&digest);
    }
}

/// The secret in the cookies of a request, if there is exactly one.
fn cookie(headers: &HeaderMap) -> Option<&str> {
    let texts = headers.get_all(COOKIE).iter();
    let texts = texts.filter_map(|value| value.to_str().ok());
    let pairs = texts.flat_map(|text| text.split(';'));
    let pairs = pairs.filter_map(|pair| pair.trim().split_once('='));
    let mut own = pairs.filter(|(name, _)| *name == COOKIE_NAME);
    match (own.next(), own.next()) {
        (Some((_, secret)), None) => Some(secret),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn headers(texts: &[&str]) -> HeaderMap {
        let values = texts.iter().map(|text| HeaderValue::from_str(text));
        values
            .map(|value| (COOKIE, value.expect("a value")))
            .collect()
    }

    #[test]
    fn the_cookie_is_found_between_others_and_only_if_there_is_one() {
        assert_eq!(
            cookie(&headers(&["a=b; mqttcore_session=mq_x; c=d"])),
            Some("mq_x")
        );
        assert_eq!(
            cookie(&headers(&["a=b", "mqttcore_session=mq_x"])),
            Some("mq_x")
        );
        for texts in [
            &["mqttcore_session=mq_x; mqttcore_session=mq_y"][..],
            &["mqttcore_session=mq_x", "mqttcore_session=mq_x"],
            &["xmqttcore_session=mq_x", "mqttcore_session"],
            &[],
        ] {
            assert_eq!(cookie(&headers(texts)), None, "{texts:?}");
        }
    }

    #[test]
    fn a_login_lasts_for_12_hours_unless_it_is_ended_or_the_user_may_not_stay() {
        let (logins, start) = (Logins::<()>::default(), Instant::now());
        let add = || {
            let scopes = [Scope::View].into_iter().collect();
            logins.add("ann", (), scopes, start).expect("a secret")
        };
        let secret = add();
        let sent = headers(&[&format!("{COOKIE_NAME}={secret}")]);
        let end = start + LASTS;
        let late = end.checked_sub(Duration::from_secs(1)).expect("a time");

        let identity = logins.identify(&sent, late, |()| true).expect("a login");
        assert_eq!(identity.name, "user \"ann\"");
        assert!(identity.is_by_cookie);
        let digest = identity.key.expect("a hash");
        assert!(logins.admits(&digest, Scope::View, late, |()| true));
        assert!(!logins.admits(&digest, Scope::Admin, late, |()| true));
        assert!(!logins.admits(&digest, Scope::View, late, |()| false));
        assert!(logins.identify(&sent, end, |()| true).is_none(), "12 hours");

        let secret = add();
        let sent = headers(&[&format!("{COOKIE_NAME}={secret}")]);
        assert!(logins.identify(&sent, start, |()| false).is_none());
        assert!(
            logins.identify(&sent, start, |()| true).is_none(),
            "it has ended"
        );

        let secret = add();
        let sent = headers(&[&format!("{COOKIE_NAME}={secret}")]);
        logins.end(&digest_of(&secret), start);
        assert!(logins.identify(&sent, start, |()| true).is_none());
    }

    #[test]
    fn the_oldest_login_makes_room_first_that_of_the_same_user() {
        let (logins, start) = (Logins::<()>::default(), Instant::now());
        let mut count = 0;
        let mut add = |user: &str| {
            count += 1;
            let now = start + Duration::from_millis(count);
            let secret = logins.add(user, (), Scopes::default(), now);
            digest_of(&secret.expect("a secret"))
        };
        let has = |digest| logins.table(start).contains_key(digest);
        let (other, first) = (add("other"), add("ann"));
        for _ in 1..OF_USER_MAX {
            add("ann");
        }
        assert!(has(&first));
        add("ann");
        assert!(!has(&first) && has(&other));

        for number in 0..LOGINS_MAX {
            add(&number.to_string());
        }

        assert!(!has(&other));
        assert_eq!(logins.table(start).len(), LOGINS_MAX);
    }
}
