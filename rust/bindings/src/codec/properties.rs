//! Converts MQTT 5.0 properties to and from pairs of name and value.

use std::num::{NonZeroU16, NonZeroU32};

use mqttcore_codec::{Properties, PropertiesBuf, Property, QoS, Text};
use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyTuple};

use crate::error::CoreError;

/// Generates both conversions from one table of properties and their Python names.
macro_rules! by_name {
    ($($variant:ident $name:literal $kind:ident)+) => {
        fn to_python<'py>(
            py: Python<'py>,
            property: Property<'_>,
        ) -> PyResult<(&'static str, Bound<'py, PyAny>)> {
            Ok(match property {
                $(Property::$variant(value) => ($name, by_name!(@out $kind py value)),)+
                Property::UserProperty(name, value) => (
                    "user_property",
                    (name.as_str(), value.as_str()).into_pyobject(py)?.into_any(),
                ),
            })
        }

        fn push(list: &mut PropertiesBuf, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
            match name {
                $($name => by_name!(@in $kind list $variant value),)+
                "user_property" => {
                    let (name, value): (PyBackedStr, PyBackedStr) = value.extract()?;
                    add(list, Property::UserProperty(text(&name)?, text(&value)?))
                }
                _ => Err(CoreError::Argument(format!("unknown property {name:?}")).into()),
            }
        }
    };
    (@out plain $py:ident $value:ident) => { $value.into_bound_py_any($py)? };
    (@out short $py:ident $value:ident) => { $value.get().into_bound_py_any($py)? };
    (@out long $py:ident $value:ident) => { $value.get().into_bound_py_any($py)? };
    (@out text $py:ident $value:ident) => { $value.as_str().into_bound_py_any($py)? };
    (@out bytes $py:ident $value:ident) => { PyBytes::new($py, $value).into_any() };
    (@out qos $py:ident $value:ident) => { ($value as u8).into_bound_py_any($py)? };
    (@in plain $list:ident $variant:ident $value:ident) => {
        add($list, Property::$variant($value.extract()?))
    };
    (@in short $list:ident $variant:ident $value:ident) => {
        add($list, Property::$variant($value.extract::<NonZeroU16>()?))
    };
    (@in long $list:ident $variant:ident $value:ident) => {
        add($list, Property::$variant($value.extract::<NonZeroU32>()?))
    };
    (@in text $list:ident $variant:ident $value:ident) => {
        add($list, Property::$variant(text(&$value.extract::<PyBackedStr>()?)?))
    };
    (@in bytes $list:ident $variant:ident $value:ident) => {
        add($list, Property::$variant(&$value.extract::<PyBackedBytes>()?))
    };
    (@in qos $list:ident $variant:ident $value:ident) => {
        add($list, Property::$variant(qos($value.extract()?)?))
    };
}

by_name! {
    PayloadFormatIndicator "payload_format_indicator" plain
    MessageExpiryInterval "message_expiry_interval" plain
    ContentType "content_type" text
    ResponseTopic "response_topic" text
    CorrelationData "correlation_data" bytes
    SubscriptionIdentifier "subscription_identifier" long
    SessionExpiryInterval "session_expiry_interval" plain
    AssignedClientIdentifier "assigned_client_identifier" text
    ServerKeepAlive "server_keep_alive" plain
    AuthenticationMethod "authentication_method" text
    AuthenticationData "authentication_data" bytes
    RequestProblemInformation "request_problem_information" plain
    WillDelayInterval "will_delay_interval" plain
    RequestResponseInformation "request_response_information" plain
    ResponseInformation "response_information" text
    ServerReference "server_reference" text
    ReasonString "reason_string" text
    ReceiveMaximum "receive_maximum" short
    TopicAliasMaximum "topic_alias_maximum" plain
    TopicAlias "topic_alias" short
    MaximumQoS "maximum_qos" qos
    RetainAvailable "retain_available" plain
    MaximumPacketSize "maximum_packet_size" long
    WildcardSubscriptionAvailable "wildcard_subscription_available" plain
    SubscriptionIdentifierAvailable "subscription_identifier_available" plain
    SharedSubscriptionAvailable "shared_subscription_available" plain
}

/// Converts properties to a tuple of (name, value), in the order of the packet.
pub(super) fn read<'py>(
    py: Python<'py>,
    properties: Properties<'_>,
) -> PyResult<Bound<'py, PyTuple>> {
    let pairs = properties.iter().map(|property| to_python(py, property));
    PyTuple::new(py, pairs.collect::<PyResult<Vec<_>>>()?)
}

/// Converts such pairs to properties.
pub(super) fn write(pairs: &[(PyBackedStr, Bound<'_, PyAny>)]) -> PyResult<PropertiesBuf> {
    let mut list = PropertiesBuf::default();
    for (name, value) in pairs {
        push(&mut list, name, value)?;
    }
    Ok(list)
}

fn add(list: &mut PropertiesBuf, property: Property<'_>) -> PyResult<()> {
    list.push(property).map_err(CoreError::from)?;
    Ok(())
}

pub(super) fn text(text: &str) -> PyResult<Text<'_>> {
    Ok(Text::new(text).map_err(CoreError::from)?)
}

pub(super) fn qos(value: u8) -> PyResult<QoS> {
    Ok(crate::topics::qos_of(value)?)
}
