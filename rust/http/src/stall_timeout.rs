//! A transport with a write timeout: fails if the peer reads too slowly for too long.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Bytes that a stalled peer must read within the timeout, so that a byte a minute does not keep a connection.
const PROGRESS_BYTES: usize = 16 * 1024;

/// Wraps `S`: writes fail if bytes are pending and the peer reads less than [`PROGRESS_BYTES`] within `patience`.
pub(super) struct StallTimeout<S> {
    stream: S,
    patience: Duration,
    /// The timeout; runs while bytes are pending.
    waits: Option<Pin<Box<Sleep>>>,
    /// Bytes written since the timeout was started.
    taken: usize,
}

impl<S> StallTimeout<S> {
    pub(super) fn new(stream: S, patience: Duration) -> Self {
        Self {
            stream,
            patience,
            waits: None,
            taken: 0,
        }
    }

    /// Handles the result of a write: enough progress clears the timeout; if it has expired, the write fails.
    fn judge<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
        bytes: impl FnOnce(&T) -> usize,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(written) = written {
            let bytes = written.as_ref().map_or(0, bytes);
            self.taken = self.taken.saturating_add(bytes);
            if self.taken >= PROGRESS_BYTES {
                self.rest();
            }
            return Poll::Ready(written);
        }
        let patience = self.patience;
        let waits = self.waits.get_or_insert_with(|| Box::pin(sleep(patience)));
        waits
            .as_mut()
            .poll(cx)
            .map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Clears the timeout.
    fn rest(&mut self) {
        (self.waits, self.taken) = (None, 0);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.judge(cx, written, |bytes| *bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.judge(cx, written, |bytes| *bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if flushed.is_ready() {
            // All bytes have been written.
            self.rest();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.judge(cx, shut, |()| PROGRESS_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::runtime::Builder;

    use super::*;

    /// Runs `work` to its end, with `other` concurrently.
    fn beside<T>(work: impl Future<Output = T>, other: impl Future<Output = ()>) -> T {
        let runtime = Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(async {
            let (mut work, mut other) = (std::pin::pin!(work), std::pin::pin!(other));
            let mut is_over = false;
            std::future::poll_fn(|cx| {
                is_over = is_over || other.as_mut().poll(cx).is_ready();
                work.as_mut().poll(cx)
            })
            .await
        })
    }

    /// Reads one byte every millisecond, for ever.
    async fn sip(mut theirs: DuplexStream) {
        while theirs.read_u8().await.is_ok() {
            sleep(Duration::from_millis(1)).await;
        }
    }

    #[test]
    fn a_peer_that_takes_nothing_is_given_up() {
        let (ours, theirs) = duplex(8);
        let mut ours = StallTimeout::new(ours, Duration::from_millis(20));

        let given_up = beside(ours.write_all(&[0; 64]), std::future::pending());

        let kind = given_up.map_err(|error| error.kind());
        assert_eq!(kind, Err(io::ErrorKind::TimedOut));
        drop(theirs);
    }

    #[test]
    fn a_peer_that_takes_a_byte_now_and_then_is_given_up() {
        let (ours, theirs) = duplex(8);
        let mut ours = StallTimeout::new(ours, Duration::from_millis(50));

        let given_up = beside(ours.write_all(&[0; PROGRESS_BYTES]), sip(theirs));

        let kind = given_up.map_err(|error| error.kind());
        assert_eq!(kind, Err(io::ErrorKind::TimedOut));
    }

    #[test]
    fn a_peer_that_has_taken_what_there_is_owes_nothing() {
        let (ours, mut theirs) = duplex(8);
        let mut ours = StallTimeout::new(ours, Duration::from_secs(60));
        let take = async move {
            let mut taken = [0; 64];
            theirs.read_exact(&mut taken).await.expect("64 bytes");
            std::future::pending::<()>().await;
        };

        let owes = beside(
            async {
                ours.write_all(&[7; 64]).await.expect("written");
                let before = (ours.waits.is_some(), ours.taken);
                ours.flush().await.expect("flushed");
                [before, (ours.waits.is_some(), ours.taken)]
            },
            take,
        );

        assert_eq!(owes, [(true, 64), (false, 0)]);
    }
}
