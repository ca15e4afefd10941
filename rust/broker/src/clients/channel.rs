//! What the connection of a client runs over: WebSocket, TLS.

use mqttcore_tls::rustls::CipherSuite;

/// What the connection of a client runs over, in four bytes, since idle connections have it, too.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Channel {
    is_websocket: bool,
    /// Number of the cipher suite; 0: no TLS.
    cipher_suite: u16,
}

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
        Self {
            is_websocket,
            cipher_suite: cipher_suite.map_or(0, u16::from),
        }
    }

    /// Whether packets come in frames of WebSocket.
    pub fn is_websocket(self) -> bool {
        self.is_websocket
    }

    /// Its TLS; `None`: it has none, or a proxy in front of the broker has.
    pub fn tls(self) -> Option<TlsParameters> {
        if self.cipher_suite == 0 {
            return None;
        }
        let suite = CipherSuite::from(self.cipher_suite);
        let name = suite.as_str().unwrap_or("unknown");
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
            let tls = Channel::new(true, Some(suite)).tls().expect("TLS");

            assert_eq!((tls.version, &*tls.cipher), (version, cipher));
        }
        assert_eq!(Channel::new(false, None).tls(), None);
        assert!(size_of::<Channel>() <= 4);
    }
}
