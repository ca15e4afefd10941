//! Bans of client identifiers, user names and networks, until they end or are lifted.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use crate::clients::client_id_pattern::ClientIdPattern;
use crate::config::Network;
use crate::config::hooks::Login;

/// Maximum number of bans that the broker adds itself; further ones are skipped until some have ended.
const AUTOMATIC_MAX: usize = 65_536;
/// Maximum number of operators' bans of client identifiers and user names.
const NAMES_MAX: usize = 65_536;
/// Maximum number of operators' bans of networks, and of expressions: each is compared with each new client.
const COMPARED_MAX: usize = 1_000;

/// Which clients are banned.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum BanTarget {
    /// Clients with this identifier.
    ClientId(Box<str>),
    /// Clients with this identifier and this user name; `None`: without one. The broker bans them for flapping; such a
    /// ban is not kept with the data.
    ClientIdOfUser {
        /// The client identifier.
        client_id: Box<str>,
        /// The user name.
        username: Option<Box<str>>,
    },
    /// Clients whose whole identifier this regular expression matches.
    ClientIdPattern(ClientIdPattern),
    /// Clients with this user name.
    Username(Box<str>),
    /// Clients with an address in this network.
    Network(Network),
}

impl BanTarget {
    /// The client identifier of this login, for its user alone.
    pub(crate) fn own(login: &Login) -> Self {
        Self::ClientIdOfUser {
            client_id: login.client_id.as_ref().into(),
            username: login.username.as_deref().map(Into::into),
        }
    }

    /// Whether a ban of this target covers a client.
    pub(crate) fn covers(&self, login: &Login) -> bool {
        match self {
            Self::ClientId(id) => **id == *login.client_id,
            Self::ClientIdOfUser {
                client_id,
                username,
            } => {
                **client_id == *login.client_id && username.as_deref() == login.username.as_deref()
            }
            Self::ClientIdPattern(pattern) => pattern.matches(&login.client_id),
            Self::Username(name) => login.username.as_deref() == Some(name),
            Self::Network(network) => login.peer.ip().is_some_and(|ip| network.contains(ip)),
        }
    }
}

/// Why clients are banned, and who bans them; not sent to clients.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct BanReason {
    /// Why, for operators.
    pub text: String,
    /// Who made the ban, as in the audit log, or `the broker`; empty if it is not known.
    pub by: String,
}

/// Characters of the name of an operator.
const BY_CHARS: usize = 256;
/// Who makes bans because of the behaviour of clients.
const BROKER: &str = "the broker";

impl BanReason {
    /// A reason of this operator. Longer names are cut.
    pub fn new(text: String, by: &str) -> Self {
        // Notes of bans have a NUL in front of the name.
        let by = by.chars().filter(|character| *character != '\0');
        Self {
            text,
            by: by.take(BY_CHARS).collect(),
        }
    }
}

impl From<&str> for BanReason {
    /// Of nobody who is known.
    fn from(text: &str) -> Self {
        Self::new(text.to_owned(), "")
    }
}

/// A ban in force.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Ban {
    /// The target of the ban.
    pub target: BanTarget,
    /// Why, and who made it.
    pub reason: BanReason,
    /// The remaining time; `None`: until the ban is lifted.
    pub remaining: Option<Duration>,
}

/// The maximum number of bans by operators is reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("there are {max} bans of {kind}, the most that may be: lift one first")]
pub struct TooManyBans {
    max: usize,
    kind: &'static str,
}

/// The bans in force, shared by all shards.
#[derive(Default)]
pub(crate) struct Bans {
    table: RwLock<Table>,
    /// Locked while an operator's change is written to the store and to the table, so that both have the same order.
    change: Mutex<()>,
}

#[derive(Default)]
struct Table {
    names: HashMap<BanTarget, BanEntry>,
    /// Few entries, since each is compared with each new connection.
    networks: Vec<(Network, BanEntry)>,
    /// Few entries, since each is compared with each login.
    patterns: Vec<(ClientIdPattern, BanEntry)>,
    /// Operators' bans that have ended; they may still be in the store.
    ended: Vec<BanTarget>,
}

struct BanEntry {
    reason: BanReason,
    until: Option<Instant>,
    /// The broker added it because of the behaviour of clients.
    is_automatic: bool,
}

impl BanEntry {
    fn is_in_force(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

impl Bans {
    /// Starts a change by an operator; other changes wait until the guard is dropped.
    pub(crate) fn begin_change(&self) -> MutexGuard<'_, ()> {
        self.change.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the operators' bans that have ended since the last call.
    pub(crate) fn take_ended(&self, now: Instant) -> Vec<BanTarget> {
        std::mem::take(&mut self.write(now).ended)
    }

    /// Checks that an operator may ban `target`; a ban that exists may be replaced.
    ///
    /// # Errors
    ///
    /// [`TooManyBans`]
    pub(crate) fn check_room(&self, target: &BanTarget, now: Instant) -> Result<(), TooManyBans> {
        let table = self.write(now);
        let (max, kind, count) = match target {
            BanTarget::Network(_) => (COMPARED_MAX, "networks", table.networks.len()),
            BanTarget::ClientIdPattern(_) => (COMPARED_MAX, "expressions", table.patterns.len()),
            BanTarget::ClientId(_) | BanTarget::ClientIdOfUser { .. } | BanTarget::Username(_) => {
                let names = table.names.values();
                let count = names.filter(|entry| !entry.is_automatic).count();
                (NAMES_MAX, "client identifiers and user names", count)
            }
        };
        if count < max || table.has_of_operator(target) {
            return Ok(());
        }
        Err(TooManyBans { max, kind })
    }

    /// Bans `target` until `until`, or for ever; replaces a ban of the same target.
    pub(crate) fn add(
        &self,
        target: BanTarget,
        reason: BanReason,
        until: Option<Instant>,
        now: Instant,
    ) {
        let entry = BanEntry {
            reason,
            until,
            is_automatic: false,
        };
        self.write(now).insert(target, entry);
    }

    /// Like [`add`](Self::add), for bans that clients cause: their number is limited.
    pub(crate) fn add_automatic(
        &self,
        target: BanTarget,
        reason: String,
        duration: Duration,
        now: Instant,
    ) {
        let mut table = self.write(now);
        if table.names.len() < AUTOMATIC_MAX && !table.names.contains_key(&target) {
            let entry = BanEntry {
                reason: BanReason::new(reason, BROKER),
                until: now.checked_add(duration),
                is_automatic: true,
            };
            table.insert(target, entry);
        }
    }

    /// Lifts the ban of `target`, and with that of a client identifier those of its users; false if there is none.
    pub(crate) fn remove(&self, target: &BanTarget, now: Instant) -> bool {
        self.write(now).remove(target)
    }

    /// The bans in force.
    pub(crate) fn list(&self, now: Instant) -> Vec<Ban> {
        let table = self.read();
        let networks = table.networks.iter();
        let networks = networks.map(|(network, entry)| (BanTarget::Network(*network), entry));
        let patterns = table.patterns.iter();
        let patterns = patterns.map(|(pattern, entry)| {
            let target = BanTarget::ClientIdPattern(pattern.clone());
            (target, entry)
        });
        let names = table.names.iter();
        let all = names
            .map(|(target, entry)| (target.clone(), entry))
            .chain(networks)
            .chain(patterns);
        all.filter(|(_, entry)| entry.is_in_force(now))
            .map(|(target, entry)| Ban {
                target,
                reason: entry.reason.clone(),
                remaining: entry.until.map(|until| until.duration_since(now)),
            })
            .collect()
    }

    /// The number of bans in force: those of operators, and those that the broker made.
    pub(crate) fn counts(&self, now: Instant) -> [u64; 2] {
        let table = self.read();
        let networks = table.networks.iter().map(|(_, entry)| entry);
        let patterns = table.patterns.iter().map(|(_, entry)| entry);
        let entries = table.names.values().chain(networks).chain(patterns);
        let mut counts = [0; 2];
        for entry in entries.filter(|entry| entry.is_in_force(now)) {
            counts[usize::from(entry.is_automatic)] += 1;
        }
        counts
    }

    /// Whether connections from `address` are banned.
    pub(crate) fn covers_address(&self, address: Option<IpAddr>, now: Instant) -> bool {
        let table = self.read();
        address.is_some_and(|address| table.covers_address(address, |entry| entry.is_in_force(now)))
    }

    /// Whether this client is banned, by its identifier, its user name or its address.
    pub(crate) fn covers(&self, login: &Login, now: Instant) -> bool {
        self.covers_if(login, |entry| entry.is_in_force(now))
    }

    /// Like `covers`, for operators' bans only. A client that flaps, or whose identifier others use, keeps its rights.
    pub(crate) fn covers_for_good(&self, login: &Login, now: Instant) -> bool {
        self.covers_if(login, |entry| entry.is_in_force(now) && !entry.is_automatic)
    }

    fn covers_if(&self, login: &Login, counts: impl Fn(&BanEntry) -> bool) -> bool {
        let table = self.read();
        if table.is_empty() {
            return false;
        }
        let client_id = BanTarget::ClientId(login.client_id.as_ref().into());
        let username = login.username.as_deref();
        let username = username.map(|name| BanTarget::Username(name.into()));
        let address = login.peer.ip();
        [Some(client_id), Some(BanTarget::own(login)), username]
            .iter()
            .flatten()
            .any(|target| table.names.get(target).is_some_and(&counts))
            || table.covers_client_id(&login.client_id, &counts)
            || address.is_some_and(|address| table.covers_address(address, counts))
    }

    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the table and removes bans that have ended.
    fn write(&self, now: Instant) -> RwLockWriteGuard<'_, Table> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.remove_ended(now);
        table
    }
}

impl Table {
    fn is_empty(&self) -> bool {
        self.names.is_empty() && self.networks.is_empty() && self.patterns.is_empty()
    }

    fn remove_ended(&mut self, now: Instant) {
        let ended = &mut self.ended;
        let mut stays = |entry: &BanEntry, target: &dyn Fn() -> BanTarget| {
            let is_in_force = entry.is_in_force(now);
            if !is_in_force && !entry.is_automatic {
                ended.push(target());
            }
            is_in_force
        };
        self.names
            .retain(|target, entry| stays(entry, &|| target.clone()));
        self.networks
            .retain(|(network, entry)| stays(entry, &|| BanTarget::Network(*network)));
        self.patterns.retain(|(pattern, entry)| {
            stays(entry, &|| BanTarget::ClientIdPattern(pattern.clone()))
        });
    }

    fn has_of_operator(&self, target: &BanTarget) -> bool {
        match target {
            BanTarget::Network(network) => self.networks.iter().any(|(other, _)| other == network),
            BanTarget::ClientIdPattern(pattern) => {
                self.patterns.iter().any(|(other, _)| other == pattern)
            }
            name => self
                .names
                .get(name)
                .is_some_and(|entry| !entry.is_automatic),
        }
    }

    fn covers_client_id(&self, client_id: &str, counts: impl Fn(&BanEntry) -> bool) -> bool {
        let mut patterns = self.patterns.iter();
        patterns.any(|(pattern, entry)| counts(entry) && pattern.matches(client_id))
    }

    fn covers_address(&self, address: IpAddr, counts: impl Fn(&BanEntry) -> bool) -> bool {
        let mut networks = self.networks.iter();
        networks.any(|(network, entry)| network.contains(address) && counts(entry))
    }

    /// Adds a ban, or replaces that of the same target.
    fn insert(&mut self, target: BanTarget, entry: BanEntry) {
        match target {
            BanTarget::Network(network) => {
                self.networks.retain(|(other, _)| *other != network);
                self.networks.push((network, entry));
            }
            BanTarget::ClientIdPattern(pattern) => {
                self.patterns.retain(|(other, _)| *other != pattern);
                self.patterns.push((pattern, entry));
            }
            target => drop(self.names.insert(target, entry)),
        }
    }

    /// Lifts a ban; with that of a client identifier, those of its users.
    fn remove(&mut self, target: &BanTarget) -> bool {
        let count = |table: &Self| table.names.len() + table.networks.len() + table.patterns.len();
        let before = count(self);
        match target {
            BanTarget::Network(lifted) => self.networks.retain(|(network, _)| network != lifted),
            BanTarget::ClientIdPattern(lifted) => {
                self.patterns.retain(|(pattern, _)| pattern != lifted);
            }
            BanTarget::ClientId(lifted) => self.names.retain(|other, _| match other {
                BanTarget::ClientIdOfUser { client_id, .. } => client_id != lifted,
                other => other != target,
            }),
            target => drop(self.names.remove(target)),
        }
        count(self) < before
    }
}

#[cfg(test)]
mod tests {
    use mqttcore_codec::ProtocolVersion;

    use super::*;

    fn network(text: &str) -> BanTarget {
        BanTarget::Network(text.parse().unwrap())
    }

    #[test]
    fn a_ban_of_a_network_covers_its_addresses_until_it_ends() {
        let (bans, now) = (Bans::default(), Instant::now());
        let hour = Duration::from_secs(3_600);
        bans.add(network("10.0.0.0/8"), "scans".into(), Some(now + hour), now);

        for (address, at, is_covered) in [
            ("10.1.2.3", now, true),
            ("11.1.2.3", now, false),
            ("10.1.2.3", now + hour, false),
        ] {
            let address = Some(address.parse().unwrap());
            assert_eq!(bans.covers_address(address, at), is_covered);
        }
        assert!(!bans.covers_address(None, now));
        assert!(bans.list(now + hour).is_empty());
    }

    #[test]
    fn a_ban_of_the_broker_leaves_that_of_an_operator_and_does_not_count_for_good() {
        let (bans, now) = (Bans::default(), Instant::now());
        let id = || BanTarget::ClientId("a".into());
        let login = Login::restored("a".into(), ProtocolVersion::V5, None, 0);
        bans.add_automatic(id(), "flaps".into(), Duration::from_secs(9), now);
        assert!(bans.covers(&login, now) && !bans.covers_for_good(&login, now));

        bans.add(id(), "hostile".into(), None, now);
        bans.add_automatic(id(), "flaps".into(), Duration::from_secs(9), now);

        assert!(bans.covers_for_good(&login, now));
        assert_eq!(bans.list(now)[0].reason.text, "hostile");
        let other = BanTarget::ClientId("b".into());
        bans.add_automatic(other, "flaps".into(), Duration::from_secs(9), now);
        bans.add(network("10.0.0.0/8"), "scans".into(), None, now);
        assert_eq!(bans.counts(now), [2, 1]);
        assert_eq!(bans.counts(now + Duration::from_secs(9)), [2, 0]);
    }

    #[test]
    fn a_ban_of_an_identifier_of_a_user_covers_no_other_user_and_is_lifted_with_the_identifier() {
        let (bans, now) = (Bans::default(), Instant::now());
        let login = |id: &str, username: Option<&str>| {
            Login::restored(id.into(), ProtocolVersion::V5, username.map(Into::into), 0)
        };
        let (eve, nobody) = (login("a", Some("eve")), login("a", None));
        let others = [login("a", Some("ann")), login("b", Some("eve"))];
        for (banned, other) in [(&eve, &nobody), (&nobody, &eve)] {
            let target = BanTarget::own(banned);
            bans.add_automatic(target.clone(), String::new(), Duration::from_secs(9), now);

            assert!(bans.covers(banned, now) && target.covers(banned));
            for other in others.iter().chain([other]) {
                assert!(!bans.covers(other, now) && !target.covers(other));
            }
            assert!(!bans.remove(&BanTarget::ClientId("b".into()), now));
            assert!(bans.remove(&BanTarget::ClientId("a".into()), now));
            assert!(bans.list(now).is_empty());
        }
    }

    #[test]
    fn a_ban_is_replaced_listed_and_lifted() {
        let (bans, now) = (Bans::default(), Instant::now());
        let joe = || BanTarget::Username("joe".into());
        bans.add(joe(), "first".into(), None, now);
        let end = now + Duration::from_secs(9);
        bans.add(joe(), "second".into(), Some(end), now);

        let ban = Ban {
            target: joe(),
            reason: "second".into(),
            remaining: Some(Duration::from_secs(9)),
        };
        assert_eq!(bans.list(now), [ban]);
        assert!(bans.remove(&joe(), now));
        assert!(!bans.remove(&joe(), now));
    }

    #[test]
    fn bans_by_operators_are_limited_for_each_kind_until_one_ends_or_is_lifted() {
        let (bans, now) = (Bans::default(), Instant::now());
        let end = now + Duration::from_secs(9);
        let net = |number: usize| network(&format!("10.{}.{}.0/24", number / 256, number % 256));
        let pattern = |number| BanTarget::ClientIdPattern(format!("a{number}").parse().unwrap());
        for number in 0..COMPARED_MAX {
            bans.add(net(number), BanReason::default(), Some(end), now);
            bans.add(pattern(number), BanReason::default(), None, now);
        }

        for other in [net(COMPARED_MAX), pattern(COMPARED_MAX)] {
            let error = bans.check_room(&other, now).unwrap_err().to_string();
            assert!(error.contains("1000 bans of"), "{error}");
        }
        bans.check_room(&net(7), now).unwrap();
        bans.check_room(&pattern(7), now).unwrap();
        bans.check_room(&BanTarget::Username("joe".into()), now)
            .unwrap();
        bans.check_room(&net(COMPARED_MAX), end).unwrap();
        assert!(bans.remove(&pattern(7), now));
        bans.check_room(&pattern(COMPARED_MAX), now).unwrap();
    }

    #[test]
    fn bans_that_clients_cause_are_limited_and_leave_room_for_those_of_operators() {
        let (bans, now) = (Bans::default(), Instant::now());
        let id = |number: usize| BanTarget::ClientId(number.to_string().into());
        let minute = Duration::from_secs(60);
        let automatic = || BanEntry {
            reason: BanReason::default(),
            until: Some(now + minute),
            is_automatic: true,
        };
        let all = (0..AUTOMATIC_MAX).map(|number| (id(number), automatic()));
        bans.table.write().unwrap().names.extend(all);

        bans.add_automatic(id(AUTOMATIC_MAX), String::new(), minute, now);
        assert_eq!(bans.list(now).len(), AUTOMATIC_MAX);
        bans.check_room(&id(AUTOMATIC_MAX), now).unwrap();
        bans.add(id(AUTOMATIC_MAX), BanReason::default(), None, now);
        assert_eq!(bans.list(now).len(), AUTOMATIC_MAX + 1);
    }
}
