//! mqttcore-session.
#![warn(missing_docs)]
