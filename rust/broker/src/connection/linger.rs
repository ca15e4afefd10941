//! Closes a connection after its last bytes.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::shard::Shard;
use crate::transport::Transport;

/// Time that a client has to read its last bytes and close.
const LONGEST: Duration = Duration::from_secs(1);
/// The same while the broker stops, so that stopping takes less time.
const LONGEST_AT_STOP: Duration = Duration::from_millis(250);
/// Maximum number of received bytes that are discarded meanwhile.
const DISCARDED: usize = 1 << 20;

/// Sends `last_bytes`, closes the sending half, and waits a moment for the client to close.
///
/// If the broker closed at once with unread bytes of the client, the kernel would reset the connection and the client
/// would not get the reason.
pub(crate) async fn linger(shard: &Rc<Shard>, transport: Transport, last_bytes: Vec<u8>) {
    let kind = transport.kind();
    let (mut stream, last_bytes) = transport.into_last(last_bytes);
    let end = async {
        let sent = stream.write_all(&last_bytes).await?;
        shard.metrics().tallies.bytes_sent.add(kind, sent);
        stream.shutdown().await?;
        discard(stream.tcp_mut()).await
    };
    // A client that is gone or too slow loses its last bytes.
    let longest = if shard.engine.is_stopping() {
        LONGEST_AT_STOP
    } else {
        LONGEST
    };
    let _ = timeout(longest, end).await;
}

async fn discard(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut bytes = [0; 1024];
    let mut discarded = 0;
    while discarded < DISCARDED {
        let mut read = ReadBuf::new(&mut bytes);
        poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, &mut read)).await?;
        if read.filled().is_empty() {
            return Ok(());
        }
        discarded += read.filled().len();
    }
    Ok(())
}
