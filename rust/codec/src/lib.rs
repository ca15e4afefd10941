//! mqttcore-codec.
#![warn(missing_docs)]
