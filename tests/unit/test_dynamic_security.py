"""Dynamic security in a broker: logins, commands, and what they change for connected clients."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from mqttcore import Broker, Settings
from mqttcore.auth.dynamic_security import EXPELLED_S, DynamicSecurity
from mqttcore.auth.dynsec_file import state_of
from mqttcore.config import Listener, PluginUse
from mqttcore.errors import DynsecFileError, PluginError
from mqttcore.plugin import Allow, Deny, Login, Message
from mqttcore.testing import allows, harness
from mqttcore.testing.plugin_harness import Harness

from tests.dynsec import ADMIN, PASSWORD, PBKDF2, TOPIC, Admin, acl, initial
from tests.eventually import eventually
from tests.wire import CONNACK, DISCONNECT, PUBACK, Wire, connect, publish, unique

CLOSED = Listener(address="127.0.0.1:0", name="closed")
SECRET = f"very-secret-{PASSWORD}"
BAD_CREDENTIALS, NOT_AUTHORIZED = 0x86, 0x87
MORE = {
    "clients": [
        {"username": "joe", **PBKDF2, "roles": [{"rolename": "user"}]},
        {"username": "ann", "roles": []},
        {"username": "old", **PBKDF2, "disabled": True, "roles": []},
        {"username": "own", **PBKDF2, "clientid": "mine", "roles": []},
    ],
    "roles": [
        {
            "rolename": "user",
            "acls": [
                acl("publishClientSend", "out/%u/#"),
                acl("subscribePattern", "in/#"),
                acl("publishClientReceive", "in/secret", allow=False),
            ],
        },
        {"rolename": "more", "acls": [acl("publishClientSend", "more/#")]},
    ],
    "groups": [{"groupname": "guests", "roles": [{"rolename": "more"}], "clients": []}],
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "dynsec.json"
    path.write_text(json.dumps(initial(**MORE)))
    return path


def plugin(file: Path, **config: object) -> DynamicSecurity:
    return DynamicSecurity(DynamicSecurity.Config(path=file, iterations=1_000, **config))  # type: ignore[arg-type] # one of its keys


@pytest.fixture
def broker(file: Path) -> Iterator[Broker]:
    with Broker(Settings(listeners=(CLOSED,)), plugins=[plugin(file)]) as running:
        yield running


@pytest.fixture
def admin(broker: Broker) -> Iterator[Admin]:
    with Admin(broker.port) as wire:
        yield wire


@pytest.fixture
def joe(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.port) as wire:
        wire.connect("c1", username="joe", password=PASSWORD.encode())
        yield wire


def reason(
    broker: Broker, user: str | None, password: str = PASSWORD, client: str | None = None
) -> int:
    """The reason code of a CONNACK; each login has a client identifier of its own, or `client`."""
    with Wire(broker.port) as wire:
        secret = None if user is None else password.encode()
        wire.send(connect(client or unique("c"), username=user, password=secret))
        return wire.expect(CONNACK).reason


def may_publish(admin: Admin, topic: str) -> None:
    """Lets the admin publish there: rights of connected clients change soon after the answer."""
    admin.do("addRoleACL", rolename="admin", acltype="publishClientSend", topic=topic, allow=True)
    eventually(lambda: admin.publish("in/secret", qos=1).reason < 0x80)


def test_clients_of_the_file_log_in(broker: Broker) -> None:
    assert reason(broker, "joe") == 0
    assert reason(broker, ADMIN) == 0
    assert reason(broker, "own", client="mine") == 0
    refused = [
        reason(broker, "joe", "wrong"),
        reason(broker, "joe", ""),
        reason(broker, "ann"),
        reason(broker, "old"),
        reason(broker, "own", client="other"),
    ]
    refused += [reason(broker, "nobody"), reason(broker, None)]
    assert refused == [BAD_CREDENTIALS] * 7


def test_rights_are_enforced(broker: Broker, joe: Wire, admin: Admin) -> None:
    may_publish(admin, "in/#")
    assert joe.publish("out/joe/a", qos=1).reason < 0x80
    assert joe.publish("out/ann/a", qos=1).reason == NOT_AUTHORIZED
    assert joe.subscribe(("in/#", 0), ("other/#", 0)).reasons == (0, NOT_AUTHORIZED)
    admin.publish("in/secret", b"1")
    admin.publish("in/a", b"2")
    assert joe.receive_publish().payload == b"2"
    assert broker.is_running


def test_a_client_without_the_right_cannot_send_commands(joe: Wire, file: Path) -> None:
    before = file.read_text()
    command = b'{"commands":[{"command":"deleteClient","username":"admin"}]}'

    joe.send(publish(TOPIC, command, qos=1, packet_id=3))

    assert joe.expect(PUBACK).reason == NOT_AUTHORIZED
    assert file.read_text() == before


def test_a_change_is_in_the_file_when_it_is_answered(admin: Admin, file: Path) -> None:
    admin.do("createClient", username="new", password=PASSWORD, roles=[{"rolename": "more"}])

    state = state_of(file.read_text(), "f")
    assert state.clients["new"].roles == {"more": -1}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_new_right_holds_for_a_connected_client_at_once(joe: Wire, admin: Admin) -> None:
    assert joe.publish("more/a", qos=1).reason == NOT_AUTHORIZED

    admin.do("addClientRole", username="joe", rolename="more")
    eventually(lambda: joe.publish("more/a", qos=1).reason < 0x80)
    admin.do("removeRoleACL", rolename="more", acltype="publishClientSend", topic="more/#")
    eventually(lambda: joe.publish("more/a", qos=1).reason == NOT_AUTHORIZED)
    admin.do("setDefaultACLAccess", acls=[{"acltype": "publishClientSend", "allow": True}])
    eventually(lambda: joe.publish("more/a", qos=1).reason < 0x80)
    assert joe.publish(TOPIC, b"{}", qos=1).reason == NOT_AUTHORIZED


def test_a_group_gives_and_takes_rights(joe: Wire, admin: Admin) -> None:
    admin.do("addGroupClient", groupname="guests", username="joe")
    eventually(lambda: joe.publish("more/a", qos=1).reason < 0x80)
    admin.do("deleteGroup", groupname="guests")
    eventually(lambda: joe.publish("more/a", qos=1).reason == NOT_AUTHORIZED)


def test_a_subscription_that_is_not_allowed_any_more_ends(
    broker: Broker, joe: Wire, admin: Admin
) -> None:
    joe.subscribe(("in/#", 0))
    may_publish(admin, "in/#")
    admin.publish("in/a", b"1")
    assert joe.receive_publish().payload == b"1"

    admin.do("removeRoleACL", rolename="user", acltype="subscribePattern", topic="in/#")

    eventually(lambda: admin.publish("in/a", b"2", qos=1).reason == 0x10)  # nobody is subscribed
    assert broker.is_running


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("disableClient", {}),
        ("deleteClient", {}),
        ("setClientPassword", {"password": "other"}),
        ("modifyClient", {"password": "other"}),
        ("setClientId", {"clientid": "another"}),
    ],
)
def test_a_client_that_could_not_log_in_again_is_disconnected(
    broker: Broker, joe: Wire, admin: Admin, command: str, arguments: dict[str, str]
) -> None:
    admin.do(command, username="joe", **arguments)

    assert joe.receive_until_close()[-1].kind == DISCONNECT
    assert reason(broker, "joe") in (BAD_CREDENTIALS, NOT_AUTHORIZED)
    if "password" in arguments:
        assert reason(broker, "joe", "other") == 0


def test_an_operator_who_locks_himself_out_still_gets_the_answer(admin: Admin) -> None:
    found = admin.do("addClientRole", username="joe", rolename="admin")

    assert found == {"command": "addClientRole"}
    assert admin.do("disableClient", username="joe") == {"command": "disableClient"}


def test_clients_without_user_name_have_the_roles_of_the_anonymous_group(file: Path) -> None:
    with (
        Broker(
            Settings(listeners=(CLOSED,)), plugins=[plugin(file, allow_anonymous=True)]
        ) as broker,
        Admin(broker.port) as admin,
        Wire(broker.port) as guest,
    ):
        guest.connect("guest")
        assert guest.publish("more/a", qos=1).reason == NOT_AUTHORIZED

        admin.do("setAnonymousGroup", groupname="guests")
        eventually(lambda: guest.publish("more/a", qos=1).reason < 0x80)
        admin.do("deleteRole", rolename="more")
        eventually(lambda: guest.publish("more/a", qos=1).reason == NOT_AUTHORIZED)


def test_a_file_that_somebody_else_has_changed_is_not_overwritten(admin: Admin, file: Path) -> None:
    edited = json.dumps(initial())
    file.write_text(edited)
    commands = [
        {"command": "createRole", "rolename": "x", "correlationData": "c"},
        {"command": "getRole", "rolename": "more"},
    ]

    found = admin.ask(json.dumps({"commands": commands}))

    assert [one["command"] for one in found] == ["createRole", "getRole"]
    assert all("changed outside: reload the broker first" in str(one["error"]) for one in found)
    assert found[0]["correlationData"] == "c"
    assert file.read_text() == edited
    assert admin.do("getRole", rolename="more")["data"]
    assert "error" in admin.ask('{"commands":[{"command":"getRole","rolename":"x"}]}')[0]


def test_a_malformed_file_stops_the_start_with_its_line(file: Path) -> None:
    file.write_text('{"roles":\n[{"rolename": 5}]}')

    with pytest.raises(PluginError, match=r"dynsec.json:2: rolename must be a text"):
        Broker(Settings(listeners=(CLOSED,)), plugins=[plugin(file)]).start()


def test_a_reload_with_a_malformed_file_changes_nothing(file: Path) -> None:
    use = PluginUse(use="mqttcore.auth.dynamic_security", config={"path": str(file)})
    good = file.read_text()
    with Broker(Settings(listeners=(CLOSED,), plugins=(use,))) as broker:
        file.write_text(good.replace('"username": "joe"', '"username": 5'))
        with pytest.raises(PluginError, match=r"dynsec.json:1: username must be a text"):
            broker.reload(broker.settings)
        assert reason(broker, "joe") == 0

        file.write_text(good.replace('"username": "joe"', '"username": "jim"'))
        broker.reload(broker.settings)
        assert reason(broker, "joe") == BAD_CREDENTIALS
        assert reason(broker, "jim") == 0


def test_a_reload_of_an_edited_file_holds_for_connected_clients(file: Path) -> None:
    """As after a command: rights are replaced, and who could not log in again is disconnected."""
    use = PluginUse(use="mqttcore.auth.dynamic_security", config={"path": str(file)})
    good = file.read_text()
    settings = Settings(listeners=(CLOSED,), plugins=(use,))
    with Broker(settings) as broker, ExitStack() as stack:
        joe, own, late = (stack.enter_context(Wire(broker.port)) for _ in range(3))
        joe.connect("c1", username="joe", password=PASSWORD.encode())
        joe.subscribe(("in/a", 0))
        own.connect("mine", username="own", password=PASSWORD.encode())
        assert joe.publish("more/a", qos=1).reason == NOT_AUTHORIZED
        edited = json.loads(good)
        users = {one["username"]: one for one in edited["clients"]}
        users["joe"]["roles"] = [{"rolename": "more"}]
        users["own"]["disabled"] = True
        file.write_text(json.dumps(edited))

        broker.reload(broker.settings)

        own.receive_until_close()
        eventually(lambda: joe.publish("more/a", qos=1).reason < 0x80)
        assert joe.publish("out/joe/a", qos=1).reason == NOT_AUTHORIZED
        eventually(lambda: broker.stats()["subscriptions"] == 0)
        late.connect("c2", username="joe", password=PASSWORD.encode())


def test_a_reload_of_the_same_file_disturbs_nobody(file: Path) -> None:
    use = PluginUse(use="mqttcore.auth.dynamic_security", config={"path": str(file)})
    with Broker(Settings(listeners=(CLOSED,), plugins=(use,))) as broker, Wire(broker.port) as joe:
        joe.connect("c1", username="joe", password=PASSWORD.encode())
        before = broker.hook_stats()

        broker.reload(broker.settings)

        joe.ping()
        (grants,) = [one for one in broker.hook_stats() if one.point == "grant"]
        assert grants.calls == 0
        assert len(before) == len(broker.hook_stats())


def test_changes_are_in_the_audit_log(file: Path, tmp_path: Path) -> None:
    settings = Settings(listeners=(CLOSED,), data=str(tmp_path / "data"))
    with Broker(settings, plugins=[plugin(file)]) as broker, Admin(broker.port) as admin:
        admin.do("createClient", username="new", password="secret-of-new")  # noqa: S106
        admin.do("getClient", username="new")
        file.write_text(file.read_text() + " ")
        admin.ask('{"commands":[{"command":"deleteClient","username":"new"}]}')

    (log,) = (tmp_path / "data" / "audit").iterdir()
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    found = [entry for entry in entries if entry["action"] == "dynsec"]
    assert [entry["target"] for entry in found] == ["createClient", "deleteClient"]
    assert [entry["result"].partition(":")[0] for entry in found] == ["done", "failed"]
    assert found[0]["who"] == f"user {ADMIN}"
    assert found[0]["how"] == "mqtt"
    assert found[0]["details"]["command"] == "createClient username='new'"
    assert "secret-of-new" not in log.read_text()


def request(payload: str) -> Message:
    return Message(Login(client_id="a", username=ADMIN), topic=TOPIC, payload=payload.encode())


def test_the_harness_tries_commands_without_a_broker(file: Path) -> None:
    with harness(DynamicSecurity, {"path": str(file), "iterations": 1_000}) as dynsec:
        answer = dynsec.control(
            request('{"commands":[{"command":"addClientRole","username":"joe","rolename":"more"}]}')
        )
        allowed = dynsec.grant(Login(client_id="c1", username="joe"))

        assert answer == b'{"responses":[{"command":"addClientRole"}]}'
        assert isinstance(allowed, Allow)
        assert allows(allowed.grant, "publish", "more/a")
        assert allows(allowed.grant, "publish", "out/joe/a")
        assert not allows(allowed.grant, "publish", "out/ann/a")
        assert not allows(allowed.grant, "unsubscribe", "$CONTROL/#")


def test_only_a_client_without_any_credentials_is_anonymous(file: Path) -> None:
    config = {"path": str(file), "allow_anonymous": True}
    with harness(DynamicSecurity, config) as dynsec:
        assert isinstance(dynsec.authenticate(Login(client_id="c")), Allow)
        assert dynsec.authenticate(Login(client_id="c", password=b"x")) is None
        assert dynsec.authenticate(Login(client_id="c", username="", password=b"")) is None
    with harness(DynamicSecurity, {"path": str(file)}) as dynsec:
        assert dynsec.authenticate(Login(client_id="c")) is None
        assert dynsec.grant(Login(client_id="c")) is None


def test_a_client_whose_password_has_changed_is_expelled_for_a_while(file: Path) -> None:
    now = [0.0]
    dynsec = plugin(file)
    dynsec._clock = lambda: now[0]
    with Harness(dynsec) as tested:
        tested.control(
            request(
                '{"commands":[{"command":"setClientPassword","username":"joe","password":"x"}]}'
            )
        )
        joe = Login(client_id="c1", username="joe")
        assert isinstance(tested.grant(joe), Deny)
        now[0] = EXPELLED_S
        assert isinstance(tested.grant(joe), Allow)


def test_a_harness_names_the_fault_of_a_file(file: Path) -> None:
    file.write_text("[")
    with pytest.raises(DynsecFileError, match=r"dynsec.json:1: no JSON"):
        harness(DynamicSecurity, {"path": str(file)}).__enter__()


def test_no_secret_is_in_a_log_line(
    admin: Admin, caplog: pytest.LogCaptureFixture, file: Path
) -> None:
    with caplog.at_level("INFO"):
        admin.do("createClient", username="new", password=SECRET)

    hashed = state_of(file.read_text(), "f").clients["new"].password
    assert hashed is not None
    assert "createClient username='new'" in caplog.text
    for secret in (SECRET, hashed.hash, hashed.salt):
        assert secret not in caplog.text
