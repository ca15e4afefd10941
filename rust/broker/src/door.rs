//! A listener as clients meet it: its name, and what it gives to those without a user name.

use std::sync::Arc;

use crate::broker::StartError;
use crate::config::Config;
use crate::grants::Access;

/// One listener's rules, compiled once and shared by all who come through it.
pub(crate) struct Door {
    pub(crate) name: Arc<str>,
    pub(crate) anonymous: Option<Arc<Access>>,
}

/// Compiles the rules of every listener, in the order of the configuration.
///
/// # Errors
///
/// An anonymous grant with a rule that is no filter.
pub(crate) fn doors(config: &Config) -> Result<Arc<[Door]>, StartError> {
    let door = |listener: &crate::config::Listener| {
        let compiled = listener.anonymous.clone().map(Access::new).transpose();
        let anonymous = compiled.map_err(|error| StartError::Grant {
            name: listener.name.clone(),
            error,
        })?;
        Ok(Door {
            name: Arc::from(listener.name.as_str()),
            anonymous: anonymous.map(Arc::new),
        })
    };
    config.listeners.iter().map(door).collect()
}
