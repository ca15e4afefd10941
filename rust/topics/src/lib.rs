//! mqttcore-topics.
#![warn(missing_docs)]
