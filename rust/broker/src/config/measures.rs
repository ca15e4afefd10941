//! Counts and durations as reports have them.

use std::sync::Arc;

/// Names and counts.
pub type Tally = Vec<(&'static str, u64)>;

/// Durations by size.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Histogram {
    /// Sum of all durations in microseconds.
    pub sum_us: u64,
    /// Upper limits of the buckets in microseconds, and how many durations are in each; the last limit is `u64::MAX`.
    pub buckets: Vec<(u64, u64)>,
}

impl Histogram {
    /// A histogram; `buckets` as in the field.
    pub fn new(sum_us: u64, buckets: Vec<(u64, u64)>) -> Self {
        Self { sum_us, buckets }
    }
}

/// Whether `name` is that of a plugin, or of its module; `plugin` is its class with the module.
pub fn is_plugin_named(plugin: &str, name: &str) -> bool {
    let module = plugin.rsplit_once('.').map(|(module, _)| module);
    plugin == name || module == Some(name)
}

/// Whether a hook, with the name of its plugin in front, is of the plugin that [`is_plugin_named`] has.
pub(crate) fn is_hook_of(hook: &str, name: &str) -> bool {
    hook.rsplit_once('.')
        .is_some_and(|(plugin, _)| is_plugin_named(plugin, name))
}

/// The calls of one hook of a plugin.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HookCalls {
    /// The name of the plugin; from the second one of a name on, with a number.
    pub plugin: Arc<str>,
    /// The name of the hook, which is unique within the plugin.
    pub hook: Arc<str>,
    /// Results of calls, and of questions that were refused without a call.
    pub results: Tally,
    /// Calls that have not returned yet.
    pub in_flight: u64,
    /// Questions that a cache answered.
    pub cache_hits: u64,
    /// Durations of calls that came back.
    pub run: Histogram,
    /// Times from the question to its call.
    pub wait: Histogram,
    /// Questions that wait in its queue. Of several hooks that share a queue, the first one has them.
    pub waiting: u64,
    /// It is not called, because it keeps failing or blocks threads; questions are refused.
    pub is_paused: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_has_its_own_name_and_that_of_its_module() {
        let plugin = "mqttcore.auth.users.Users";

        for name in [plugin, "mqttcore.auth.users"] {
            assert!(is_plugin_named(plugin, name), "{name}");
            assert!(is_hook_of("mqttcore.auth.users.Users.login", name));
        }
        for name in ["", "Users", "mqttcore.auth", "mqttcore.auth.users.Users#2"] {
            assert!(!is_plugin_named(plugin, name), "{name}");
            assert!(!is_hook_of("mqttcore.auth.users.Users.login", name));
        }
        assert!(!is_plugin_named("alone", ""), "a class without a module");
        assert!(!is_hook_of("listener main", "listener main"));
    }
}
