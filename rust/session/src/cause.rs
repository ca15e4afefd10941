//! Why a connection ended.

/// Why a connection ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Cause {
    /// The client sent DISCONNECT with reason 0x00; its will is discarded [MQTT-3.14.4-3].
    ClientDisconnect,
    /// The client sent DISCONNECT and asked for its will to be published, or named an error.
    ClientDisconnectWithWill,
    /// The socket failed or was closed.
    ConnectionLost,
    /// The client was silent for too long [MQTT-3.1.2-22].
    KeepAliveTimeout,
    /// The client broke the protocol or a limit.
    Violation,
    /// The same client identifier connected again [MQTT-3.1.4-3].
    TakenOver,
    /// An administrator or a rule of the server ended the connection.
    Administrative,
    /// The server stops.
    ServerStop,
}
