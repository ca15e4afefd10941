//! Limits failed authentications by address.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::StatusCode;
use mqttcore_broker::AddressKey;

use super::problem::Problem;

/// Failures within [`WINDOW`] after which an address is refused.
const FAILURES_MAX: u32 = 10;
/// How long failures count, and how long an address is then refused.
const WINDOW: Duration = Duration::from_secs(60);
/// Maximum number of addresses; failures of further addresses are not counted.
const ADDRESSES_MAX: usize = 4_096;

/// The failures of each address.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<HashMap<AddressKey, Failed>>);

#[derive(Debug)]
struct Failed {
    count: u32,
    /// Time at which the failures are removed.
    until: Instant,
}

impl Failures {
    /// How long the address is still refused, in seconds; `None` if it may try.
    pub(crate) fn refused_for_s(&self, address: AddressKey, now: Instant) -> Option<u64> {
        let addresses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = addresses.get(&address)?;
        let is_refused = failed.count >= FAILURES_MAX && now < failed.until;
        is_refused.then(|| failed.until.duration_since(now).as_secs() + 1)
    }

    /// Counts a failure.
    pub(crate) fn count(&self, address: AddressKey, now: Instant) {
        let mut addresses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        addresses.retain(|_, failed| now < failed.until);
        if addresses.len() >= ADDRESSES_MAX && !addresses.contains_key(&address) {
            return;
        }
        let until = now + WINDOW;
        let failed = addresses
            .entry(address)
            .or_insert(Failed { count: 0, until });
        failed.count += 1;
        if failed.count == FAILURES_MAX {
            failed.until = until;
        }
    }
}

/// The response to an address that is refused for this time.
pub(super) fn too_many(seconds: u64) -> Problem {
    let text = "this address has sent 10 wrong keys or passwords";
    let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "many_failures", text);
    problem.retry_after(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_failures_within_a_minute_shut_an_address_out_for_a_minute() {
        let (failures, start) = (Failures::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let [bad, good] =
            ["10.0.0.1", "10.0.0.2"].map(|text| AddressKey::of(text.parse().unwrap()));
        for second in 0..9 {
            failures.count(bad, at(second));
        }
        assert_eq!(failures.refused_for_s(bad, at(9)), None);

        failures.count(bad, at(9));

        assert_eq!(failures.refused_for_s(bad, at(9)), Some(61));
        assert_eq!(failures.refused_for_s(good, at(9)), None);
        assert!(failures.refused_for_s(bad, at(68)).is_some());
        assert_eq!(failures.refused_for_s(bad, at(69)), None);
        failures.count(bad, at(70));
        assert_eq!(failures.refused_for_s(bad, at(70)), None);
    }
}
