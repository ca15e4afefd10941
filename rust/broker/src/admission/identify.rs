//! Authenticates a client: anonymous access, the `authenticate` hook, or enhanced authentication ([`exchange`](super::exchange)).

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use mqttcore_codec::ReasonCode;
use mqttcore_session::{Authentication, ConnAckFormat, ConnectRequest};
use mqttcore_tls::ClientCertificate;
use tokio::sync::oneshot;

use crate::admission::admitted::ConnAckFields;
use crate::admission::denial_cause::DenialCause;
use crate::admission::handshake::Handshake;
use crate::admission::rejection::{RejectReason, RejectedClient};
use crate::config::PeerIdentity;
use crate::config::grants::ListenerCaps;
use crate::config::hooks::{Login, LoginDecision, LoginExtras, Reply, refusing};
use crate::config::permissions::CompiledGrant;
use crate::connection::login_limits::{LimitedLogin, is_failed_login};
use crate::connection::proxy_header::InvalidProxyHeader;

/// A client that the plugins, or anonymous access, admit.
pub(crate) struct Identified {
    pub(crate) access: Arc<CompiledGrant>,
    pub(crate) name: UserName,
    pub(crate) greeting: ConnAckFields,
}

/// The user name of an admitted client.
pub(crate) enum UserName {
    /// The user name of CONNECT, or none. The plugin that admitted the client has verified it.
    Sent,
    /// A name that a plugin set.
    Given(String),
    /// No user name, even if CONNECT has one: no plugin has verified it.
    Anonymous,
}

impl UserName {
    /// The login with this user name and without its password, which is wiped when the last question that has it is
    /// dropped.
    pub(crate) fn apply(self, login: Arc<Login>) -> Arc<Login> {
        let username = match self {
            Self::Sent => login.username.clone(),
            Self::Given(name) => Some(name.into()),
            Self::Anonymous => None,
        };
        if login.password.is_none() && username == login.username {
            return login;
        }
        Arc::new(Login {
            username,
            password: None,
            ..(*login).clone()
        })
    }
}

impl Handshake<'_> {
    /// Replaces the user name of `request` by the identity of the peer or of its certificate; returns false if the
    /// listener uses neither, or there is no certificate.
    ///
    /// # Errors
    ///
    /// The certificate or the peer has no such name: the client is rejected, so that it does not come in as another user.
    pub(crate) fn name_by_identity(
        &self,
        request: &mut ConnectRequest,
    ) -> Result<bool, RejectReason> {
        let Some(name) = self.name_of_peer()?.or(self.name_in_certificate()?) else {
            return Ok(false);
        };
        request.username = Some(name.into());
        Ok(true)
    }

    /// The user name by `identity` of the listener: that of the peer.
    fn name_of_peer(&self) -> Result<Option<String>, RejectReason> {
        match self.policy.identity {
            None => Ok(None),
            Some(PeerIdentity::Uid) => match self.peer.uid() {
                Some(uid) => Ok(Some(uid.to_string())),
                None => Err(RejectReason::Silent("the peer has no user id")),
            },
            Some(PeerIdentity::ProxyCommonName) => match &self.proxied {
                None => Ok(None),
                Some(certificate) => match &certificate.common_name {
                    Some(name) => Ok(Some(name.to_string())),
                    None => Err(RejectReason::Proxy(InvalidProxyHeader(
                        "the client's certificate has no common name",
                    ))),
                },
            },
            Some(PeerIdentity::ProxyCertificate(identity)) => match &self.proxied {
                None => Ok(None),
                Some(certificate) => match &certificate.whole {
                    Some(whole) => {
                        let name = whole.username(identity);
                        let name = name.map_err(|error| RejectReason::Tls(error.to_string()))?;
                        Ok(Some(name.to_owned()))
                    }
                    None => Err(RejectReason::Proxy(InvalidProxyHeader(
                        "the proxy does not send the client's certificate",
                    ))),
                },
            },
        }
    }

    /// The client's certificate: its own, or that of its header if a proxy is trusted with the identity.
    fn certificate(&self) -> Option<Arc<ClientCertificate>> {
        let proxied = self.proxied.as_ref();
        let whole = proxied.and_then(|certificate| certificate.whole.clone());
        let is_trusted = matches!(
            self.policy.identity,
            Some(PeerIdentity::ProxyCommonName | PeerIdentity::ProxyCertificate(_))
        );
        self.certificate.clone().or(whole.filter(|_| is_trusted))
    }

    /// The user name by `identity` of the listener's TLS: a field of the certificate.
    fn name_in_certificate(&self) -> Result<Option<String>, RejectReason> {
        let identity = self
            .policy
            .tls
            .as_ref()
            .and_then(|tls| tls.settings().identity);
        let Some((identity, certificate)) = identity.zip(self.certificate.as_ref()) else {
            return Ok(None);
        };
        let name = certificate.username(identity);
        let name = name.map_err(|error| RejectReason::Tls(error.to_string()))?;
        Ok(Some(name.into()))
    }

    /// The login of `request`, from which it takes the password.
    pub(crate) fn login(&self, request: &mut ConnectRequest, is_certified: bool) -> Login {
        let assigned = || format!("mqttcore-{:016x}", self.shard.engine.unique());
        let client_id = match &request.client_id {
            Some(id) => Arc::clone(id),
            None => Arc::from(assigned()),
        };
        let will = request.will.as_ref();
        let extras = LoginExtras {
            certificate: self.certificate(),
            will_topic: will.map(|will| will.message.topic().into()),
            user_properties: owned(&request.user_properties),
        };
        Login {
            client_id,
            version: request.version,
            username: request.username.as_deref().map(Arc::from),
            password: request.password.take().map(Arc::new),
            is_certified,
            peer: self.peer,
            listener: Arc::clone(&self.policy.name),
            clean_start: request.clean_start,
            keep_alive_s: request.keep_alive_s,
            session_expiry_interval_s: request.session_expiry_interval_s,
            extras: extras.shared(),
        }
    }

    /// Authenticates by the method of CONNECT if it has one, else by the plugins, else by anonymous access if the listener
    /// allows it. Then a client without a user name is anonymous, and no plugin is asked.
    pub(crate) async fn authenticate(
        &mut self,
        request: &mut ConnectRequest,
        login: &Arc<Login>,
    ) -> Result<Identified, RejectReason> {
        let limits = Arc::clone(&self.shard.config().limits);
        let exchange = Authentication::begin(request, &limits);
        let to = request.recipient();
        if exchange.is_none() {
            if request.username.is_none()
                && let Some(anonymous) = self.anonymous()
            {
                return Ok(anonymous);
            }
            if !self.shard.interests().authenticate {
                let denied = || RejectedClient::new(login, to, ReasonCode::NOT_AUTHORIZED).into();
                return self.anonymous().ok_or_else(denied);
            }
        }
        let mut limited = LimitedLogin::of(self.shard, login);
        self.refuse_paused(limited, login, to)?;
        let identified = match exchange {
            None => self.ask(login, to).await,
            // Boxed, so that other handshakes do not need its space.
            Some(exchange) => {
                Box::pin(self.run_exchange(request, login, exchange, &mut limited)).await
            }
        };
        self.count_login(limited, login, to, identified)
    }

    /// Rejects a login after too many failures, before its password is checked.
    fn refuse_paused(
        &self,
        limited: Option<LimitedLogin>,
        login: &Arc<Login>,
        to: ConnAckFormat,
    ) -> Result<(), RejectReason> {
        if !limited.is_some_and(|limited| limited.is_paused(self.shard)) {
            return Ok(());
        }
        Err(too_many_failed(login, to))
    }

    /// Counts the outcome of a login.
    fn count_login(
        &self,
        limited: Option<LimitedLogin>,
        login: &Arc<Login>,
        to: ConnAckFormat,
        identified: Result<Identified, RejectReason>,
    ) -> Result<Identified, RejectReason> {
        let has_failed = matches!(&identified, Err(RejectReason::Denied(denied)) if is_failed_login(denied.reason));
        if has_failed {
            let refusals = self.shard.metrics().refusals(Some(self.listener));
            refusals.logins_failed.add(1);
        }
        // An answer that comes after the limit was reached must not reveal whether the guess was right.
        self.refuse_paused(limited, login, to)?;
        match (limited, &identified) {
            (Some(limited), Err(_)) if has_failed => limited.fail(self.shard),
            (Some(limited), Ok(identified)) if !matches!(identified.name, UserName::Anonymous) => {
                limited.succeed(self.shard);
            }
            _ => {}
        }
        identified
    }

    /// Asks the plugins about a user name and its password.
    async fn ask(
        &mut self,
        login: &Arc<Login>,
        to: ConnAckFormat,
    ) -> Result<Identified, RejectReason> {
        let (reply, answer) = Reply::new();
        self.shard.hooks().authenticate(Arc::clone(login), reply);
        match self.while_connected(answer).await? {
            Some(LoginDecision::Pass) => {
                let denied =
                    || RejectedClient::new(login, to, ReasonCode::BAD_USER_NAME_OR_PASSWORD);
                self.anonymous().ok_or_else(|| denied().into())
            }
            Some(verdict) => judge(login, to, verdict, UserName::Sent, &self.policy.caps),
            None => Err(unanswered(login, to, ReasonCode::SERVER_UNAVAILABLE)),
        }
    }

    /// Anonymous access, if the listener allows it.
    fn anonymous(&self) -> Option<Identified> {
        let access = self.policy.anonymous.as_ref()?;
        Some(Identified {
            access: Arc::clone(access),
            name: UserName::Anonymous,
            greeting: ConnAckFields::default(),
        })
    }

    /// Waits for a plugin's answer while the client is connected.
    pub(super) async fn while_connected<T>(
        &mut self,
        mut answer: oneshot::Receiver<T>,
    ) -> Result<Option<T>, RejectReason> {
        let mut watching = true;
        poll_fn(|cx| {
            if let Poll::Ready(answer) = Pin::new(&mut answer).poll(cx) {
                return Poll::Ready(Ok(answer.ok()));
            }
            if watching {
                match self.transport.poll_gone(cx) {
                    Poll::Ready(true) => {
                        return Poll::Ready(Err(RejectReason::Silent(
                            "the client disconnected during authentication",
                        )));
                    }
                    Poll::Ready(false) => watching = false,
                    Poll::Pending => {}
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// The refusal of a login after too many failed logins.
pub(super) fn too_many_failed(login: &Arc<Login>, to: ConnAckFormat) -> RejectReason {
    let denied = RejectedClient::new(login, to, ReasonCode::BANNED);
    let denied = denied.because(DenialCause::FailedLogins);
    denied.with_reason_string("too many failed logins").into()
}

/// Converts a plugin's decision; `unnamed` is the user name if the plugin sets none.
pub(super) fn judge(
    login: &Arc<Login>,
    to: ConnAckFormat,
    verdict: LoginDecision,
    unnamed: UserName,
    caps: &Arc<ListenerCaps>,
) -> Result<Identified, RejectReason> {
    match verdict {
        LoginDecision::Allow {
            grant,
            username,
            user_properties,
        } => {
            let access = CompiledGrant::capped(*grant, caps).map_err(|error| RejectedClient {
                fault: Some(error.to_string()),
                ..RejectedClient::new(login, to, ReasonCode::SERVER_UNAVAILABLE)
            })?;
            Ok(Identified {
                access: Arc::new(access),
                name: username.map_or(unnamed, UserName::Given),
                greeting: ConnAckFields {
                    user_properties,
                    ..ConnAckFields::default()
                },
            })
        }
        LoginDecision::Pass => {
            let reason = ReasonCode::BAD_USER_NAME_OR_PASSWORD;
            Err(RejectedClient::new(login, to, reason).into())
        }
        LoginDecision::Deny { reason, text } => Err(RejectReason::from(RejectedClient {
            text,
            ..RejectedClient::new(login, to, refusing(reason))
        })),
    }
}

/// The rejection if no plugin answered: authentication fails closed.
pub(super) fn unanswered(
    login: &Arc<Login>,
    to: ConnAckFormat,
    reason: ReasonCode,
) -> RejectReason {
    RejectReason::from(RejectedClient {
        fault: Some("no plugin answered".into()),
        ..RejectedClient::new(login, to, reason)
    })
}

/// Copies user properties.
fn owned(properties: &[(Box<str>, Box<str>)]) -> Vec<(String, String)> {
    let pairs = properties.iter();
    pairs
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect()
}
