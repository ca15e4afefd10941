//! Why an authenticated client is denied its session: bans, invalidated rights, limits, takeover, memory.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mqttcore_codec::ReasonCode;
use mqttcore_session::{ConnAckFormat, ConnectRequest};
use mqttcore_store::Durability;

use crate::admission::admitted::{AdmittedConnection, terms};
use crate::admission::denial_cause::DenialCause;
use crate::admission::rejection::{RejectedClient, reject_banned};
use crate::admission::session_share;
use crate::clients::bans::BanTarget;
use crate::clients::client::Client;
use crate::clients::flags::Flag;
use crate::config::grants::Takeover;
use crate::config::hooks::Login;
use crate::routing::memory::{self, Shortage};
use crate::runtime::log::{Escaped, LogCategory};
use crate::shard::Shard;

/// Checks whether an authenticated client is rejected; returns the rejection.
pub(super) fn denied(
    shard: &Shard,
    existing: Option<&Rc<Client>>,
    arrival: &AdmittedConnection,
) -> Option<RejectedClient> {
    let (login, to) = (&arrival.login, arrival.request.recipient());
    let refused = || {
        let (cause, reason, text) = session_denied(shard, existing, arrival)?;
        let denied = RejectedClient::new(login, to, reason).because(cause);
        Some(denied.with_reason_string(text))
    };
    // Checked again: the client may have been banned since, and a plugin may have changed its user name.
    reject_banned(shard, login, to)
        .or_else(|| refuse_outdated(shard, login, arrival))
        .or_else(refused)
        .or_else(|| {
            let expiry_s = terms(shard, arrival, false).session_expiry_s(&arrival.request);
            session_share::refuse_above_share(shard, existing, arrival, expiry_s)
        })
        // Rejected clients do not count: they may be strangers that know the client identifier.
        .or_else(|| refuse_flapping(shard, existing, login, to))
}

/// Rejects a client whose rights were invalidated after its login was decided: it tries again.
fn refuse_outdated(
    shard: &Shard,
    login: &Arc<Login>,
    arrival: &AdmittedConnection,
) -> Option<RejectedClient> {
    let (asked_at, username) = (arrival.asked_at, login.username.as_deref());
    let invalidations = &shard.engine.invalidations;
    let is_outdated = invalidations.outdate(asked_at, &login.client_id, username);
    is_outdated.then(|| {
        let to = arrival.request.recipient();
        RejectedClient::new(login, to, ReasonCode::SERVER_BUSY)
            .because(DenialCause::Other)
            .with_reason_string("permissions changed: connect again")
    })
}

/// Rejects a client that connects too often, or users who take over one client identifier from each other too often. A
/// connection that another user takes over is not counted: nobody has another user banned by takeovers (abuse C25).
fn refuse_flapping(
    shard: &Shard,
    existing: Option<&Rc<Client>>,
    login: &Arc<Login>,
    to: ConnAckFormat,
) -> Option<RejectedClient> {
    let username = login.username.as_deref();
    let of_another = existing.filter(|old| old.is_online() && !old.is_user(username));
    let config = shard.config();
    if config.address_limits.apply_to(login.peer.ip()) {
        let takes = of_another.and_then(|_| refuse_takeovers(shard, login, to));
        let denied = takes.or_else(|| ban_if_flapping(shard, login, to));
        if denied.is_some() {
            return denied;
        }
    }
    if let Some(old) = of_another {
        let (old, now) = (old.login(), shard.now());
        let client = (&*old.client_id, old.username.as_deref());
        let mut flapping = shard.flapping.borrow_mut();
        flapping.uncount(client, config.flapping, now);
    }
    None
}

/// Counts a takeover of the client identifier from another user; rejects it if there are too many.
fn refuse_takeovers(
    shard: &Shard,
    login: &Arc<Login>,
    to: ConnAckFormat,
) -> Option<RejectedClient> {
    let mut flapping = shard.flapping.borrow_mut();
    let is_refused =
        flapping.is_taken_too_often(&login.client_id, shard.config().flapping, shard.now());
    is_refused.then(|| {
        RejectedClient::new(login, to, ReasonCode::CONNECTION_RATE_EXCEEDED)
            .because(DenialCause::Takeover)
            .with_reason_string("users take over this client identifier too often")
    })
}

/// Counts a connection of the client; if it connects too often, bans its identifier for its user alone, since others may
/// own it (abuse C25), and returns the rejection.
fn ban_if_flapping(shard: &Shard, login: &Arc<Login>, to: ConnAckFormat) -> Option<RejectedClient> {
    let (config, now) = (shard.config(), shard.now());
    let client = (&*login.client_id, login.username.as_deref());
    let mut flapping = shard.flapping.borrow_mut();
    if !flapping.is_flapping(client, config.flapping, now) {
        return None;
    }
    let reason = format!(
        "more than {} connections a minute",
        config.flapping.connects_per_minute
    );
    let bans = &shard.engine.bans;
    bans.add_automatic(BanTarget::own(login), reason, config.flapping.ban, now);
    shard.metrics().flapping_bans.add(1);
    shard.log.warn(LogCategory::Flapping, now, || {
        let (id, peer, seconds) = (Escaped(&login.client_id), login.peer, config.flapping.ban.as_secs());
        let user = login.username.as_deref().map(|name| format!("user {}", Escaped(name)));
        let whose = user.as_deref().unwrap_or("clients without user name");
        format!("client {id} at {peer} connects too often: for {whose} the client identifier is banned for {seconds} s")
    });
    Some(RejectedClient::new(login, to, ReasonCode::BANNED).because(DenialCause::Banned))
}

/// Cause, reason code and reason string of a denied session.
type SessionDenial = (DenialCause, ReasonCode, &'static str);

/// The reason why an authenticated client is denied this session; `None` if it is not.
fn session_denied(
    shard: &Shard,
    existing: Option<&Rc<Client>>,
    arrival: &AdmittedConnection,
) -> Option<SessionDenial> {
    if shard.engine.is_stopping() {
        let why = "the broker is stopping";
        return Some((DenialCause::Other, ReasonCode::SERVER_UNAVAILABLE, why));
    }
    let request = &arrival.request;
    let terms = terms(shard, arrival, existing.is_some());
    if !request.takes_connack(shard.now(), &terms) {
        let why = "CONNACK is too large";
        return Some((DenialCause::Other, ReasonCode::PACKET_TOO_LARGE, why));
    }
    let begins_kept = terms.session_expiry_s(request) > 0
        && !existing.is_some_and(|old| old.flags.has(Flag::Kept));
    if let Some(shortage) = lacks_memory(shard, begins_kept, request) {
        let login = &arrival.login;
        memory::log(shard, shortage, &login.client_id, login.peer);
        return Some((
            DenialCause::Memory,
            ReasonCode::QUOTA_EXCEEDED,
            shortage.text(),
        ));
    }
    let denied = existing.and_then(|old| takeover_denied(old, arrival));
    if denied.is_some() || !begins_kept {
        return denied;
    }
    kept_session_denied(shard, arrival)
}

/// The reason why one more session is not kept: disk or limit of sessions. Sessions that end with their connection are
/// limited with connections.
fn kept_session_denied(shard: &Shard, arrival: &AdmittedConnection) -> Option<SessionDenial> {
    if arrival.durability > Durability::Memory && shard.is_short_of_room() {
        let why = "the disk is nearly full";
        return Some((DenialCause::Disk, ReasonCode::QUOTA_EXCEEDED, why));
    }
    // ORDERING: a figure.
    let kept = shard.engine.kept_sessions.load(Ordering::Relaxed);
    let sessions = kept + shard.engine.loading.remaining().unwrap_or(0);
    let full = sessions >= shard.config().sessions as u64;
    // The new session is refused; existing ones are never evicted (abuse F12).
    full.then_some((
        DenialCause::Sessions,
        ReasonCode::QUOTA_EXCEEDED,
        "the limit of sessions is reached",
    ))
}

/// The reason why the client may not take over the session of `old`.
pub(super) fn takeover_denied(old: &Client, arrival: &AdmittedConnection) -> Option<SessionDenial> {
    let same_user = old.is_user(arrival.login.username.as_deref());
    let allowed = match arrival.access.grant.session.takeover {
        Takeover::Anyone => true,
        Takeover::SameUser => same_user,
        Takeover::Never => same_user && !old.is_online(),
    };
    (!allowed).then_some((
        DenialCause::Takeover,
        ReasonCode::CLIENT_IDENTIFIER_NOT_VALID,
        "another client uses this client identifier",
    ))
}

/// Whether the memory budget has no room for one more kept session or a large will (abuse F11).
fn lacks_memory(shard: &Shard, begins_kept: bool, request: &ConnectRequest) -> Option<Shortage> {
    let will = request.will.as_ref();
    let shortage = if begins_kept {
        Shortage::Session
    } else if will.is_some_and(|will| will.message.heap_bytes() > SMALL_WILL_BYTES) {
        Shortage::Will
    } else {
        return None;
    };
    memory::is_full(shard).then_some(shortage)
}

/// Wills up to this size are accepted while memory is short.
const SMALL_WILL_BYTES: usize = 1024;
