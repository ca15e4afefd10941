//! What the connection of a client runs over: WebSocket, TLS.

use mqttcore_tls::rustls::CipherSuite;

/// What the connection of a client runs over, in one byte, since idle connections have it, too.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Channel(u8);

/// The bit of WebSocket; the others are the position of the cipher suite in [`SUITES`] from 1 on, or 0 without TLS.
const WEBSOCKET: u8 = 0x80;

/// The cipher suites that rustls has; a position behind the last one is another suite.
const SUITES: [CipherSuite; 9] = [
    CipherSuite::TLS13_AES_256_GCM_SHA384,
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
];

/// The TLS of a connection.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct TlsParameters {
    /// The version: `1.2` or `1.3`.
    pub version: &'static str,
    /// The cipher suite, by its registered name.
    pub cipher: String,
}

impl Channel {
    pub(crate) fn new(is_websocket: bool, cipher_suite: Option<CipherSuite>) -> Self {
        let place = cipher_suite.map_or(0, |suite| {
            let others = SUITES.iter().take_while(|known| **known != suite);
            others.fold(1, |place, _| place + 1)
        });
        Self(place | if is_websocket { WEBSOCKET } else { 0 })
    }

    /// Whether packets come in frames of WebSocket.
    pub fn is_websocket(self) -> bool {
        self.0 & WEBSOCKET != 0
    }

    /// Heap of TLS and WebSocket, in whole KiB.
    pub(crate) fn heap_bytes(self) -> usize {
        match (self.0 & !WEBSOCKET != 0, self.is_websocket()) {
            (true, _) => 8 << 10,
            (false, true) => 1 << 10,
            (false, false) => 0,
        }
    }

    /// Its TLS; `None`: it has none, or a proxy in front of the broker has.
    pub fn tls(self) -> Option<TlsParameters> {
        let place = (self.0 & !WEBSOCKET).checked_sub(1)?;
        let suite = SUITES.get(usize::from(place));
        let name = suite.and_then(CipherSuite::as_str).unwrap_or("unknown");
        // Those of TLS 1.3 have a prefix of their own in rustls.
        let of_1_3 = name.strip_prefix("TLS13_");
        Some(TlsParameters {
            version: if of_1_3.is_some() { "1.3" } else { "1.2" },
            cipher: of_1_3.map_or_else(|| name.to_owned(), |rest| format!("TLS_{rest}")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_has_version_and_registered_name_of_its_cipher_suite() {
        for (suite, version, cipher) in [
            (
                CipherSuite::TLS13_AES_128_GCM_SHA256,
                "1.3",
                "TLS_AES_128_GCM_SHA256",
            ),
            (
                CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
                "1.2",
                "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
            ),
        ] {
            let channel = Channel::new(true, Some(suite));
            let tls = channel.tls().expect("TLS");
            assert!(channel.is_websocket());

            assert_eq!((tls.version, &*tls.cipher), (version, cipher));
        }
        assert_eq!(Channel::new(false, None).tls(), None);
        let other = Channel::new(false, Some(CipherSuite::TLS_PSK_WITH_AES_128_CCM));
        assert_eq!(other.tls().expect("TLS").cipher, "unknown");
        assert_eq!(size_of::<Channel>(), 1);
    }
}
