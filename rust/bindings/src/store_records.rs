//! Records of a log as Python values, for `mqttcore store dump --json`.

use mqttcore_store::Logged;
use mqttcore_store::record::{MessageRecord, Record};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Sets fields of a dictionary.
macro_rules! set {
    ($dict:expr, $($key:literal: $value:expr),+ $(,)?) => {
        $( $dict.set_item($key, $value)?; )+
    };
}

/// A record with its place in the log; payloads, properties and values of notes by their length only.
pub(crate) fn fields_of<'py>(py: Python<'py>, logged: &Logged<'_>) -> PyResult<Bound<'py, PyDict>> {
    let told = PyDict::new(py);
    let place = logged.place;
    set!(told,
        "lsn": logged.lsn,
        "segment": place.segment,
        "offset": place.offset,
        "bytes": place.bytes,
    );
    set!(told, "record": fill(&told, &logged.record)?);
    Ok(told)
}

/// Sets the fields of a record; returns its name. Longer than other functions: it has one arm for each record.
fn fill(told: &Bound<'_, PyDict>, record: &Record<'_>) -> PyResult<&'static str> {
    Ok(match *record {
        Record::Message(ref message) => {
            fill_message(told, message)?;
            "message"
        }
        Record::Opened(opened) => {
            set!(told,
                "session": opened.session, "at_ms": opened.at_ms, "version": opened.version,
                "expiry_s": opened.expiry_s, "client_id": opened.client_id, "username": opened.username,
            );
            "opened"
        }
        Record::Away(away) => {
            set!(told,
                "session": away.session, "at_ms": away.at_ms, "expiry_s": away.expiry_s,
                "maybe_sent_below": away.maybe_sent_below,
            );
            "away"
        }
        Record::WillSet(ref will) => {
            set!(told,
                "session": will.session, "delay_s": will.delay_s, "qos": will.qos, "retain": will.retain,
                "topic": will.topic, "property_bytes": will.properties.len(), "payload_bytes": will.payload.len(),
            );
            "will_set"
        }
        Record::Route {
            message,
            first,
            recipients,
        } => {
            set!(told, "message": message, "first": first);
            let sessions: Vec<u64> = recipients.iter().map(|one| one.session).collect();
            set!(told, "recipients": sessions);
            "route"
        }
        Record::ExactlyOnceKey { session, packet_id } => {
            set!(told, "session": session, "packet_id": packet_id);
            "exactly_once_key"
        }
        Record::Released { session, packet_id } => {
            set!(told, "session": session, "packet_id": packet_id);
            "released"
        }
        Record::Sending {
            session,
            delivery,
            packet_id,
        } => {
            set!(told, "session": session, "delivery": delivery, "packet_id": packet_id);
            "sending"
        }
        Record::Received { session, packet_id } => {
            set!(told, "session": session, "packet_id": packet_id);
            "received"
        }
        Record::Completed {
            session,
            packet_ids,
        } => {
            set!(told, "session": session, "packet_ids": packet_ids.iter().collect::<Vec<u16>>());
            "completed"
        }
        Record::Dropped { session, delivery } => {
            set!(told, "session": session, "delivery": delivery);
            "dropped"
        }
        Record::Ended { session } => {
            set!(told, "session": session);
            "ended"
        }
        Record::Subscribed {
            session,
            options,
            id,
            filter,
        } => {
            set!(told, "session": session, "filter": filter, "options": options, "subscription_id": id);
            "subscribed"
        }
        Record::Unsubscribed { session, filter } => {
            set!(told, "session": session, "filter": filter);
            "unsubscribed"
        }
        Record::RetainCleared { topic } => {
            set!(told, "topic": topic);
            "retain_cleared"
        }
        Record::WillEnded { session } => {
            set!(told, "session": session);
            "will_ended"
        }
        Record::Stream {
            stream,
            epoch,
            name,
        } => {
            set!(told, "stream": stream, "epoch": epoch, "name": name);
            "stream"
        }
        Record::Sealed {
            stream,
            partition,
            end,
        } => {
            set!(told, "stream": stream, "partition": partition, "end": end);
            "sealed"
        }
        Record::Note { key, value } => {
            set!(told, "key": key, "value_bytes": value.len());
            "note"
        }
    })
}

fn fill_message(told: &Bound<'_, PyDict>, message: &MessageRecord<'_>) -> PyResult<()> {
    let recipients: Vec<u64> = message.recipients.iter().map(|one| one.session).collect();
    let rows = message.streamed.map(|streamed| streamed.rows.len());
    set!(told,
        "message": message.message, "qos": message.qos, "retain": message.retain, "kept": message.kept,
        "exactly_once": message.exactly_once, "expires_at_ms": message.expires_at_ms,
        "source": message.source, "username": message.username, "rows": rows.unwrap_or_default(),
        "topic": message.topic, "property_bytes": message.properties.len(), "recipients": recipients,
        "payload_bytes": message.payload.len(),
    );
    Ok(())
}
