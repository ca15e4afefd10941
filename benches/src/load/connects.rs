//! Connections that are opened and closed again: TCP, TLS if asked for, CONNECT, CONNACK, DISCONNECT.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};

use super::connection::{self, Connection, HANDSHAKE, Terms, Unread};
use super::framing;
use super::histogram::Histogram;
use super::options::Options;
use super::process;
use super::report::Report;
use super::run;

/// Opens and closes connections for the measured time, as many at once as there are publishers.
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

/// How many connections there were, and how long each took until its CONNACK.
fn open_for(time: Duration, clients: usize, terms: &Terms) -> io::Result<(u64, Histogram)> {
    let until = Instant::now() + time;
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(clients);
    let (mut count, mut histogram) = (0, Histogram::default());
    let mut unread = Unread::default();
    let mut clients = (0..clients)
        .map(|place| Client::connect(terms, &poll, place).map(Some))
        .collect::<io::Result<Vec<_>>>()?;
    while clients.iter().any(Option::is_some) {
        poll.poll(&mut events, Some(HANDSHAKE))?;
        if events.is_empty() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        for event in &events {
            let Token(place) = event.token();
            let Some(client) = &mut clients[place] else {
                continue;
            };
            let Some(took_ns) = client.turn(&mut unread)? else {
                continue;
            };
            clients[place] = None;
            count += 1;
            histogram.record(took_ns);
            if Instant::now() < until {
                clients[place] = Some(Client::connect(terms, &poll, place)?);
            }
        }
    }
    Ok((count, histogram))
}

/// An address of the loopback for each client: the side that closes first keeps the port for a minute, and those of one
/// address would soon be used up.
fn source(broker: IpAddr, place: usize) -> Option<IpAddr> {
    let host = u8::try_from(place % 250 + 2).ok()?;
    (broker == Ipv4Addr::LOCALHOST).then_some(IpAddr::from([127, 0, 0, host]))
}

/// A connection until its CONNACK: behind it the client sends DISCONNECT and closes at once, as MQTT has it
/// [MQTT-3.14.4-1].
struct Client {
    connection: Connection,
    began: Instant,
}

impl Client {
    /// Connects and sends CONNECT: on the loopback, a connection is there as soon as the system was asked for it.
    fn connect(terms: &Terms, poll: &Poll, place: usize) -> io::Result<Self> {
        let began = Instant::now();
        let mut connection = Connection::begin(terms, source(terms.address.ip(), place))?;
        let connect = framing::connect(&format!("load-c{place}"), terms.kept, terms.version);
        connection.out().extend_from_slice(&connect);
        connection.flush()?;
        let interest = match connection.backlog() {
            0 => Interest::READABLE,
            _ => Interest::READABLE | Interest::WRITABLE,
        };
        poll.registry()
            .register(connection.source(), Token(place), interest)?;
        Ok(Self { connection, began })
    }

    /// Handles what came; once that is CONNACK, disconnects and answers how long it took.
    fn turn(&mut self, unread: &mut Unread) -> io::Result<Option<u64>> {
        self.connection.fill(unread)?;
        if unread.is_empty() {
            self.connection.flush()?;
            return Ok(None);
        }
        let took = self.began.elapsed();
        // A broker sends the few bytes of CONNACK with one write, and nothing behind them.
        connection::accepted(unread.bytes())?;
        unread.clear();
        let out = self.connection.out();
        out.extend_from_slice(&framing::DISCONNECT);
        self.connection.flush()?;
        Ok(Some(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::ceiling;

    fn load(listener: &TcpListener) -> Options {
        let address = listener.local_addr().unwrap();
        let line = format!("connects --address {address} --seconds 0.1 --warmup 0");
        Options::parse(line.split_whitespace().map(String::from)).unwrap()
    }

    #[test]
    fn clients_connect_again_behind_their_disconnect() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let options = load(&listener);
        thread::spawn(move || ceiling::run(listener));

        let report = measure(&options).unwrap();

        assert!(report.delivered > 2 * options.publishers as u64);
        assert!(report.p99_ns > 0);
    }

    #[test]
    fn a_client_that_is_refused_ends_the_row() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let options = load(&listener);
        thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            client.write_all(&[0x20, 2, 0, 5]).unwrap();
            thread::park();
        });

        let refused = measure(&options).unwrap_err();

        assert!(refused.to_string().starts_with("CONNECT was answered"));
    }
}
