//! Refuses a new session whose user, or whose address, has too many already (abuse F12, ADR 0039).

use std::rc::Rc;

use mqttcore_codec::ReasonCode;

use crate::admission::admitted::{AdmittedConnection, resumes};
use crate::admission::denial_cause::DenialCause;
use crate::admission::rejection::RejectedClient;
use crate::clients::client::Client;
use crate::clients::shares::{Owner, Share};
use crate::config::address_limits::share_of;
use crate::config::hooks::Login;
use crate::shard::Shard;

/// The owner that the session of this client counts for; `None` if it ends with its connection, or has no limit.
pub(crate) fn owner(shard: &Shard, login: &Login, expiry_s: u32) -> Option<Owner> {
    let owner = shard
        .engine
        .owners
        .of(login, &shard.config().address_limits);
    owner.filter(|_| expiry_s > 0)
}

/// The rejection of a new session if its owner has too many. Existing sessions stay.
pub(crate) fn refuse_above_share(
    shard: &Shard,
    existing: Option<&Rc<Client>>,
    arrival: &AdmittedConnection,
    expiry_s: u32,
) -> Option<RejectedClient> {
    let owner = owner(shard, &arrival.login, expiry_s)?;
    let stays = |old: &Rc<Client>| {
        let is_kept = old.session.borrow().expiry_interval_s() > 0;
        is_kept && resumes(&arrival.request, &arrival.access.grant)
            || old.owner(shard) == Some(owner)
    };
    let config = shard.config();
    let most = Share {
        entries: share_of(config.sessions, config.user_limits.sessions),
        bytes: usize::MAX,
    };
    if existing.is_some_and(stays) || shard.engine.session_shares.has_room(owner, 0, most) {
        return None;
    }
    let login = &arrival.login;
    let text = if login.username.is_some() {
        "the user has too many sessions"
    } else {
        "the address has too many sessions"
    };
    let to = arrival.request.recipient();
    let denied =
        RejectedClient::new(login, to, ReasonCode::QUOTA_EXCEEDED).with_reason_string(text);
    Some(denied.because(DenialCause::SessionShare))
}
