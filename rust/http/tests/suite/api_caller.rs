//! A caller of the API.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use mqttcore_http::{HttpListener, HttpOptions, MetricsAccess};
use serde_json::{Value, json};

use crate::client::{Http, Response};
use crate::common::{Client, DEADLINE, Home, Plugin, Received, eventually, v5};
use crate::served::{Served, Setup};

pub(crate) const TOKEN: &str = "a token of a test, 32 characters";

/// A broker without streams, with keys in a file of `home`, and a token.
pub(crate) fn setup(home: &Home) -> Setup {
    let setup = Setup::new(home, Vec::new());
    let http = HttpOptions {
        is_enabled: true,
        tcp: Some(HttpListener {
            address: ([127, 0, 0, 1], 0).into(),
            token: Some(TOKEN.into()),
            metrics: MetricsAccess::Token,
            tls: None,
        }),
        keys_file: Some(home.path().join("keys.toml")),
        login: true,
        ..HttpOptions::default()
    };
    Setup { http, ..setup }
}

/// A broker with a shard that can be held up, and its owner. The sessions are loaded.
pub(crate) fn start_with_block(home: &Home, shards: usize) -> (Served, Caller, ShardBlock) {
    let (plugin, block) = blocking_plugin();
    let mut setup = setup(home);
    setup.config.shards = shards;
    let served = setup.try_start_with(plugin).expect("the broker starts");
    let mut owner = Caller::owner(home);
    owner.until_loaded();
    (served, owner, block)
}

/// Holds up a shard until it is dropped.
pub(crate) struct ShardBlock {
    has_begun: Receiver<()>,
    _release: Sender<()>,
}

/// A plugin with which a client named `blocks` can hold up its shard: it blocks while it takes a line of the log.
fn blocking_plugin() -> (Plugin, ShardBlock) {
    let (begun, has_begun) = channel();
    let (release, released) = channel::<()>();
    let released = Mutex::new(released);
    let plugin = Plugin::default().log_lines(move |line| {
        if line.contains("blocks") {
            let _ = begun.send(());
            // The end of the test releases it, too.
            let _ = released.lock().expect("one shard").recv();
        }
    });
    let block = ShardBlock {
        has_begun,
        _release: release,
    };
    (plugin, block)
}

impl ShardBlock {
    /// Returns when the shard is held up; the client is to be kept.
    pub(crate) fn begin(&self, served: &Served) -> Client {
        let mut client = v5("blocks").connect(served);
        client.send_bytes(&[0, 0]);
        let begun = self.has_begun.recv_timeout(DEADLINE);
        begun.expect("a line of the log");
        client
    }
}

/// Somebody who asks, with a connection of its own.
pub(crate) struct Caller {
    http: Http,
    secret: Option<String>,
}

/// What came back.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) json: Value,
    pub(crate) response: Response,
}

impl Caller {
    /// Over the Unix socket of run 0.
    pub(crate) fn owner(home: &Home) -> Self {
        Self::at(home, 0)
    }

    pub(crate) fn at(home: &Home, run: u32) -> Self {
        let http = Http::unix(&home.folder(run).join("http"));
        Self { http, secret: None }
    }

    /// Over TCP.
    pub(crate) fn with(served: &Served, secret: Option<&str>) -> Self {
        let http = Http::tcp(served.endpoint.address().expect("a TCP address"));
        let secret = secret.map(str::to_owned);
        Self { http, secret }
    }

    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.ask("GET", path, "")
    }

    /// Asks for what has to be there.
    pub(crate) fn read(&mut self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.json);
        answer.json
    }

    /// Waits until all shards have loaded their sessions.
    pub(crate) fn until_loaded(&mut self) {
        eventually("all sessions are loaded", || {
            self.read("/clients?limit=1")["partial"] == json!([])
        });
    }

    /// Sends `body`, if it is not empty, as JSON to a path below `/api/v1`.
    pub(crate) fn ask(&mut self, method: &str, path: &str, body: &str) -> Answer {
        let kind = if body.is_empty() {
            ""
        } else {
            "Content-Type: application/json\r\n"
        };
        self.ask_with(method, path, kind, body)
    }

    /// Sends a request of the owner; the answer is not read.
    pub(crate) fn ask_only(mut self, method: &str, path: &str) -> Self {
        self.http.send(&format!(
            "{method} /api/v1{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
        ));
        self
    }

    pub(crate) fn ask_with(
        &mut self,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
    ) -> Answer {
        let authorization = self.secret.as_ref().map_or_else(String::new, |secret| {
            format!("Authorization: Bearer {secret}\r\n")
        });
        let length = body.len();
        self.http.send(&format!(
            "{method} /api/v1{path} HTTP/1.1\r\nHost: localhost\r\n{authorization}{headers}Content-Length: {length}\r\n\r\n"
        ));
        // One that is too large is not taken.
        self.http.try_send(body);
        let response = self.http.response().expect("a response");
        let json = serde_json::from_slice(&response.body).unwrap_or_default();
        Answer {
            status: response.status,
            json,
            response,
        }
    }
}

impl Answer {
    /// Asserts that the request was refused so, with a problem.
    pub(crate) fn is_problem(&self, status: u16, word: &str) {
        assert_eq!(self.status, status, "{}", self.json);
        assert_eq!(
            self.response.header("content-type"),
            Some("application/problem+json")
        );
        assert_eq!(self.json["status"], status);
        let id = self.json["request_id"].as_str().expect("a number");
        assert_eq!(self.response.header("x-request-id"), Some(id));
        let text = self.json.to_string();
        assert!(text.contains(word), "{word} in {text}");
    }
}

/// The secret of a new key with these scopes.
pub(crate) fn key(owner: &mut Caller, name: &str, scopes: &[&str]) -> String {
    let body = json!({"name": name, "scopes": scopes}).to_string();
    let answer = owner.ask("POST", "/keys", &body);
    assert_eq!(answer.status, 201, "{}", answer.json);
    answer.json["secret"].as_str().expect("a secret").to_owned()
}

/// The reason code with which the broker disconnects a client.
pub(crate) fn disconnect_code(client: &mut Client) -> u8 {
    let packets = client.until_closed();
    match packets.last() {
        Some(Received::Disconnect(reason)) => reason.value(),
        other => panic!("no DISCONNECT: {other:?}"),
    }
}
