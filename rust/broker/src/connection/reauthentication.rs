//! Re-authentication of a connected client; its other packets are handled meanwhile.
//!
//! [MQTT-4.12.1-1, -2]. The method is that of CONNECT, and the user must stay the same. A new grant replaces the old
//! one; limits that CONNACK announced stay until the next CONNACK.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use mqttcore_codec::ReasonCode;
use mqttcore_session::{Details, Secret, reauthentication_refusal};
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};

use crate::clients::client::Client;
use crate::config::hooks::{
    AuthExchange, ExchangeReply, ExchangeStart, LoginDecision, Reply, refusing,
};
use crate::config::permissions::CompiledGrant;
use crate::config::plugin_event::EventKind;
use crate::connection::disconnect_cause::DisconnectCause;
use crate::connection::login_limits::{LimitedLogin, is_failed_login};
use crate::connection::renewal::{self, change_grant, is_same_user};
use crate::sessions::lifecycle::{arm, confirm, handle_events};
use crate::shard::{EventDetails, Shard};

/// An exchange in progress.
pub(crate) struct Reauthentication {
    conversation: Box<dyn AuthExchange>,
    /// The plugin's pending reply; `None` while the client has to answer.
    answer: Option<oneshot::Receiver<ExchangeReply>>,
    /// The user whom the exchange names.
    username: Option<String>,
    /// Deadline for the whole exchange; as long as for CONNECT.
    deadline: Pin<Box<Sleep>>,
    /// Number of invalidations before the plugin was asked.
    asked_at: u64,
}

impl Reauthentication {
    /// Starts an exchange with the plugin.
    ///
    /// # Errors
    ///
    /// The plugins no longer offer the method, or the client has too many failed logins.
    pub(crate) fn begin(
        shard: &Shard,
        client: &Client,
        data: Option<&[u8]>,
    ) -> Result<Self, DisconnectCause> {
        let method = client
            .session
            .borrow()
            .authentication_method()
            .map(Arc::from);
        let offered = |method: &Arc<str>| shard.interests().offers(method);
        let Some(method) = method.filter(offered) else {
            let text = "no plugin offers this authentication method";
            return Err(failed(
                shard,
                client,
                ReasonCode::BAD_AUTHENTICATION_METHOD,
                text,
            ));
        };
        refuse_paused(shard, client, None)?;
        let opening = ExchangeStart {
            login: client.login(),
            method,
            data: data.map(Secret::from),
            again: true,
        };
        let (reply, answer) = Reply::new();
        let asked_at = shard.engine.invalidations.count();
        Ok(Self {
            asked_at,
            conversation: shard.hooks().start_exchange(opening, reply),
            answer: Some(answer),
            username: None,
            deadline: Box::pin(sleep(shard.config().connect_deadline)),
        })
    }

    /// Passes the client's answer to the plugin.
    pub(crate) fn proceed(&mut self, data: Option<&[u8]>) {
        let (reply, answer) = Reply::new();
        self.conversation.proceed(data.map(Secret::from), reply);
        self.answer = Some(answer);
    }

    /// Advances the exchange; ready after the client has authenticated again, or failed.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        shard: &Rc<Shard>,
        client: &Rc<Client>,
    ) -> Poll<Result<(), DisconnectCause>> {
        if let Some(answer) = &mut self.answer
            && let Poll::Ready(turn) = Pin::new(answer).poll(cx)
        {
            self.answer = None;
            if let Some(end) = self.handle_reply(shard, client, turn.ok()) {
                return Poll::Ready(end);
            }
        }
        ready!(self.deadline.as_mut().poll(cx));
        let text = "authentication timed out";
        Poll::Ready(Err(failed(shard, client, ReasonCode::NOT_AUTHORIZED, text)))
    }

    /// Handles a reply of the plugin, `None` if there will be none; returns how the exchange has ended, if it has.
    fn handle_reply(
        &mut self,
        shard: &Rc<Shard>,
        client: &Rc<Client>,
        reply: Option<ExchangeReply>,
    ) -> Option<Result<(), DisconnectCause>> {
        match reply {
            Some(ExchangeReply::Challenge {
                data,
                text,
                username,
            }) => {
                self.username = username.or(self.username.take());
                if let Err(refused) = refuse_paused(shard, client, self.username()) {
                    return Some(Err(refused));
                }
                challenge(client, data.as_ref(), text.as_deref());
                client.flush_session(shard);
                None
            }
            Some(ExchangeReply::End { verdict, data }) => {
                let access = new_access(shard, client, verdict, self.username());
                let changed = access.map(|access| conclude(shard, client, access, data.as_ref()));
                if shard.engine.is_outdated(self.asked_at, client) {
                    renewal::start(shard, [Rc::clone(client)]);
                }
                Some(changed)
            }
            None => {
                let reason = ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR;
                Some(Err(failed(shard, client, reason, "")))
            }
        }
    }

    fn username(&self) -> Option<&str> {
        self.username.as_deref()
    }
}

fn challenge(client: &Client, data: Option<&Secret>, text: Option<&str>) {
    let details = text.map_or_else(Details::none, Details::reason);
    let data = data.map(Secret::as_bytes);
    client.session.borrow_mut().auth_continue(data, details);
}

/// Applies a new grant, and tells the client.
fn conclude(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    (access, user_properties): (CompiledGrant, UserProperties),
    data: Option<&Secret>,
) {
    change_grant(shard, client, access);
    let details = Details {
        reason_string: None,
        user_properties,
    };
    let data = data.map(Secret::as_bytes);
    client.session.borrow_mut().auth_succeed(data, details);
    confirm(shard, client);
    client.flush_session(shard);
    handle_events(shard, client);
    arm(shard, client);
}

/// The grant of a decision, and the user properties of the answer.
///
/// # Errors
///
/// The decision rejects the client or names another user.
fn new_access(
    shard: &Shard,
    client: &Client,
    verdict: LoginDecision,
    named: Option<&str>,
) -> Result<(CompiledGrant, UserProperties), DisconnectCause> {
    // As at CONNECT: an answer that comes after the limit was reached must not reveal whether the guess was right.
    refuse_paused(shard, client, named)?;
    let (grant, username, user_properties) = match verdict {
        LoginDecision::Allow {
            grant,
            username,
            user_properties,
        } => (grant, username, user_properties),
        LoginDecision::Pass => {
            let reason = ReasonCode::NOT_AUTHORIZED;
            count_failure(shard, client, named);
            return Err(failed(shard, client, reason, ""));
        }
        LoginDecision::Deny { reason, text } => {
            if is_failed_login(refusing(reason)) {
                count_failure(shard, client, named);
            }
            let text = text.unwrap_or_default();
            return Err(failed(shard, client, reason, &text));
        }
    };
    let login = client.login();
    if !is_same_user(&login, username.as_deref()) {
        // The session and its queued messages belong to the first user.
        let text = "re-authentication with another user name";
        count_failure(shard, client, named);
        return Err(failed(shard, client, ReasonCode::NOT_AUTHORIZED, text));
    }
    let Ok(access) = CompiledGrant::capped(*grant, &client.access().caps) else {
        let reason = ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR;
        return Err(failed(shard, client, reason, ""));
    };
    Ok((access, user_properties))
}

/// User properties that a plugin adds to AUTH.
type UserProperties = Vec<(Box<str>, Box<str>)>;

/// Rejects a client with too many failed logins of its own, or of the user whom the exchange names.
fn refuse_paused(
    shard: &Shard,
    client: &Client,
    named: Option<&str>,
) -> Result<(), DisconnectCause> {
    let Some(login) = limited_login(shard, client, named) else {
        return Ok(());
    };
    if is_same_user(&client.login(), named) {
        // The client has logged in from this address, so failed logins of others do not count for it.
        login.succeed(shard);
    }
    if !login.is_paused(shard) {
        return Ok(());
    }
    let text = "too many failed logins";
    Err(failed(shard, client, ReasonCode::NOT_AUTHORIZED, text))
}

/// Counts the failure for the user whom the exchange names, or for that of the client.
fn count_failure(shard: &Shard, client: &Client, named: Option<&str>) {
    let refusals = shard.metrics().refusals(client.listener());
    refusals.logins_failed.add(1);
    if let Some(login) = limited_login(shard, client, named) {
        login.fail(shard);
    }
}

fn limited_login(shard: &Shard, client: &Client, named: Option<&str>) -> Option<LimitedLogin> {
    let mut login = LimitedLogin::of(shard, &client.login())?;
    if let Some(named) = named {
        login.set_user(shard, named);
    }
    Some(login)
}

/// Reports the failure to plugins and returns the disconnect cause.
fn failed(shard: &Shard, client: &Client, reason: ReasonCode, text: &str) -> DisconnectCause {
    let reason = reauthentication_refusal(reason);
    let details = EventDetails {
        topic: None,
        reason: Some(reason),
        why: None,
    };
    shard.send_event(EventKind::AuthFailed, client, details);
    DisconnectCause::Refused {
        reason,
        text: text.into(),
    }
}
