//! Shared groups: chooses the member that gets a message, and the next one if this member cannot take it.
//!
//! The shard of the publisher chooses by the availability of the sessions, which all shards can read: whether a
//! session is connected, whether a message would be queued, whether it refused the last message. Availability is a
//! hint, since a message may be in a mailbox while a queue fills. If the member cannot take the message, its shard
//! chooses among the members that were not tried yet. A message moves at most as many times as the group has members,
//! and only to a member that has not refused since it last had room. Denials are not part of availability, so the
//! number of denied members that are tried is limited. Each move is recorded in the store, in one batch with the
//! removal from the previous member.

use std::rc::Rc;

use mqttcore_codec::QoS;
use mqttcore_session::Message;
use mqttcore_topics::{Match, Search, SubscriberId, Visitor};

use crate::clients::client::Client;
use crate::clients::flags::Flag;
use crate::clients::handle::Handle;
use crate::clients::presence::Availability;
use crate::clients::target::{GroupDelivery, Target};
use crate::routing::{delivery, journal, message_records};
use crate::shard::Shard;

/// The availability of a session for messages of a shared group.
#[derive(Clone, Copy, Eq, PartialEq)]
enum MemberAvailability {
    /// It is away, and would drop the message.
    None,
    /// It is connected, but refused the last one; or its queue is full.
    Refused,
    /// It is away, and would keep the message.
    Away,
    /// The message would wait behind others.
    Waits,
    /// It is sent at once.
    Taken,
}

/// Judges the members of groups for a message of some QoS.
#[derive(Clone, Copy)]
pub(crate) struct AvailabilityCheck<'a> {
    shard: &'a Shard,
    qos: QoS,
}

impl<'a> AvailabilityCheck<'a> {
    pub(crate) fn new(shard: &'a Shard, qos: QoS) -> Self {
        Self { shard, qos }
    }

    fn availability_of(self, candidate: &Match<'_>) -> MemberAvailability {
        let handle = Handle::of_word(candidate.handle);
        let availability = self
            .shard
            .engine
            .availability
            .availability(handle.shard(), handle.slot());
        let waits = |welcome| {
            let is_full = self.shard.engine.durable.is_full(handle);
            if is_full {
                MemberAvailability::Refused
            } else {
                welcome
            }
        };
        match (availability.is_online, availability.is_refusing) {
            (true, true) => MemberAvailability::Refused,
            (true, false) if availability.is_full => waits(MemberAvailability::Waits),
            (true, false) => MemberAvailability::Taken,
            (false, false) if self.would_keep(candidate.qos) => waits(MemberAvailability::Away),
            (false, _) => MemberAvailability::None,
        }
    }

    /// Whether a member that is away would keep the message, if it was granted this QoS.
    fn would_keep(self, granted: QoS) -> bool {
        let limits = &self.shard.config().limits;
        limits.queue_qos0 || limits.outgoing_qos(self.qos, granted) > QoS::AtMostOnce
    }

    /// See [`Visitor::away_may_keep`].
    pub(crate) fn away_may_keep(self) -> bool {
        self.would_keep(QoS::ExactlyOnce)
    }

    /// Whether a member would take a message at once.
    pub(crate) fn takes(self, candidate: &Match<'_>) -> bool {
        self.availability_of(candidate) == MemberAvailability::Taken
    }

    /// See [`Visitor::standby`].
    pub(crate) fn standby(self, candidate: &Match<'_>) -> u8 {
        match self.availability_of(candidate) {
            MemberAvailability::None | MemberAvailability::Refused => 0,
            MemberAvailability::Away => 1,
            MemberAvailability::Waits | MemberAvailability::Taken => 2,
        }
    }
}

/// Finds the next member for a message.
struct NextMember<'a> {
    shard: &'a Shard,
    judge: AvailabilityCheck<'a>,
    retain: bool,
    found: Option<(Target, SubscriberId)>,
}

impl NextMember<'_> {
    fn choose(&mut self, member: &Match<'_>) {
        self.found = Some((Target::of(member, self.retain), member.subscriber));
    }
}

impl Visitor for NextMember<'_> {
    fn searched(&mut self, search: Search) {
        self.shard.count_steps(search.steps);
    }

    fn plain(&mut self, _: Match<'_>) {}

    fn shared(&mut self, candidate: Match<'_>) -> bool {
        self.shard.count_steps(1);
        let takes = self.judge.takes(&candidate);
        if takes {
            self.choose(&candidate);
        }
        takes
    }

    fn standby(&mut self, candidate: Match<'_>) -> u8 {
        self.shard.count_steps(1);
        self.judge.standby(&candidate)
    }

    fn away_may_keep(&self) -> bool {
        self.judge.away_may_keep()
    }

    fn shared_offline(&mut self, first_choice: Match<'_>) {
        // A member that has just refused a message would refuse this one, too.
        if self.judge.standby(&first_choice) > 0 {
            self.choose(&first_choice);
        }
    }
}

/// Passes a message that the session of `target` cannot take to the next member of the group: returns this member if
/// it lives on this shard, otherwise sends the message to its shard.
///
/// # Errors
///
/// The target comes back if it is of no group, if nobody else there can take the message, or if `most_tried` members
/// were chosen already.
pub(crate) fn redeliver(
    shard: &Rc<Shard>,
    refused: Option<&Rc<Client>>,
    message: &Message,
    mut target: Target,
    most_tried: usize,
) -> Result<Option<Target>, Target> {
    let chosen = target.choice.as_ref();
    let chosen = chosen.filter(|chosen| chosen.tried().len() < most_tried);
    let Some((mut next, member)) = chosen.and_then(|chosen| successor(shard, message, chosen))
    else {
        return Err(target);
    };
    let Some(mut choice) = target.choice.take() else {
        return Err(target);
    };
    let state = choice.state_mut();
    state.tried.push(member);
    next.may_exceed = target.may_exceed;
    shard.metrics().shared_handed_on.add(1);
    let waits_for =
        message_records::write_requeued(shard, refused, message, target.key, (&mut next, state));
    next.choice = Some(choice);
    if let Some(durability) = waits_for {
        journal::deliver_when_safe(shard, durability, message, vec![next]);
        return Ok(None);
    }
    if next.handle.shard() == shard.index {
        return Ok(Some(next));
    }
    delivery::deliver_to_shards(shard, message, std::iter::once(next));
    Ok(None)
}

fn successor(
    shard: &Shard,
    message: &Message,
    choice: &GroupDelivery,
) -> Option<(Target, SubscriberId)> {
    let mut successor = NextMember {
        shard,
        judge: AvailabilityCheck::new(shard, message.qos()),
        retain: message.retain(),
        found: None,
    };
    let snapshot = shard.engine.directory.snapshot();
    snapshot.offer_again(choice.group(), choice.tried(), &mut successor);
    successor.found
}

/// Shared subscriptions give their messages to other members until this one can take some again (abuse E17).
pub(crate) fn mark_full(shard: &Shard, client: &Client) {
    change_signs(shard, client, |availability| availability.is_full = true);
}

/// The same, and it has just refused one.
pub(crate) fn mark_refusing(shard: &Shard, client: &Client) {
    change_signs(shard, client, |availability| {
        (availability.is_full, availability.is_refusing) = (true, true);
    });
}

/// Updates the availability of a client after its turn: with room for queued messages it takes those that would be
/// queued, with an empty queue it takes all.
pub(crate) fn update_availability(shard: &Shard, client: &Client, outbox_bytes: usize) {
    if !client.flags.has(Flag::HasSigns) {
        return;
    }
    change_signs(shard, client, |availability| {
        if !availability.is_full && !availability.is_refusing {
            return;
        }
        let session = client.session.borrow();
        let has_room = outbox_bytes <= shard.config().limits.qos0_backlog_bytes;
        availability.is_refusing &= !(has_room && session.has_queue_room());
        availability.is_full &= outbox_bytes > 0 || session.is_full();
    });
}

fn change_signs(shard: &Shard, client: &Client, change: impl FnOnce(&mut Availability)) {
    let online = &shard.engine.availability;
    let before = online.availability(shard.index, client.handle.slot());
    let mut availability = before;
    change(&mut availability);
    let has_signs = availability.is_full || availability.is_refusing;
    client.flags.set(Flag::HasSigns, has_signs);
    if availability != before {
        online.set(shard.index, client.handle.slot(), availability);
    }
}

/// Tells the members' groups that a client has a connection now, or has none any more.
pub(crate) fn set_online(shard: &Shard, client: &Client, is_online: bool) {
    let availability = Availability::connected(is_online);
    let engine = &shard.engine;
    engine
        .availability
        .set(shard.index, client.handle.slot(), availability);
    engine.directory.set_available(client.subscriber, is_online);
}
