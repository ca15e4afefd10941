//! mqttcore-bindings.
#![warn(missing_docs)]
