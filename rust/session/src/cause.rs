//! Why a connection ended.

/// Why a connection ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Cause {
    /// The client said goodbye; its will is forgotten [MQTT-3.14.4-3].
    ClientDisconnect,
    /// The client said goodbye and wants its will published, or named an error.
    ClientDisconnectWithWill,
    /// The socket failed or was closed.
    ConnectionLost,
    /// The client was silent for too long [MQTT-3.1.2-22].
    KeepAliveTimeout,
    /// The client broke the protocol or a limit.
    Violation,
    /// The client came back on another connection [MQTT-3.1.4-3].
    TakenOver,
    /// Somebody or some rule of the server's ended it.
    Administrative,
    /// The server stops.
    ServerStop,
}
