//! A stream that gives up on a peer that takes no bytes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// `S`, whose writing fails once the peer took nothing for `patience`.
pub(super) struct Patient<S> {
    stream: S,
    patience: Duration,
    /// Runs while the peer owes us progress.
    waits: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    pub(super) fn new(stream: S, patience: Duration) -> Self {
        Self {
            stream,
            patience,
            waits: None,
        }
    }

    /// What a write came to: progress ends the waiting, and too long a wait the connection.
    fn judge<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = None;
            return written;
        }
        let patience = self.patience;
        let waits = self.waits.get_or_insert_with(|| Box::pin(sleep(patience)));
        waits
            .as_mut()
            .poll(cx)
            .map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.judge(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.judge(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.judge(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn a_peer_that_takes_nothing_is_given_up_and_one_that_takes_a_little_is_not() {
        let runtime = Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(async {
            let (ours, _theirs) = duplex(8);
            let mut ours = Patient::new(ours, Duration::from_millis(20));
            let given_up = ours.write_all(&[0; 64]).await;
            assert_eq!(
                given_up.map_err(|error| error.kind()),
                Err(io::ErrorKind::TimedOut)
            );

            let (ours, mut theirs) = duplex(8);
            let mut ours = Patient::new(ours, Duration::from_secs(60));
            let (written, read) = (ours.write_all(&[7; 64]), async {
                let mut taken = [0; 64];
                theirs.read_exact(&mut taken).await.map(|_| taken)
            });
            let (mut written, mut read) = (std::pin::pin!(written), std::pin::pin!(read));
            let mut taken = None;
            std::future::poll_fn(|cx| {
                let written = written.as_mut().poll(cx);
                if taken.is_none()
                    && let Poll::Ready(read) = read.as_mut().poll(cx)
                {
                    taken = Some(read.expect("read"));
                }
                written.map(|written| written.expect("written"))
            })
            .await;
        });
    }
}
