//! mqttcore-broker.
#![warn(missing_docs)]
