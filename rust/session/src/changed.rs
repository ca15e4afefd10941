//! Messages that a plugin has changed.

use std::time::Instant;

use mqttcore_codec::{EncodeError, Properties, PropertiesBuf, Property, Text, TextError};
use mqttcore_topics::{TopicError, TopicName};
use thiserror::Error;

use crate::composed::MessageError;
use crate::limits::ServerLimits;
use crate::message::{Message, is_forwarded};

/// Changes of a message by a plugin; a field that is `None` stays as it is.
#[derive(Clone, Debug, Default)]
pub struct MessageChanges {
    /// The topic name.
    pub topic: Option<String>,
    /// The payload.
    pub payload: Option<Vec<u8>>,
    /// The RETAIN flag.
    pub retain: Option<bool>,
    /// Message Expiry Interval in seconds, from now on.
    pub expiry_interval_s: Option<u32>,
    /// Content Type.
    pub content_type: Option<String>,
    /// All User Properties.
    pub user_properties: Option<Vec<(String, String)>>,
}

/// Why a message cannot be changed in this way.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ChangeError {
    /// The new topic is not a topic name.
    #[error("topic: {0}")]
    Topic(#[from] TopicError),
    /// A new text is too long or has U+0000.
    #[error("property: {0}")]
    Text(#[from] TextError),
    /// The properties are too large for a packet.
    #[error("properties: {0}")]
    Properties(#[from] EncodeError),
    /// The parts do not fit together, or are too large for a packet.
    #[error(transparent)]
    Message(#[from] MessageError),
}

impl Message {
    /// The message with `changes`. QoS and DUP stay as they are, and so does its expiry unless it is changed.
    ///
    /// Payload Format Indicator is left out if the new payload is not UTF-8.
    ///
    /// # Errors
    ///
    /// [`ChangeError`]
    pub fn changed(
        &self,
        changes: &MessageChanges,
        now: Instant,
        limits: &ServerLimits,
    ) -> Result<Self, ChangeError> {
        let topic = match &changes.topic {
            Some(text) => TopicName::parse(text, &limits.topic)?,
            None => self.topic_name(),
        };
        let properties = changed_properties(self.properties(), changes)?;
        let properties = properties.as_properties();
        let payload = changes.payload.as_deref().unwrap_or(self.payload());
        let retain = changes.retain.unwrap_or(self.retain());
        let message = Self::composed(topic, properties, payload, self.qos(), retain, limits)?;
        let message = message.with_dup(self.dup());
        Ok(match changes.expiry_interval_s {
            Some(_) => message.published_at(now),
            None => message.expiring_with(self),
        })
    }
}

fn changed_properties(
    properties: Properties<'_>,
    changes: &MessageChanges,
) -> Result<PropertiesBuf, ChangeError> {
    let payload = changes.payload.as_deref();
    let is_text = payload.is_none_or(|payload| std::str::from_utf8(payload).is_ok());
    let mut list = PropertiesBuf::default();
    for property in properties {
        let is_kept = match property {
            Property::MessageExpiryInterval(_) => changes.expiry_interval_s.is_none(),
            Property::ContentType(_) => changes.content_type.is_none(),
            Property::UserProperty(..) => changes.user_properties.is_none(),
            Property::PayloadFormatIndicator(true) => is_text,
            property => is_forwarded(&property),
        };
        if is_kept {
            list.push(property)?;
        }
    }
    if let Some(seconds) = changes.expiry_interval_s {
        list.push(Property::MessageExpiryInterval(seconds))?;
    }
    if let Some(text) = &changes.content_type {
        list.push(Property::ContentType(Text::new(text)?))?;
    }
    for (name, value) in changes.user_properties.iter().flatten() {
        list.push(Property::UserProperty(Text::new(name)?, Text::new(value)?))?;
    }
    Ok(list)
}
