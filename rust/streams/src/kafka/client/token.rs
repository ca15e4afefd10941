//! Tokens of OAUTHBEARER, from a file that another program renews.

use std::error::Error;
use std::ffi::{CStr, CString, c_char};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, io, ptr};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rdkafka::bindings;
use rdkafka::client::{Client, ClientContext, OAuthToken};
use rdkafka::types::RDKafkaRespErr;

/// Assumed remaining life of a token that does not say when it expires. librdkafka asks for a token again after 80 %.
const UNKNOWN_LIFE: Duration = Duration::from_secs(300);

/// Size of librdkafka's error texts.
const REASON_BYTES: usize = 512;

/// Why a file has no usable token. Never contains the token.
#[derive(Debug, thiserror::Error)]
pub(super) enum TokenError {
    #[error("token_file {}: cannot be read: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("token_file {}: is empty, or has more than one token", path.display())]
    NotOne { path: PathBuf },
    #[error("token_file {}: the token expired {ago_s} s ago", path.display())]
    Expired { path: PathBuf, ago_s: u64 },
    #[error("the token of token_file is refused: {0}")]
    Refused(String),
}

/// The fields of a JSON Web Token that librdkafka wants to know. Kafka itself checks the token.
#[derive(Default, serde::Deserialize)]
struct Claims {
    /// Seconds since 1970.
    exp: Option<f64>,
    sub: Option<String>,
}

impl Claims {
    /// The claims of `token`; none if it is not a JSON Web Token.
    fn of(token: &str) -> Self {
        let mut parts = token.split('.');
        let (Some(_), Some(claims), Some(_), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Self::default();
        };
        let json = URL_SAFE_NO_PAD.decode(claims.trim_end_matches('='));
        let claims = json.map(|json| serde_json::from_slice(&json).unwrap_or_default());
        claims.unwrap_or_default()
    }
}

/// Reads the token in `path`.
pub(super) fn read(path: &Path) -> Result<OAuthToken, TokenError> {
    let text = fs::read_to_string(path).map_err(|source| TokenError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    parse(path, text.trim(), now.unwrap_or_default())
}

/// Returns the token for librdkafka; `now` is the time since 1970.
fn parse(path: &Path, token: &str, now: Duration) -> Result<OAuthToken, TokenError> {
    let path = || path.to_owned();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(TokenError::NotOne { path: path() });
    }
    let claims = Claims::of(token);
    let end = claims.exp.map(Duration::try_from_secs_f64);
    let end = end.and_then(Result::ok).unwrap_or(now + UNKNOWN_LIFE);
    if end <= now {
        let ago_s = now.saturating_sub(end).as_secs();
        return Err(TokenError::Expired {
            path: path(),
            ago_s,
        });
    }
    Ok(OAuthToken {
        token: token.to_owned(),
        principal_name: claims.sub.unwrap_or_default().replace('\0', ""),
        lifetime_ms: i64::try_from(end.as_millis()).unwrap_or(i64::MAX / 1_000),
    })
}

/// Answers a client that asks for a token again.
pub(super) fn renew(path: Option<&Path>) -> Result<OAuthToken, Box<dyn Error>> {
    let path = path.ok_or("no token_file is configured")?;
    read(path).map_err(Into::into)
}

/// Gives a token to a client that cannot ask for one, because nothing polls its queue.
#[expect(
    unsafe_code,
    reason = "rdkafka has no safe function for it: docs/adr/0101"
)]
pub(super) fn give<C: ClientContext>(
    client: &Client<C>,
    token: OAuthToken,
) -> Result<(), TokenError> {
    let text =
        |text: String| CString::new(text).map_err(|error| TokenError::Refused(error.to_string()));
    let (value, principal) = (text(token.token)?, text(token.principal_name)?);
    let mut reason: [c_char; REASON_BYTES] = [0; REASON_BYTES];
    // SAFETY: `client` owns the handle and is borrowed. librdkafka copies both texts, which end with 0, before it
    // returns; there are no extensions; it writes at most `REASON_BYTES` bytes, with a 0 at the end, into `reason`.
    let (code, reason) = unsafe {
        let code = bindings::rd_kafka_oauthbearer_set_token(
            client.native_ptr(),
            value.as_ptr(),
            token.lifetime_ms,
            principal.as_ptr(),
            ptr::null_mut(),
            0,
            reason.as_mut_ptr(),
            reason.len(),
        );
        (code, CStr::from_ptr(reason.as_ptr()))
    };
    if code == RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
        return Ok(());
    }
    Err(TokenError::Refused(reason.to_string_lossy().into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_000);

    fn token(claims: &str) -> String {
        format!("e30.{}.", URL_SAFE_NO_PAD.encode(claims))
    }

    fn parsed(token: &str) -> Result<OAuthToken, String> {
        parse(Path::new("token"), token, NOW).map_err(|error| error.to_string())
    }

    #[test]
    fn a_json_web_token_says_when_it_expires_and_whose_it_is() {
        let text = token(r#"{"sub":"mqttcore","exp":1060.5,"iat":0}"#);

        let read = parsed(&text).expect("a token");

        assert_eq!(read.token, text);
        assert_eq!(read.principal_name, "mqttcore");
        assert_eq!(read.lifetime_ms, 1_060_500);
    }

    #[test]
    fn any_other_token_is_read_again_after_minutes() {
        for other in ["opaque", "a.b.c", "a.b.c.d", &token("{}"), &token("[1]")] {
            let read = parsed(other).expect("a token");

            assert_eq!(read.lifetime_ms, 1_300_000, "{other}");
        }
    }

    #[test]
    fn an_expired_token_is_refused_without_being_shown() {
        let error = parsed(&token(r#"{"exp":940}"#)).map(|_| ());

        let expected = "token_file token: the token expired 60 s ago";
        assert_eq!(error, Err(expected.to_owned()));
    }

    #[test]
    fn a_file_without_one_token_is_refused() {
        for text in ["", "two tokens", "two\ntokens", "z\u{e4}h"] {
            let error = parsed(text).map(|_| ());

            let expected = "token_file token: is empty, or has more than one token";
            assert_eq!(error, Err(expected.to_owned()), "{text}");
        }
    }
}
