//! Lists all subscriptions, in several calls.

use super::Directory;
use crate::subscribers::{PackedSubscription, group_of, parts, set};
use crate::sync::pin;
use crate::{Options, SubscriberId, SubscriptionFilter};

/// Position of a listing. It holds no version, so it may be kept for any time.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// The next subscriber, or the one whose filters are listed partly.
    number: u32,
    /// The hash from which on its filters are left.
    from: u64,
}

impl Directory {
    /// Visits subscriptions, one subscriber after the other, from `listing` on; returns where to continue, or `None`
    /// at the end. `visit` gets the subscriber's handle, the filter and the options.
    ///
    /// A call visits about `limit` subscriptions and subscribers (up to 32 more, so that a short list of filters is
    /// not divided). A subscription that exists during the whole listing is visited exactly once; one that is added
    /// or removed in the meantime, once or not at all. `visit` runs under a pin and a subscriber's lock: it must not
    /// block, nor change this directory.
    pub fn list(
        &self,
        listing: Option<Listing>,
        limit: usize,
        visit: &mut dyn FnMut(u64, &SubscriptionFilter, Options),
    ) -> Option<Listing> {
        let Listing {
            mut number,
            mut from,
        } = listing.unwrap_or_default();
        let mut budget = limit.max(1);
        while number < self.clients.numbers() {
            if budget == 0 {
                return Some(Listing { number, from });
            }
            let mut seen = 0;
            let next = self.list_one(
                SubscriberId(number),
                (from, budget),
                &mut |handle, filter, options| {
                    seen += 1;
                    visit(handle, filter, options);
                },
            );
            number += u32::from(next.is_none());
            from = next.unwrap_or(0);
            budget = budget.saturating_sub(seen.max(1));
        }
        None
    }

    fn list_one(
        &self,
        id: SubscriberId,
        part: (u64, usize),
        visit: &mut dyn FnMut(u64, &SubscriptionFilter, Options),
    ) -> Option<u64> {
        let filters = self.clients.filters(id)?;
        let handle = self.clients.handle(id)?;
        filters.visit(&self.hasher, part, &mut |filter| {
            if let Some(options) = self.options(id, filter) {
                visit(handle, filter, options);
            }
        })
    }

    /// Returns the options of a subscription; `None` if there is none.
    pub fn options(&self, id: SubscriberId, filter: &SubscriptionFilter) -> Option<Options> {
        let guard = pin();
        let version = self.root.load(&guard);
        let payload = version.payload(&self.hasher, filter.filter());
        let set = match filter.share() {
            Some(name) => group_of(payload, &self.hasher, name).members,
            None => parts(payload).0,
        };
        set::of(set, id).map(PackedSubscription::options)
    }
}
