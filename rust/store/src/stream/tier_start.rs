//! Object storage during the start: every call ends within a limit, also to a mounted folder that does not answer.

use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::stream::tier::{Objects, TierOptions};

/// Objects whose calls fail if they are not answered until a time.
#[derive(Debug)]
struct LimitedObjects {
    objects: Arc<dyn Objects>,
    limit: Duration,
    until: Instant,
}

/// The same object storage, whose calls together take no longer than the limit for the start of a stream.
pub(super) fn limited(options: &TierOptions) -> TierOptions {
    TierOptions {
        objects: Arc::new(LimitedObjects {
            objects: Arc::clone(&options.objects),
            limit: options.start_limit,
            until: Instant::now() + options.start_limit,
        }),
        ..options.clone()
    }
}

impl LimitedObjects {
    /// Waits for a call on a thread of its own. If the time is over, the objects are closed and the thread is left behind:
    /// the call changes no object any more.
    fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn Objects) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (sender, answers) = channel();
        let objects = Arc::clone(&self.objects);
        let run = move || {
            // Without a receiver nobody waits any more.
            let _ = sender.send(call(&*objects));
        };
        mqttcore_panics::spawn("mqttcore-tier-start", |_| (), run)?;
        let left = self.until.saturating_duration_since(Instant::now());
        answers.recv_timeout(left).unwrap_or_else(|_| {
            self.objects.close();
            Err(io::Error::new(io::ErrorKind::TimedOut, self.advice()))
        })
    }

    fn advice(&self) -> String {
        format!(
            "{} did not answer within {} s: check that this machine reaches it (mount, network, credentials), and start \
             again; without [streams.tier] in its configuration, the stream starts without its object storage",
            self.objects.place(),
            self.limit.as_secs()
        )
    }
}

impl Objects for LimitedObjects {
    fn url(&self) -> &str {
        self.objects.url()
    }

    fn place(&self) -> String {
        self.objects.place()
    }

    /// The content is copied: at the start only small objects are written.
    fn put(&self, name: &str, content: &mut dyn Read, bytes: u64) -> io::Result<()> {
        let mut copied = Vec::new();
        content.read_to_end(&mut copied)?;
        let name = name.to_owned();
        self.call(move |objects| objects.put(&name, &mut &*copied, bytes))
    }

    fn get(&self, name: &str, part: Range<u64>) -> io::Result<Vec<u8>> {
        let name = name.to_owned();
        self.call(move |objects| objects.get(&name, part))
    }

    fn bytes(&self, name: &str) -> io::Result<u64> {
        let name = name.to_owned();
        self.call(move |objects| objects.bytes(&name))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let folder = folder.to_owned();
        self.call(move |objects| objects.list(&folder))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let name = name.to_owned();
        self.call(move |objects| objects.remove(&name))
    }

    fn close(&self) {
        self.objects.close();
    }
}
