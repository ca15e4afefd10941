//! A listener as clients meet it: its name, its transport, and what it gives to those without a
//! user name.

use std::sync::Arc;

use mqttcore_store::Level;

use crate::broker::StartError;
use crate::config::{Config, Listener, WebSocketRules};
use crate::grants::Access;

/// One listener's rules, compiled once and shared by all who come through it.
pub(crate) struct Door {
    pub(crate) name: Arc<str>,
    pub(crate) anonymous: Option<Arc<Access>>,
    /// How safe what its clients do is.
    pub(crate) promise: Option<Level>,
    /// How its clients ask for WebSocket frames; `None`: there are none.
    pub(crate) websocket: Option<Arc<WebSocketRules>>,
}

/// Compiles the rules of every listener, in the order of the configuration.
///
/// # Errors
///
/// An anonymous grant with a rule that is no filter.
pub(crate) fn doors(config: &Config) -> Result<Arc<[Door]>, StartError> {
    let door = |listener: &Listener| {
        let compiled = listener.anonymous.clone().map(Access::new).transpose();
        let anonymous = compiled.map_err(|error| StartError::Grant {
            name: listener.name.clone(),
            error,
        })?;
        Ok(Door {
            name: Arc::from(listener.name.as_str()),
            anonymous: anonymous.map(Arc::new),
            promise: listener.promise,
            websocket: listener.websocket.clone().map(Arc::new),
        })
    };
    config.listeners.iter().map(door).collect()
}

/// What `config` gives at the listeners that are bound, which a reload leaves as they are: by name,
/// and nothing to anonymous clients of a listener that the configuration no longer has. What is
/// spoken there stays; who may ask for it need not.
///
/// # Errors
///
/// As [`doors`].
pub(crate) fn doors_of(bound: &[Listener], config: &Config) -> Result<Arc<[Door]>, StartError> {
    let configured = doors(config)?;
    let door = |bound: &Listener| {
        let found = configured.iter().find(|door| *door.name == *bound.name);
        let rules = found.and_then(|door| door.websocket.clone());
        Door {
            name: Arc::from(bound.name.as_str()),
            anonymous: found.and_then(|door| door.anonymous.clone()),
            promise: found.and_then(|door| door.promise),
            websocket: bound
                .websocket
                .clone()
                .map(|own| rules.unwrap_or(Arc::new(own))),
        }
    };
    Ok(bound.iter().map(door).collect())
}
