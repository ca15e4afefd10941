//! Mount points: a prefix of all topics of a client, hidden from the client.

use std::fmt;
use std::sync::Arc;

use crate::{SubscriptionFilter, TopicError, TopicFilter, TopicLimits, TopicName, TopicNameBuf};

/// A prefix of whole levels. Topics that begin with `$` do not get it.
///
/// The client uses the visible name, the broker the internal name, which has the prefix. A client cannot see an
/// internal name whose visible part is empty or begins with `$`: `$SYS` belongs to the broker, and a leading wildcard
/// does not match it [MQTT-4.7.2-1].
#[derive(Clone, Eq, PartialEq)]
pub struct MountPoint(
    /// Ends with `/`.
    Arc<str>,
);

impl MountPoint {
    /// Checks `text`, a topic name; a `/` at its end is optional.
    ///
    /// # Errors
    ///
    /// Those of [`TopicName::parse`], and [`TopicError::MountPointBeginsWithDollar`].
    pub fn parse(text: &str) -> Result<Self, TopicError> {
        let levels = text.strip_suffix('/').unwrap_or(text);
        let name = TopicName::parse(levels, &TopicLimits::WIDEST)?;
        if name.is_dollar() {
            return Err(TopicError::MountPointBeginsWithDollar);
        }
        Ok(Self(format!("{levels}/").into()))
    }

    /// Returns the internal name of a visible one, if it is another.
    ///
    /// # Errors
    ///
    /// [`TopicError::TooLong`] and [`TopicError::TooManyLevels`] beyond what any name may be.
    pub fn name(&self, visible: TopicName<'_>) -> Result<Option<TopicNameBuf>, TopicError> {
        if visible.is_dollar() {
            return Ok(None);
        }
        let text = self.before(visible.as_str());
        TopicNameBuf::parse(text, &TopicLimits::AS_IT_CAME).map(Some)
    }

    /// Returns the internal filter of a visible one, in the same group if it is shared.
    ///
    /// # Errors
    ///
    /// As [`MountPoint::name`].
    pub fn filter(&self, visible: SubscriptionFilter) -> Result<SubscriptionFilter, TopicError> {
        let filter = visible.filter().as_str();
        if filter.starts_with('$') {
            return Ok(visible);
        }
        let filter = self.before(filter);
        let text = match visible.share() {
            Some(name) => format!("$share/{}/{filter}", name.as_str()),
            None => filter,
        };
        SubscriptionFilter::parse(&text, &TopicLimits::AS_IT_CAME)
    }

    /// Length of the prefix of an internal name that is hidden from the client; `None` if the client cannot
    /// see the name.
    #[inline]
    pub fn hidden_bytes(&self, internal: &str) -> Option<usize> {
        match internal.strip_prefix(&*self.0) {
            Some(visible) => {
                let is_seen = !visible.is_empty() && !visible.starts_with('$');
                is_seen.then_some(self.0.len())
            }
            None => internal.starts_with('$').then_some(0),
        }
    }

    /// Whether a client behind this mount point could have sent the internal filter.
    pub fn holds(&self, internal: &TopicFilter) -> bool {
        self.hidden_bytes(internal.as_str()).is_some()
    }

    /// The mount point as configured, without a `/` at its end.
    pub fn as_str(&self) -> &str {
        self.0.strip_suffix('/').unwrap_or(&self.0)
    }

    fn before(&self, visible: &str) -> String {
        [&*self.0, visible].concat()
    }
}

impl fmt::Debug for MountPoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "MountPoint({:?})", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(text: &str) -> MountPoint {
        MountPoint::parse(text).unwrap()
    }

    fn name(text: &str) -> TopicName<'_> {
        TopicName::parse(text, &TopicLimits::default()).unwrap()
    }

    fn filter(text: &str) -> String {
        let visible = SubscriptionFilter::parse(text, &TopicLimits::default()).unwrap();
        mount("plant/1")
            .filter(visible)
            .unwrap()
            .as_str()
            .to_owned()
    }

    #[test]
    fn names_and_filters_stand_behind_it_and_groups_before_it() {
        let mount = mount("plant/1");

        let internal = |visible| mount.name(name(visible)).unwrap().unwrap();
        assert_eq!(internal("a").as_name(), name("plant/1/a"));
        assert_eq!(internal("/a").as_name(), name("plant/1//a"));
        assert_eq!(filter("#"), "plant/1/#");
        assert_eq!(filter("$share/g/+/x"), "$share/g/plant/1/+/x");
    }

    #[test]
    fn names_that_begin_with_a_dollar_are_outside_of_it() {
        assert_eq!(mount("plant/1").name(name("$SYS/broker")), Ok(None));
        assert_eq!(filter("$SYS/#"), "$SYS/#");
        assert_eq!(filter("$share/g/$SYS/#"), "$share/g/$SYS/#");
    }

    #[test]
    fn what_a_client_sees_is_what_it_could_have_written() {
        let mount = mount("plant/1");
        let seen = |internal| mount.hidden_bytes(internal);

        assert_eq!(seen("plant/1/a"), Some(8));
        assert_eq!(seen("$SYS/broker"), Some(0));
        for hidden in [
            "plant/1",
            "plant/1/",
            "plant/10/a",
            "plant",
            "a",
            "plant/1/$SYS/x",
            "/plant/1/a",
        ] {
            assert_eq!(seen(hidden), None, "{hidden}");
        }
    }

    /// Abuse G10
    #[test]
    fn dots_and_empty_levels_lead_nowhere_else() {
        let mount = mount("plant/1");

        for text in ["../2/a", "..", "/", "//plant/2/a", "plant/2/a"] {
            let internal = mount.name(name(text)).unwrap().unwrap();
            let internal = internal.as_name().as_str();
            assert_eq!(&internal[..8], "plant/1/");
            assert_eq!(&internal[mount.hidden_bytes(internal).unwrap()..], text);
        }
    }

    #[test]
    fn a_slash_at_its_end_makes_no_difference_and_what_is_no_name_is_refused() {
        assert_eq!(mount("plant/1/"), mount("plant/1"));
        for (text, error) in [
            ("", TopicError::Empty),
            ("/", TopicError::Empty),
            ("a/+", TopicError::WildcardInName),
            ("$SYS", TopicError::MountPointBeginsWithDollar),
        ] {
            assert_eq!(MountPoint::parse(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn a_name_that_would_be_too_long_or_too_deep_behind_it_is_refused() {
        let mount = mount("plant/1");
        let long = "a".repeat(65_535);
        let deep = ["a"; 1023].join("/");
        let widest = |text| TopicName::parse(text, &TopicLimits::WIDEST).unwrap();

        assert_eq!(mount.name(widest(&long)), Err(TopicError::TooLong));
        assert_eq!(mount.name(widest(&deep)), Err(TopicError::TooManyLevels));
    }
}
