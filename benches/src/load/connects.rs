//! Connections that are opened and closed again: TCP, TLS if asked for, CONNECT, CONNACK, DISCONNECT.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::connection::{self, Terms};
use super::histogram::Histogram;
use super::options::Options;
use super::process;
use super::report::Report;
use super::run;

/// Opens and closes connections for the measured time, on as many threads as there are publishers.
///
/// The report counts connections where other rows count messages.
///
/// # Errors
///
/// When a connection fails.
pub fn measure(options: &Options) -> io::Result<Report> {
    let terms = run::terms(options)?;
    open_for(options.warmup, options.publishers, &terms)?;
    let broker_cpu = || options.pid.map(process::cpu_seconds).transpose();
    let (broker_before, load_before) = (broker_cpu()?, process::cpu_seconds(std::process::id())?);
    let began = Instant::now();
    let (count, histogram) = open_for(options.measured, options.publishers, &terms)?;
    let seconds = began.elapsed().as_secs_f64();
    let broker_cpu_s = broker_cpu()?.zip(broker_before);
    Ok(Report {
        seconds,
        delivered: count,
        broker_cpu_s: broker_cpu_s.map(|(to, from)| to - from),
        load_cpu_s: process::cpu_seconds(std::process::id())? - load_before,
        p50_ns: histogram.quantile(0.5),
        p99_ns: histogram.quantile(0.99),
        ack_p50_ns: 0,
        ack_p99_ns: 0,
        sent: count,
        topic_bytes: 0.0,
        synced: None,
        lost: 0,
        duplicated: 0,
    })
}

/// An address of the loopback for each thread: one address has too few ports for connections that were closed a
/// moment ago.
fn source(broker: IpAddr, thread: usize) -> Option<IpAddr> {
    let host = u8::try_from(thread).ok()?.checked_add(2)?;
    (broker == Ipv4Addr::LOCALHOST).then_some(IpAddr::from([127, 0, 0, host]))
}

/// How many connections there were, and how long each took until its CONNACK.
fn open_for(time: Duration, threads: usize, terms: &Terms) -> io::Result<(u64, Histogram)> {
    let until = Instant::now() + time;
    let all = Mutex::new((0, Histogram::default()));
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|number| {
                let all = &all;
                let terms = Terms {
                    source: source(terms.address.ip(), number),
                    ..terms.clone()
                };
                scope.spawn(move || -> io::Result<()> {
                    let id = format!("load-c{number}");
                    while Instant::now() < until {
                        let began = Instant::now();
                        let stream = connection::open(&terms, &id, None)?;
                        let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
                        connection::close(stream)?;
                        let mut all = all.lock().map_err(|_| io::ErrorKind::Other)?;
                        all.0 += 1;
                        all.1.record(took);
                    }
                    Ok(())
                })
            })
            .collect();
        for thread in threads {
            let ended = thread.join();
            ended.map_err(|_| io::Error::other("a thread of the load panicked"))??;
        }
        io::Result::Ok(())
    })?;
    all.into_inner()
        .map_err(|_| io::Error::other("a thread of the load panicked"))
}
