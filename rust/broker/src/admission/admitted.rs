//! An authenticated connection that is not bound to its session yet, and the terms of the session.

use std::sync::Arc;

use mqttcore_codec::QoS;
use mqttcore_session::{
    Authentication, ConnectRequest, Details, Secret, SecretBuffer, ServerLimits, Terms,
};
use mqttcore_store::Durability;

use crate::clients::connections::ConnectionSlot;
use crate::config::grants::{Grant, GrantLimits};
use crate::config::hooks::Login;
use crate::config::permissions::CompiledGrant;
use crate::config::queue_policy::FullQueuePolicy;
use crate::shard::Shard;
use crate::transport::MovingTransport;

/// An authenticated connection that moves to the shard of its session.
pub(crate) struct AdmittedConnection {
    pub(crate) transport: MovingTransport,
    pub(crate) slot: ConnectionSlot,
    /// Bytes received after CONNECT.
    pub(crate) unread: SecretBuffer,
    pub(crate) request: ConnectRequest,
    pub(crate) login: Arc<Login>,
    pub(crate) access: Arc<CompiledGrant>,
    /// Durability of its messages and its session.
    pub(crate) durability: Durability,
    /// The policy of its grant or its listener for publishes to sessions whose queue is full.
    pub(crate) queue_policy: Option<FullQueuePolicy>,
    pub(crate) greeting: ConnAckFields,
    /// Number of invalidations before the plugins were asked.
    pub(crate) asked_at: u64,
}

/// Fields of CONNACK that a plugin sets.
#[derive(Default)]
pub(crate) struct ConnAckFields {
    pub(crate) user_properties: Vec<(Box<str>, Box<str>)>,
    /// Server Keep Alive in seconds.
    pub(crate) keep_alive_s: Option<u16>,
    /// The completed exchange of an enhanced authentication, and its last data.
    pub(crate) authentication: Option<Authentication>,
    pub(crate) authentication_data: Option<Secret>,
}

/// Whether the client resumes an existing session.
pub(crate) fn resumes(request: &ConnectRequest, grant: &Grant) -> bool {
    !request.clean_start && grant.session.resume
}

pub(super) fn terms(shard: &Shard, arrival: &AdmittedConnection, session_present: bool) -> Terms {
    let (grant, greeting) = (&arrival.access.grant, &arrival.greeting);
    let expiry_max = grant.session.expiry_max;
    Terms {
        session_present,
        assigned_client_id: arrival
            .request
            .client_id
            .is_none()
            .then(|| Arc::clone(&arrival.login.client_id)),
        server_keep_alive_s: greeting.keep_alive_s,
        authentication: greeting.authentication.clone(),
        authentication_data: greeting.authentication_data.clone(),
        details: Details {
            reason_string: None,
            user_properties: greeting.user_properties.clone(),
        },
        session_expiry_max_s: expiry_max
            .map(|longest| u32::try_from(longest.as_secs()).unwrap_or(u32::MAX)),
        ..Terms::new(limits(shard, &arrival.access))
    }
}

/// The broker's limits, or a copy with the limits of the grant and the listener; most clients share one.
fn limits(shard: &Shard, access: &CompiledGrant) -> Arc<ServerLimits> {
    let config = shard.config();
    let (grant, listener) = (&access.grant, &access.caps);
    let is_capped = listener.maximum_packet_size.is_some() || listener.receive_maximum.is_some();
    if grant.limits == GrantLimits::default() && !is_capped {
        return Arc::clone(&config.limits);
    }
    let mut limits = ServerLimits::clone(&config.limits);
    lower(
        &mut limits.maximum_packet_size,
        listener.maximum_packet_size,
    );
    lower(&mut limits.receive_maximum, listener.receive_maximum);
    let caps = grant.limits;
    limits.maximum_qos = limits
        .maximum_qos
        .min(caps.max_qos.unwrap_or(QoS::ExactlyOnce));
    lower(&mut limits.subscriptions, caps.subscriptions);
    lower(&mut limits.queue_messages, caps.queue_messages);
    lower(&mut limits.queue_bytes, caps.queue_bytes);
    lower(&mut limits.queue_disk_messages, caps.queue_messages);
    lower(&mut limits.queue_disk_bytes, caps.queue_bytes);
    Arc::new(limits)
}

fn lower<T: Copy + Ord>(limit: &mut T, cap: Option<T>) {
    *limit = cap.map_or(*limit, |cap| cap.min(*limit));
}
