//! The page for operators: files in the program, served with a strict policy (ADR 0063).
//!
//! The files contain no secrets and are public. The page uses the API with the key or the login of its user.

use hyper::HeaderMap;
use hyper::body::Bytes;
use hyper::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, HOST, HeaderName,
    HeaderValue, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use mqttcore_broker::{ListenAddress, Listener};

use super::answer::{AnswerBody, HttpError, HttpResponse, of_type};

/// A file of the page.
struct PageFile {
    /// Path below the folder.
    name: &'static str,
    media_type: &'static str,
    plain: &'static [u8],
    gzip: &'static [u8],
}

mod files {
    use super::PageFile;

    include!(concat!(env!("OUT_DIR"), "/page_files.rs"));
}

use files::{FILES, FOLDER};

/// Path prefix of all files but the first.
pub(super) const PREFIX: &str = "/page/";
const INDEX: &str = "index.html";

/// The file of a path; `None` if the path does not belong to the page.
///
/// # Errors
///
/// There is no such file: the page is of another version.
pub(super) fn find(path: &str) -> Option<Result<Asset, HttpError>> {
    if path == "/" {
        return Some(Asset::named(INDEX));
    }
    let below = path.strip_prefix(PREFIX)?;
    let name = below
        .strip_prefix(FOLDER)
        .and_then(|name| name.strip_prefix('/'));
    Some(match name {
        Some(name) if name != INDEX => Asset::named(name),
        _ => Err(HttpError::not_found("no such file: load the page again")),
    })
}

/// Placeholder of [`PageLogin::name`] in the first file.
const LOGIN: &str = "{login}";

/// How the user of the page becomes a caller of the API.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PageLogin {
    /// The socket itself admits its callers.
    Known,
    /// With a key, or with the token.
    Key,
    /// With the user name and the password of an MQTT client.
    Password,
    /// With either.
    KeyOrPassword,
    /// The address has neither keys nor a token, and no plugin authenticates.
    Nobody,
}

impl PageLogin {
    fn name(self) -> &'static str {
        match self {
            Self::Known => "known",
            Self::Key => "key",
            Self::Password => "password",
            Self::KeyOrPassword => "key password",
            Self::Nobody => "nobody",
        }
    }
}

/// A file that was asked for.
pub(super) struct Asset(&'static PageFile);

impl Asset {
    fn named(name: &str) -> Result<Self, HttpError> {
        let file = FILES.iter().find(|file| file.name == name);
        let missing = || HttpError::not_found("no such file: load the page again");
        file.map(Self).ok_or_else(missing)
    }

    /// Whether it is the first file, whose policy is that of the page.
    pub(super) fn is_first(&self) -> bool {
        self.0.name == INDEX
    }

    /// The response to a request with `headers`, if this is not the first file.
    pub(super) fn answer(&self, headers: &HeaderMap) -> HttpResponse {
        let is_compressed = accepts_gzip(headers);
        let bytes = if is_compressed {
            self.0.gzip
        } else {
            self.0.plain
        };
        let content = AnswerBody::Whole(Bytes::from_static(bytes).into());
        let mut answer = of_type(self.0.media_type, content);
        let out = answer.headers_mut();
        if is_compressed {
            out.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        out.insert(VARY, HeaderValue::from_static("accept-encoding"));
        let kept = HeaderValue::from_static("public, max-age=31536000, immutable");
        out.insert(CACHE_CONTROL, kept);
        protect(out, &policy(""));
        answer
    }

    /// The first file, for a browser that asks with `headers`. The page may connect to WebSocket `listeners` of the
    /// same host.
    pub(super) fn first(
        &self,
        headers: &HeaderMap,
        listeners: &[Listener],
        login: PageLogin,
    ) -> HttpResponse {
        // INVARIANT: the file was text when it was embedded.
        let text = str::from_utf8(self.0.plain).unwrap_or_default();
        let text = text.replace(LOGIN, login.name());
        let mut answer = of_type(self.0.media_type, AnswerBody::Whole(text.into()));
        let out = answer.headers_mut();
        out.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        protect(out, &policy(&web_sockets(headers, listeners)));
        answer
    }
}

/// Adds headers that restrict the page, and other pages that embed it.
fn protect(out: &mut HeaderMap, policy: &str) {
    for (name, value) in [
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ] {
        out.insert(name, HeaderValue::from_static(value));
    }
    // INVARIANT: `web_sockets` has only printable ASCII.
    let policy = HeaderValue::from_str(policy);
    let none = HeaderValue::from_static("default-src 'none'");
    out.insert(CONTENT_SECURITY_POLICY, policy.unwrap_or(none));
}

/// The Content Security Policy: nothing inline, nothing from elsewhere, no HTML made of text.
fn policy(web_sockets: &str) -> String {
    format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'{web_sockets}; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
         trusted-types 'none'"
    )
}

/// Sources of the policy: the WebSocket listeners on the host that the browser asked for.
fn web_sockets(headers: &HeaderMap, listeners: &[Listener]) -> String {
    let Some(host) = host(headers) else {
        return String::new();
    };
    let sources = listeners.iter().filter_map(|listener| {
        let ListenAddress::Tcp(address) = &listener.address else {
            return None;
        };
        listener.websocket.as_ref()?;
        let scheme = if listener.tls.is_some() { "wss" } else { "ws" };
        Some(format!(" {scheme}://{host}:{}", address.port()))
    });
    sources.collect()
}

/// The host of the request without its port, if a source of a policy can name it.
fn host(headers: &HeaderMap) -> Option<&str> {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return None;
    };
    let host = host.to_str().ok()?;
    let end = match host.rfind(':') {
        Some(at) if !host.ends_with(']') => at,
        _ => host.len(),
    };
    let host = &host[..end];
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
    (!host.is_empty() && host.bytes().all(is_plain)).then_some(host)
}

/// Whether the browser takes gzip.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_gzip = parts
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        is_gzip && !parts.any(|weight| matches!(weight, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A first visit loads all of them but the licences, to which the page links.
    #[test]
    fn all_files_of_the_page_have_less_than_90_kb() {
        let loaded = FILES
            .iter()
            .filter(|file| file.name != "vendor/LICENSES.txt");
        let bytes: usize = loaded.map(|file| file.gzip.len()).sum();

        assert!(bytes < 90_000, "{bytes} bytes");
    }

    #[test]
    fn scripts_are_served_without_lines_that_are_comments() {
        let scripts = FILES.iter().filter(|file| {
            file.media_type.starts_with("text/javascript") && !file.name.starts_with("vendor/")
        });
        let mut count = 0;
        for script in scripts {
            let text = std::str::from_utf8(script.plain).expect("text");
            let is_comment = |line: &str| line.starts_with("//") || line.starts_with("/**");
            assert!(
                !text.lines().any(|line| is_comment(line.trim())),
                "{}",
                script.name
            );
            assert!(
                text.contains("export ") || script.name == "app.js",
                "{}",
                script.name
            );
            count += 1;
        }
        assert!(count >= 25, "{count}");
    }
}
