"""Rights that an operator has asked for again, over the HTTP API and by `mqttcore acl`."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator

import pytest
from mqttcore import Broker, Settings, _core
from mqttcore.cli import acl
from mqttcore.config import HttpListener, Listener
from mqttcore.errors import PluginError
from mqttcore.plugin import Allow, Ask, Grant, Login, Plugin, hook

from tests.eventually import eventually
from tests.operations.api import Api
from tests.wire import Wire

pytestmark = pytest.mark.skipif(not _core.has_streams, reason="this build has no HTTP endpoint")


class Roles(Plugin):
    """Grants what a test says; remembers how often it was asked about logins."""

    granted = Grant(publish=["#"], subscribe=["#"])
    asked = 0

    @hook.authenticate(cache=60)
    def login(self, login: Login) -> Allow:
        """Lets everybody in."""
        self.asked += 1
        return Allow(self.granted)

    @hook.grant
    def present(self, login: Login) -> Allow:
        """The present grant."""
        return Allow(self.granted)


@pytest.fixture
def roles() -> Roles:
    return Roles()


@pytest.fixture
def broker(roles: Roles, tmp_path: pathlib.Path) -> Iterator[Broker]:
    settings = Settings(
        listeners=(Listener(address="127.0.0.1:0", name="main"),),
        http=HttpListener(),
        data=str(tmp_path / "data"),
    )
    with Broker(settings, plugins=[roles]) as running:
        yield running


@pytest.fixture
def api(broker: Broker, tmp_path: pathlib.Path) -> Api:
    assert broker.is_running
    return Api(tmp_path / "data")


@pytest.fixture
def joe(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.port) as wire:
        wire.connect("c", username="joe", password=b"pw")
        wire.subscribe(("open", 0), ("secret", 0))
        yield wire


MODULE = Roles.__module__


@pytest.mark.usefixtures("joe")
@pytest.mark.parametrize(
    "whose",
    [
        {"client_id": "c"},
        {"username": "joe"},
        {"plugin": MODULE},
        {"plugin": f"{MODULE}.Roles"},
        {"all": True},
    ],
)
def test_plugins_are_asked_again_about_rights_and_logins(
    api: Api, broker: Broker, roles: Roles, whose: dict[str, object]
) -> None:
    roles.granted = Grant(subscribe=["open"])

    assert api.ask("POST", "/access/invalidate", whose) == (200, {"connected": 1})

    eventually(lambda: [one.subscriptions for one in broker.clients()] == [["open"]])
    before = roles.asked
    with Wire(broker.port) as again:
        again.connect("d", username="joe", password=b"pw")
    assert roles.asked == before + 1, "the cached answer to the login is gone"


@pytest.mark.usefixtures("joe")
def test_clients_that_are_not_meant_keep_their_rights(api: Api, roles: Roles) -> None:
    roles.granted = Grant()

    for whose in ({"client_id": "d"}, {"username": "ann"}):
        assert api.ask("POST", "/access/invalidate", whose) == (200, {"connected": 0})
    status, problem = api.ask("POST", "/access/invalidate", {"plugin": "nobody"})
    assert (status, problem["detail"]) == (404, 'no plugin "nobody" runs')
    for wrong in ({}, {"client_id": "c", "plugin": MODULE}, {"all": False}):
        status, problem = api.ask("POST", "/access/invalidate", wrong)
        assert (status, problem["hint"][:16]) == (400, "send exactly one")
    assert api.ask("GET", "/clients/c")[1]["subscriptions"] == 2
    lines = (api.folder / "audit").glob("*")
    entries = [json.loads(line) for file in lines for line in file.read_text().splitlines()]
    assert entries[0]["action"] == "POST /access/invalidate"
    assert entries[0]["details"] == {"client_id": "d"}


@pytest.mark.usefixtures("joe")
def test_a_command_does_it(api: Api, roles: Roles, capsys: pytest.CaptureFixture[str]) -> None:
    roles.granted = Grant(subscribe=["open"])

    assert acl.main(["invalidate", "--user", "joe", "--data", str(api.folder)]) == 0

    assert capsys.readouterr().out == "1 connected clients: their rights are asked for again\n"
    eventually(lambda: api.ask("GET", "/clients/c")[1]["subscriptions"] == 1)
    roles.granted = Grant()
    assert acl.main(["invalidate", "--plugin", MODULE, "--data", str(api.folder)]) == 0
    eventually(lambda: api.ask("GET", "/clients/c")[1]["subscriptions"] == 0)


class Rooms(Plugin):
    """Lets users of `room` in; the others are for other plugins."""

    @hook.authenticate
    def login(self, login: Login) -> Allow | None:
        """Lets some in."""
        return Allow(Grant(subscribe=["#"])) if login.username == "room" else None


class Words(Plugin):
    """Answers about topics, whoever let the client in."""

    @hook.authorize(action="subscribe", filter="#")
    def topic(self, ask: Ask) -> bool:
        """Allows one topic."""
        return ask.topic == "word"


def test_a_plugin_has_the_clients_that_it_let_in() -> None:
    settings = Settings(listeners=(Listener(address="127.0.0.1:0", name="main", anonymous=True),))
    plugins = [Rooms(), Roles(), Words()]
    with (
        Broker(settings, plugins=plugins) as broker,
        Wire(broker.port) as room,
        Wire(broker.port) as joe,
    ):
        room.connect("r", username="room", password=b"pw")
        joe.connect("c", username="joe", password=b"pw")

        assert broker.invalidate(plugin=f"{MODULE}.Roles") == 1
        assert broker.invalidate(plugin=f"{MODULE}.Rooms") == 1
        assert broker.invalidate(plugin=f"{MODULE}.Words") == 2, "it may have answered about all"
        with pytest.raises(PluginError, match="no plugin other runs"):
            broker.invalidate(plugin="other")
        with pytest.raises(ValueError, match="exactly one"):
            broker.invalidate(plugin=MODULE, everything=True)
        # The clients of `Rooms`, which has no `grant` hook, are asked about at `Roles`.
        room.ping()
        joe.ping()
