//! Clients without traffic: what their connections and their filters cost the broker.

use std::io;

use super::connection::{self, Terms};
use super::options::Options;
use super::process;
use super::report::IdleReport;
use super::run;
use super::stream::Stream;

/// Filters of one client, and of one SUBSCRIBE: below what brokers allow by default.
const FILTERS_OF_CLIENT: usize = 1_000;
const FILTERS_OF_PACKET: usize = 100;

/// Opens idle connections and reads the broker's memory before and after.
///
/// # Errors
///
/// When there is no process to read, or a connection fails.
pub fn connections(options: &Options) -> io::Result<IdleReport> {
    let terms = run::terms(options)?;
    measured(options, options.connections, || {
        let mut held = Vec::with_capacity(options.connections);
        for place in 0..options.connections {
            let id = format!("load-idle-{place}");
            let filter = format!("load/idle/{place}/+");
            let subscription = (options.filters == 1).then_some((&*filter, options.qos));
            held.push(connection::open(&terms, &id, subscription)?);
        }
        Ok(held)
    })
}

/// Subscribes to filters and reads the broker's memory before and after; the memory of the few clients counts, too.
///
/// # Errors
///
/// As for [`connections`].
pub fn filters(options: &Options) -> io::Result<IdleReport> {
    let terms = run::terms(options)?;
    measured(options, options.filters, || {
        subscribers(&terms, options.filters)
    })
}

/// Clients that have `count` wildcard filters together, none of which matches a message of the load.
///
/// # Errors
///
/// When a connection fails, or the broker refuses a filter.
pub(super) fn subscribers(terms: &Terms, count: usize) -> io::Result<Vec<Stream>> {
    let mut held = Vec::with_capacity(count.div_ceil(FILTERS_OF_CLIENT));
    for first in (0..count).step_by(FILTERS_OF_CLIENT) {
        let mut stream = connection::open(terms, &format!("load-filters-{first}"), None)?;
        let last = count.min(first + FILTERS_OF_CLIENT);
        for from in (first..last).step_by(FILTERS_OF_PACKET) {
            let filters = (from..last.min(from + FILTERS_OF_PACKET))
                .map(|place| format!("load/filters/{}/+/{place}", place % 1_000));
            let filters: Vec<_> = filters.collect();
            connection::subscribe(&mut stream, &filters, 0, terms.version)?;
        }
        held.push(stream);
    }
    Ok(held)
}

/// The broker's memory before and with what `open` opens, and its processor time.
pub(super) fn measured(
    options: &Options,
    count: usize,
    open: impl FnOnce() -> io::Result<Vec<Stream>>,
) -> io::Result<IdleReport> {
    let pid = options
        .pid
        .ok_or_else(|| io::Error::other("--pid is missing"))?;
    let (before_bytes, before_s) = (process::resident_bytes(pid)?, process::cpu_seconds(pid)?);
    let held = open()?;
    let (after_bytes, after_s) = (process::resident_bytes(pid)?, process::cpu_seconds(pid)?);
    drop(held);
    Ok(IdleReport {
        count,
        before_bytes,
        after_bytes,
        broker_cpu_s: after_s - before_s,
        replay: None,
    })
}
