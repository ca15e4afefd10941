//! Questions of the hooks that decide about whole packets: CONNECT after authentication, and SUBSCRIBE.

use std::sync::Arc;
use std::time::Duration;

use mqttcore_codec::{QoS, ReasonCode, RetainHandling};
use mqttcore_session::SubscribeEntry;

use crate::config::hooks::Login;
use crate::config::permissions::CompiledGrant;

/// Changes by plugins for one connection. Limits can only be lowered.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ConnectChanges {
    /// Server Keep Alive in seconds; 3.x clients keep their own (abuse C28).
    pub keep_alive_s: Option<u16>,
    /// Highest session expiry in seconds.
    pub session_expiry_max_s: Option<u32>,
    /// Highest QoS that the client may publish and subscribe with.
    pub max_qos: Option<QoS>,
    /// PUBLISH packets that are read from it each second.
    pub messages_per_second: Option<u32>,
    /// User properties for CONNACK, behind those of its login.
    pub user_properties: Vec<(Box<str>, Box<str>)>,
}

impl ConnectChanges {
    /// Adds the changes of the next plugin: the lowest limit holds, and the last Keep Alive.
    pub fn merge(&mut self, next: Self) {
        self.keep_alive_s = next.keep_alive_s.or(self.keep_alive_s);
        lower(&mut self.session_expiry_max_s, next.session_expiry_max_s);
        lower(&mut self.max_qos, next.max_qos);
        lower(&mut self.messages_per_second, next.messages_per_second);
        self.user_properties.extend(next.user_properties);
    }

    /// The grant with these limits; the same one if they do not lower it.
    pub(crate) fn apply(&self, access: &Arc<CompiledGrant>) -> Arc<CompiledGrant> {
        let mut grant = access.grant.clone();
        let expiry_max = self.session_expiry_max_s.map(u64::from);
        let expiry_max = expiry_max.map(Duration::from_secs);
        lower(&mut grant.session.expiry_max, expiry_max);
        lower(&mut grant.limits.max_qos, self.max_qos);
        lower(
            &mut grant.limits.messages_per_second,
            self.messages_per_second,
        );
        let is_lowered = grant.limits != access.grant.limits
            || grant.session.expiry_max != access.grant.session.expiry_max;
        if !is_lowered {
            return Arc::clone(access);
        }
        Arc::new(CompiledGrant {
            grant,
            permissions: access.permissions.clone(),
            caps: Arc::clone(&access.caps),
            is_anonymous: access.is_anonymous,
        })
    }
}

/// Lowers a limit; `None` is no limit.
fn lower<T: Copy + Ord>(limit: &mut Option<T>, cap: Option<T>) {
    *limit = limit.iter().copied().chain(cap).min();
}

/// The plugins' decision about the CONNECT of an authenticated client.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ConnectDecision {
    /// Connect it, with these changes.
    Allow(ConnectChanges),
    /// Refuse it.
    Deny {
        /// A value below 0x80 is sent as "not authorized".
        reason: ReasonCode,
        /// For people; must not contain secrets.
        text: Option<String>,
    },
    /// Refuse it and name another server.
    Redirect {
        /// Server Reference, for clients of MQTT 5.0.
        server: String,
        /// "Server moved" instead of "use another server".
        is_permanent: bool,
    },
}

/// The filters of one SUBSCRIBE that its client may subscribe to.
#[derive(Clone, Debug)]
pub struct SubscribeBatch {
    /// The client.
    pub login: Arc<Login>,
    /// The filters, in the order of the packet.
    pub entries: Vec<SubscribeEntry>,
}

/// The decision about one filter. The answer to a [`SubscribeBatch`] has one for each filter, in order; filters
/// without one are refused with "implementation specific error".
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SubscribeDecision {
    /// Subscribe.
    Subscribe {
        /// Highest QoS of its deliveries; a value above the requested one changes nothing.
        max_qos: QoS,
        /// How to handle retained messages.
        retain_handling: RetainHandling,
    },
    /// Refuse it.
    Deny {
        /// As for [`ConnectDecision::Deny`].
        reason: ReasonCode,
        /// As for [`ConnectDecision::Deny`].
        text: Option<String>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::permissions::Permissions;

    #[test]
    fn the_lowest_limits_of_all_plugins_hold_and_the_last_keep_alive() {
        let mut changes = ConnectChanges {
            keep_alive_s: Some(10),
            session_expiry_max_s: Some(60),
            max_qos: Some(QoS::ExactlyOnce),
            ..ConnectChanges::default()
        };

        changes.merge(ConnectChanges {
            keep_alive_s: Some(20),
            session_expiry_max_s: Some(90),
            max_qos: Some(QoS::AtMostOnce),
            messages_per_second: Some(5),
            user_properties: vec![("a".into(), "b".into())],
        });

        assert_eq!(changes.keep_alive_s, Some(20));
        assert_eq!(changes.session_expiry_max_s, Some(60));
        assert_eq!(changes.max_qos, Some(QoS::AtMostOnce));
        assert_eq!(changes.messages_per_second, Some(5));
        assert_eq!(changes.user_properties.len(), 1);
    }

    #[test]
    fn a_grant_is_lowered_and_never_raised() {
        let mut granted = CompiledGrant::of(Permissions::default());
        granted.grant.limits.max_qos = Some(QoS::AtMostOnce);
        granted.grant.limits.messages_per_second = Some(100);
        let granted = Arc::new(granted);
        let changes = ConnectChanges {
            max_qos: Some(QoS::ExactlyOnce),
            messages_per_second: Some(5),
            ..ConnectChanges::default()
        };

        let limits = changes.apply(&granted).grant.limits;

        assert_eq!(limits.max_qos, Some(QoS::AtMostOnce));
        assert_eq!(limits.messages_per_second, Some(5));
    }

    #[test]
    fn clients_without_changes_share_their_grant() {
        let granted = Arc::new(CompiledGrant::of(Permissions::default()));
        let changes = ConnectChanges {
            keep_alive_s: Some(5),
            ..ConnectChanges::default()
        };

        assert!(Arc::ptr_eq(&changes.apply(&granted), &granted));
    }
}
