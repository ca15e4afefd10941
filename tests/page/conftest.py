"""A broker with the page, and a browser that looks at it.

Each test fails if the browser logged an error, or asked anybody but the broker.
"""

from __future__ import annotations

import base64
import hashlib
import os
import pathlib
import random
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from mqttcore import Broker, _core
from mqttcore.config import Origin

from tests.tls import Files
from tests.wire import Wire

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Route

SOURCES = pathlib.Path(__file__).parents[2] / "rust/http/page"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
SECRETS = {
    "operator": ("mq_operator", ("view", "payload", "operate", "admin")),
    "viewer": ("mq_viewer", ("view",)),
    "publisher": ("mq_publisher", ("publish",)),
}
"""The secret and the scopes of each key."""
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 20_000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips the journeys, by name, where there is nothing to make them with."""
    why = None
    if not _core.has_streams:
        why = "this build has no HTTP endpoint"
    elif CHROMIUM is None:
        why = "chromium is missing (Debian: apt-get install chromium)"
    if why:
        for item in items:
            if pathlib.Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=why))


@dataclass
class Site:
    """A broker and its page."""

    broker: Broker
    folder: pathlib.Path
    clients: ExitStack = field(default_factory=ExitStack)

    @property
    def address(self) -> str:
        """The page."""
        assert self.broker.http_address is not None
        host, port = self.broker.http_address
        return f"http://{host}:{port}"

    def client(self, client_id: str, **options: object) -> Wire:
        """A connected client, until the end of the test."""
        wire = self.clients.enter_context(Wire(self.broker.port))
        wire.connect(client_id, **options)  # type: ignore[arg-type]  # options of `connect`
        return wire


def key_file(path: pathlib.Path) -> None:
    """A file with a key of each name in `SECRETS`."""
    text = ""
    for name, (secret, scopes) in SECRETS.items():
        digest = hashlib.sha256(secret.encode()).hexdigest()
        text += f"[[keys]]\nname = {name!r}\nsha256 = {digest!r}\nscopes = {list(scopes)!r}\n"
    path.write_text(text)
    path.chmod(0o600)


CONFIGURATION = """\
data = "data"
shards = 2
[http]
address = "{page}"
keys_file = "keys.toml"
[[listeners]]
name = "main"
address = "{main}"
anonymous = true
[[listeners]]
name = "live"
address = "{live}"
anonymous = true
transport = "websocket"
origins = ["http://{page}"]
[[listeners]]
name = "secure"
address = "{secure}"
[listeners.tls]
certificate = "certs/server.pem"
key = "certs/server.key"
[[streams]]
name = "readings"
filter = ["plant/+/temp"]
[[plugins]]
use = "mqttcore.auth.users"
[[plugins.config.users]]
name = "ann"
password_hash = "{password}"
operate = ["view", "operate"]
[[plugins]]
use = "mqttcore.auth.password_file"
[plugins.config]
path = "passwords"
acl_file = "acl"
"""
PASSWORD = "red"  # noqa: S105 - of a test
"""Of the user `ann`."""


def free_address() -> str:
    """An address that nobody uses, with a port that the kernel does not choose for others."""
    while True:
        address = ("127.0.0.1", random.randrange(20_000, 32_000))  # noqa: S311 - no secret
        with suppress(OSError), socket.create_server(address):
            return f"{address[0]}:{address[1]}"


def password_hash() -> str:
    """The hash of `PASSWORD`, as `mosquitto_passwd -H sha512` writes it; quick."""
    digest = hashlib.sha512(PASSWORD.encode() + b"salt").digest()
    return f"$6${base64.b64encode(b'salt').decode()}${base64.b64encode(digest).decode()}"


@pytest.fixture
def site(tmp_path: pathlib.Path) -> Iterator[Site]:
    # The WebSocket listener has to know the port of the page, and the page that of the listener.
    # The bytes of a client are those of its socket at a port of the configuration: 0 is any port.
    place, live, main, secure = (free_address() for _ in range(4))
    key_file(tmp_path / "keys.toml")
    Files.make(tmp_path / "certs")
    (tmp_path / "passwords").write_text(f"bob:{password_hash()}\n")
    (tmp_path / "acl").write_text("topic readwrite #\n")
    for name in ("passwords", "acl"):
        (tmp_path / name).chmod(0o600)
    file = tmp_path / "mqttcore.toml"
    given = {"page": place, "live": live, "main": main, "secure": secure}
    file.write_text(CONFIGURATION.format(**given, password=password_hash()))
    with Broker(Origin(path=file, environment={}, log_level="warning")) as broker:
        site = Site(broker, tmp_path)
        with site.clients:
            yield site


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


@dataclass
class Visit:
    """A page of the browser, and what it must not do."""

    page: Page
    site: Site
    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def watch(self) -> None:
        """Keeps errors of the console and requests to others."""
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("console", self._log)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self._ask(request.url))
        self.page.on("websocket", lambda socket: self._ask(socket.url))

    def _log(self, message: object) -> None:
        if getattr(message, "type", "") in ("error", "warning"):
            self.errors.append(getattr(message, "text", ""))

    def _ask(self, url: str) -> None:
        host = self.site.address.removeprefix("http://").rpartition(":")[0]
        if not url.startswith(("blob:", f"http://{host}:", f"ws://{host}:")):
            self.foreign.append(url)

    def log_in(self, name: str = "operator", route: str = "") -> Page:
        """Opens the page, and logs in with the key of this name."""
        self.page.goto(f"{self.site.address}/#/{route}")
        self.page.get_by_role("button", name="Use a key").click()
        self.page.get_by_label("Key").fill(SECRETS[name][0])
        self.page.get_by_role("button", name="Log in").click()
        self.page.get_by_role("navigation").wait_for()
        return self.page


def source_of(url: str) -> pathlib.Path:
    """The file of the working tree that the page has at `url`."""
    return SOURCES / url.split("/", 5)[5]


def from_source(route: Route) -> None:
    """Answers with a file of the working tree, so that a change of the page needs no build."""
    route.fulfill(path=source_of(route.request.url))


def serve_sources(context: BrowserContext) -> None:
    """With `MQTTCORE_PAGE_FILES`, pages of this profile have the files of the working tree."""
    if "MQTTCORE_PAGE_FILES" in os.environ:
        context.route(re.compile("/page/[0-9a-f]{16}/"), from_source)


Visitor = Callable[..., Visit]


@pytest.fixture
def visitor(browser: Browser, site: Site) -> Iterator[Visitor]:
    """Makes visits, each with a browser profile of its own."""
    with ExitStack() as open_now:
        visits: list[Visit] = []

        def visit(**options: object) -> Visit:
            context = browser.new_context(**options)  # type: ignore[arg-type]  # of Playwright
            open_now.callback(context.close)
            serve_sources(context)
            made = Visit(context.new_page(), site)
            made.watch()
            visits.append(made)
            return made

        yield visit
        for made in visits:
            assert made.errors == []
            assert made.foreign == []


@pytest.fixture
def visit(visitor: Visitor) -> Visit:
    return visitor(viewport={"width": 1280, "height": 800})


@pytest.fixture
def page(visit: Visit) -> Page:
    """The page, where an operator has logged in."""
    return visit.log_in()
