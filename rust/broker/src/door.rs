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

/// What `config` gives at the listeners that are bound, which a reload leaves as they are: by name,
/// and nothing to anonymous clients of a listener that the configuration no longer has.
///
/// # Errors
///
/// As [`doors`].
pub(crate) fn doors_of(bound: &[String], config: &Config) -> Result<Arc<[Door]>, StartError> {
    let configured = doors(config)?;
    let door = |name: &String| {
        let found = configured.iter().find(|door| *door.name == **name);
        Door {
            name: Arc::from(name.as_str()),
            anonymous: found.and_then(|door| door.anonymous.clone()),
        }
    };
    Ok(bound.iter().map(door).collect())
}
