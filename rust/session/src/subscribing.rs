//! SUBSCRIBE and UNSUBSCRIBE: the packets that change the subscriptions of a session.

use std::num::NonZeroU32;

use mqttcore_codec::{PacketType, ReasonCode, Subscribe, SubscriptionOptions, Unsubscribe};
use mqttcore_topics::{Options, SubscriptionFilter};

use crate::control::{Control, ControlKind, Details, ReasonsBody, listed};
use crate::gate::AckToken;
use crate::limits::ServerLimits;
use crate::request::{
    Request, SubscribeEntry, SubscribeRequest, UnsubscribeEntry, UnsubscribeRequest,
};
use crate::session::Session;
use crate::subscriptions::{Subscription, wildcard_levels};
use crate::transmit::with_length;
use crate::violation::Violation;

/// Maximum number of filters in one packet. Those of a SUBSCRIBE above `filters_per_packet` are refused one by one; a
/// packet with more than this number ends the connection.
const MOST_FILTERS: usize = 10_000;

impl Session {
    /// The granted subscriptions, sorted by filter text.
    pub fn subscriptions(&self) -> &[Subscription] {
        self.subscriptions.as_slice()
    }

    /// Completes a SUBSCRIBE: stores the granted subscriptions and queues SUBACK, with one code for each filter in
    /// their order [MQTT-3.8.4-6].
    ///
    /// If `details` has no reason string, the session adds its own for filters that it refused.
    ///
    /// Change the directory first. In a durable session SUBACK waits for the returned token. If the connection has
    /// ended meanwhile, only the subscriptions are stored.
    pub fn complete_subscribe(&mut self, request: SubscribeRequest, details: Details) -> AckToken {
        let is_listed = |entry: &SubscribeEntry| listed(entry.reason(), PacketType::SubAck);
        let reasons = request.entries.iter().map(is_listed).collect();
        let why = request.entries.iter().find_map(why_refused);
        for entry in request.entries {
            if entry.is_new
                && let Some(live) = self.live.get_mut()
            {
                let link = &mut live.link;
                link.requested = link.requested.saturating_sub(1);
                let levels = wildcard_levels(&entry.filter);
                link.requested_levels = link.requested_levels.saturating_sub(levels);
            }
            if entry.refused.is_none() {
                self.grant(entry.filter, entry.options);
            }
        }
        let details = self.allowed(details.or_reason(why));
        let body = ReasonsBody {
            packet_id: request.packet_id,
            reasons,
            details,
        };
        self.answer(Control(ControlKind::SubAck(Box::new(body))))
    }

    /// Completes an UNSUBSCRIBE: removes the subscriptions and queues UNSUBACK, with 0x11 for a filter without a
    /// subscription [MQTT-3.10.4-5].
    ///
    /// Change the directory first. In a durable session UNSUBACK waits for the returned token.
    pub fn complete_unsubscribe(
        &mut self,
        request: UnsubscribeRequest,
        details: Details,
    ) -> AckToken {
        let mut reasons = Vec::with_capacity(request.entries.len());
        for entry in request.entries {
            reasons.push(match entry.refused {
                Some(reason) => listed(reason, PacketType::UnsubAck),
                None if self.revoke(&entry.filter) => ReasonCode::SUCCESS,
                None => ReasonCode::NO_SUBSCRIPTION_EXISTED,
            });
        }
        let details = self.allowed(details);
        let body = ReasonsBody {
            packet_id: request.packet_id,
            reasons,
            details,
        };
        self.answer(Control(ControlKind::UnsubAck(Box::new(body))))
    }

    /// Removes a subscription that the client has lost the right to (abuse F16). The client is not told. Returns
    /// whether there was one.
    pub fn revoke(&mut self, filter: &SubscriptionFilter) -> bool {
        let is_removed = self.subscriptions.remove(filter);
        if is_removed && let Some(levels) = self.granted_levels() {
            *levels = levels.saturating_sub(wildcard_levels(filter));
        }
        is_removed
    }

    /// Adds a subscription that the client did not ask for, or replaces the one with the same filter. The client is not
    /// told. Change the directory first.
    pub fn grant(&mut self, filter: SubscriptionFilter, options: Options) {
        let levels = wildcard_levels(&filter);
        let is_new = levels > 0 && !self.subscriptions.contains(&filter);
        self.subscriptions.insert(filter, options);
        if is_new && let Some(granted) = self.granted_levels() {
            *granted = granted.saturating_add(levels);
        }
    }

    /// Levels of the granted filters, if they have been counted on this connection.
    fn granted_levels(&mut self) -> Option<&mut u32> {
        let levels = &mut self.live.get_mut()?.link.granted_levels;
        (*levels != u32::MAX).then_some(levels)
    }

    pub(crate) fn handle_subscribe(
        &mut self,
        subscribe: &Subscribe<'_>,
    ) -> Result<Request<'static>, Violation> {
        self.check_filters(subscribe.filters.len())?;
        let id = subscribe.properties.subscription_identifier();
        let parsed = parse_entries(subscribe, id, &self.limits)?;
        let mut entries: Vec<SubscribeEntry> = Vec::with_capacity(parsed.len());
        for (index, mut entry) in parsed.into_iter().enumerate() {
            entry.refused = subscribe_failure(&entry, index, &self.limits);
            entry.filter = self.mounted(entry.filter)?;
            if self.live.link.is_bridge {
                // A shared subscription must not have No Local [MQTT-3.8.3-4].
                entry.options.no_local = !entry.filter.is_shared();
                entry.options.retain_as_published = true;
            }
            if entry.refused.is_none() {
                entry.is_new = self.is_new(&entry, &entries);
                entry.refused = self.reserve(&entry);
            }
            entries.push(entry);
        }
        let packet_id = subscribe.packet_id;
        Ok(Request::Subscribe(SubscribeRequest { packet_id, entries }))
    }

    pub(crate) fn handle_unsubscribe(
        &mut self,
        unsubscribe: &Unsubscribe<'_>,
    ) -> Result<Request<'static>, Violation> {
        self.check_filters(unsubscribe.filters.len())?;
        let mut entries = Vec::with_capacity(unsubscribe.filters.len());
        for text in &unsubscribe.filters {
            let filter = SubscriptionFilter::parse(text, &self.limits.topic)
                .map_err(Violation::topic_filter)?;
            let filter = self.mounted(filter)?;
            let exists = self.subscriptions.contains(&filter);
            entries.push(UnsubscribeEntry {
                filter,
                exists,
                refused: None,
            });
        }
        let packet_id = unsubscribe.packet_id;
        Ok(Request::Unsubscribe(UnsubscribeRequest {
            packet_id,
            entries,
        }))
    }

    /// The client's filter with the prefix of its mount point.
    fn mounted(&self, filter: SubscriptionFilter) -> Result<SubscriptionFilter, Violation> {
        match &self.live.rare.mount_point {
            Some(mount_point) => mount_point.filter(filter).map_err(Violation::topic_filter),
            None => Ok(filter),
        }
    }

    /// Checks the number of filters before any is parsed, since each costs time (abuse E08, E12). The answer has a code
    /// for each of them: one that is too large for the client could not be sent [MQTT-3.1.2-24], and the client would
    /// wait for it [MQTT-3.8.4-1, MQTT-3.10.4-4].
    fn check_filters(&self, filters: usize) -> Result<(), Violation> {
        if filters > MOST_FILTERS.max(self.limits.filters_per_packet) {
            return Err(TOO_MANY_FILTERS);
        }
        let (packet_id, properties) = (2, 1);
        let answer_bytes = 1 + with_length(packet_id + properties + filters as u64);
        if answer_bytes > u64::from(self.live.link.packet_bytes) {
            return Err(ANSWER_TOO_LARGE);
        }
        Ok(())
    }

    fn is_new(&self, entry: &SubscribeEntry, before: &[SubscribeEntry]) -> bool {
        let is_same =
            |other: &SubscribeEntry| other.refused.is_none() && other.filter == entry.filter;
        !self.subscriptions.contains(&entry.filter) && !before.iter().any(is_same)
    }

    /// Counts a new subscription, or refuses it (abuse E08, E09).
    fn reserve(&mut self, entry: &SubscribeEntry) -> Option<ReasonCode> {
        if !entry.is_new {
            return None;
        }
        let (link, levels) = (&mut self.live.link, wildcard_levels(&entry.filter));
        if levels > 0 && link.granted_levels == u32::MAX {
            link.granted_levels = self.subscriptions.wildcard_levels();
        }
        let count = self.subscriptions.as_slice().len() + link.requested as usize;
        let requested_levels = link.requested_levels.saturating_add(levels);
        let sum = link.granted_levels.saturating_add(requested_levels);
        let is_costly = levels > 0 && sum as usize > self.limits.wildcard_levels;
        if count >= self.limits.subscriptions || is_costly {
            return Some(ReasonCode::QUOTA_EXCEEDED);
        }
        link.requested += 1;
        link.requested_levels = requested_levels;
        None
    }

    /// Queues SUBACK or UNSUBACK; in a durable session it waits for its record.
    fn answer(&mut self, control: Control) -> AckToken {
        if !self.is_durable {
            if self.is_connected() {
                self.live.controls.push_back(control);
            }
            return AckToken::default();
        }
        let token = self.gate.issue_token();
        if self.is_connected() {
            self.live.held.push(token, control);
        }
        token
    }
}

/// Parses every filter: an invalid filter makes the packet a violation (abuse E02, E06).
fn parse_entries(
    subscribe: &Subscribe<'_>,
    id: Option<NonZeroU32>,
    limits: &ServerLimits,
) -> Result<Vec<SubscribeEntry>, Violation> {
    let parse = |(text, options): &(mqttcore_codec::Text<'_>, SubscriptionOptions)| {
        let filter =
            SubscriptionFilter::parse(text, &limits.topic).map_err(Violation::topic_filter)?;
        if options.no_local && filter.is_shared() {
            return Err(NO_LOCAL_SHARED);
        }
        Ok(SubscribeEntry {
            filter,
            options: Options {
                qos: options.maximum_qos.min(limits.maximum_qos),
                no_local: options.no_local,
                retain_as_published: options.retain_as_published,
                id,
            },
            retain_handling: options.retain_handling,
            is_new: false,
            refused: None,
        })
    };
    subscribe.filters.iter().map(parse).collect()
}

/// Why a valid filter is refused.
fn subscribe_failure(
    entry: &SubscribeEntry,
    index: usize,
    limits: &ServerLimits,
) -> Option<ReasonCode> {
    if index >= limits.filters_per_packet {
        return Some(ReasonCode::QUOTA_EXCEEDED);
    }
    if entry.filter.is_shared() && !limits.shared_subscription_available {
        return Some(ReasonCode::SHARED_SUBSCRIPTIONS_NOT_SUPPORTED);
    }
    if entry.filter.filter().has_wildcard() && !limits.wildcard_subscription_available {
        return Some(ReasonCode::WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED);
    }
    if entry.options.id.is_some() && !limits.subscription_identifiers_available {
        return Some(ReasonCode::SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED);
    }
    None
}

/// Reason strings for these failures.
fn why_refused(entry: &SubscribeEntry) -> Option<&'static str> {
    match entry.refused? {
        ReasonCode::QUOTA_EXCEEDED if wildcard_levels(&entry.filter) > 0 => {
            Some("too many subscriptions, or too many levels from a + on")
        }
        ReasonCode::QUOTA_EXCEEDED => Some("too many subscriptions"),
        ReasonCode::SHARED_SUBSCRIPTIONS_NOT_SUPPORTED => {
            Some("shared subscriptions are not supported")
        }
        ReasonCode::WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED => {
            Some("wildcard subscriptions are not supported")
        }
        ReasonCode::SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED => {
            Some("subscription identifiers are not supported")
        }
        _ => None,
    }
}

const ANSWER_TOO_LARGE: Violation = Violation::limit(
    ReasonCode::PACKET_TOO_LARGE,
    "MQTT-3.1.2-24",
    "the acknowledgement exceeds the client's Maximum Packet Size",
);
const TOO_MANY_FILTERS: Violation = Violation::limit(
    ReasonCode::QUOTA_EXCEEDED,
    "limit filters_per_packet",
    "a packet has more than 10,000 topic filters",
);
const NO_LOCAL_SHARED: Violation = Violation::protocol(
    ReasonCode::PROTOCOL_ERROR,
    "MQTT-3.8.3-4",
    "No Local is set on a shared subscription",
);
