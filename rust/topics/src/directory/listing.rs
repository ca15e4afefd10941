//! Lists all subscriptions, some at a time.

use super::Directory;
use super::filters::FilterKey;
use crate::subscribers::{PackedSubscription, group_of, parts, set};
use crate::sync::pin;
use crate::{Options, SubscriberId, SubscriptionFilter};

/// Position of a listing. It holds no version, so it may be kept for any time.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The subscriber that is next, or in the middle of whose filters the listing is.
    number: u32,
    after: Option<FilterKey>,
}

impl Directory {
    /// Visits subscriptions, one subscriber after the other, from `listing` on; returns where to go on, or `None`
    /// at the end. `visit` gets the subscriber's handle, the filter and the options.
    ///
    /// A call looks at about `limit` subscriptions and subscribers (up to 32 more, so as not to divide a short list
    /// of filters). A subscription that is there during the whole listing is visited exactly once, one that comes
    /// or goes meanwhile once or not at all. `visit` runs under a pin and a subscriber's lock: it must not block,
    /// nor change this directory.
    pub fn list(
        &self,
        listing: Option<Listing>,
        limit: usize,
        visit: &mut dyn FnMut(u64, &SubscriptionFilter, Options),
    ) -> Option<Listing> {
        let Listing {
            mut number,
            mut after,
        } = listing.unwrap_or(Listing {
            number: 0,
            after: None,
        });
        let mut budget = limit.max(1);
        while number < self.clients.numbers() {
            if budget == 0 {
                return Some(Listing { number, after });
            }
            let mut seen = 0;
            after = self.list_one(
                SubscriberId(number),
                after.as_ref(),
                budget,
                &mut |handle, filter, options| {
                    seen += 1;
                    visit(handle, filter, options);
                },
            );
            number += u32::from(after.is_none());
            budget = budget.saturating_sub(seen.max(1));
        }
        None
    }

    fn list_one(
        &self,
        id: SubscriberId,
        after: Option<&FilterKey>,
        limit: usize,
        visit: &mut dyn FnMut(u64, &SubscriptionFilter, Options),
    ) -> Option<FilterKey> {
        let filters = self.clients.filters(id)?;
        let handle = self.clients.handle(id)?;
        filters.visit(after, limit, &mut |filter| {
            if let Some(options) = self.options(id, filter) {
                visit(handle, filter, options);
            }
        })
    }

    /// Returns what a subscriber asked for with a filter, if it is subscribed.
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
