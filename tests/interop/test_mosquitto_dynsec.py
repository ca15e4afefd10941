"""Dynamic security beside an installed Mosquitto: same answers, same tool, same file."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from mqttcore import Broker, Settings
from mqttcore.auth.dynamic_security import DynamicSecurity
from mqttcore.config import Listener

from tests.dynsec import ADMIN, PASSWORD, Admin, acl, initial, recorded
from tests.eventually import eventually
from tests.operations.sys_diff import free_port, wait_for
from tests.wire import CONNACK, Wire, connect

FOLDERS = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"
MOSQUITTO = shutil.which("mosquitto", path=FOLDERS)
TOOL = shutil.which("mosquitto_ctrl", path=FOLDERS)
PLUGIN = next(iter(Path("/usr").glob("lib*/**/mosquitto_dynamic_security.so")), None)
needs_mosquitto = pytest.mark.skipif(
    MOSQUITTO is None or PLUGIN is None, reason="mosquitto with dynamic security is not installed"
)
needs_tool = pytest.mark.skipif(TOOL is None, reason="mosquitto_ctrl is not installed")

SESSION = """
createRole doors
addRoleACL doors publishClientSend door/%c/# allow 5
addRoleACL doors publishClientSend door/never deny 9
addRoleACL doors subscribePattern door/# allow
addRoleACL doors subscribePattern door/# allow
addRoleACL doors nonsense door/# allow
removeRoleACL doors publishClientSend door/never
getRole doors
getRole nobody
createClient d1 -p pw -c door-1
createClient d1 -p pw
createClient d2 -p pw
setClientPassword d2 other
setClientId d2 door-2
addClientRole d1 doors 3
addClientRole nobody doors
getClient d1
createGroup house
addGroupClient house d2 4
addGroupRole house doors 2
getGroup house
listClients
listClients 1 1
listGroups
listRoles
setAnonymousGroup house
getAnonymousGroup
getDefaultACLAccess
disableClient d2
getClient d2
enableClient d2
removeGroupClient house d2
removeGroupRole house doors
removeClientRole d1 doors
deleteClient d2
listClients
createGroup empty
deleteGroup empty
deleteGroup empty
createRole unused
deleteRole unused
listRoles
"""
"""Commands for `mosquitto_ctrl dynsec`."""


@contextlib.contextmanager
def mosquitto(folder: Path, file: str) -> Iterator[int]:
    """Runs Mosquitto with such a file; yields its port."""
    port = free_port()
    (folder / "theirs.json").write_text(file)
    config = folder / "mosquitto.conf"
    config.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nplugin {PLUGIN}\n"
        f"plugin_opt_config_file {folder / 'theirs.json'}\n"
        "user root\n"  # as another user it could not read the folder of a test that root runs
    )
    quiet = subprocess.DEVNULL
    arguments = [MOSQUITTO or "mosquitto", "-c", str(config)]
    with subprocess.Popen(arguments, stdout=quiet, stderr=quiet) as process:  # noqa: S603 - found on a fixed path
        try:
            wait_for(port)
            yield port
        finally:
            process.terminate()


@contextlib.contextmanager
def ours(folder: Path, file: str) -> Iterator[int]:
    """Runs a broker of our own with such a file; yields its port."""
    path = folder / "ours.json"
    path.write_text(file)
    plugin = DynamicSecurity(DynamicSecurity.Config(path=path, iterations=1_000))
    listener = Listener(address="127.0.0.1:0", name="closed")
    with Broker(Settings(listeners=(listener,)), plugins=[plugin]) as broker:
        yield broker.port


def told(port: int, line: str) -> tuple[int, str, str]:
    """What `mosquitto_ctrl dynsec` says to a command: exit status and both outputs."""
    arguments = [TOOL or "mosquitto_ctrl", "-p", str(port), "-u", ADMIN, "-P", PASSWORD, "dynsec"]
    found = subprocess.run(  # noqa: S603 - found on a fixed path
        [*arguments, *line.split()], capture_output=True, text=True, timeout=20, check=False
    )
    return found.returncode, found.stdout, found.stderr


def done(port: int, line: str) -> None:
    """Does a command with `mosquitto_ctrl dynsec`, which must not say that it failed."""
    status, _, errors = told(port, line)
    assert status == 0
    assert "Error" not in errors, errors


@needs_mosquitto
def test_the_recorded_answers_are_those_of_mosquitto(tmp_path: Path) -> None:
    with mosquitto(tmp_path, json.dumps(initial())) as port, Admin(port) as admin:
        for command, answer in recorded():
            assert admin.ask(f'{{"commands":[{command}]}}') == [answer], command


@needs_tool
@needs_mosquitto
def test_mosquitto_ctrl_says_the_same_of_both(tmp_path: Path) -> None:
    lines = SESSION.strip().splitlines()
    with mosquitto(tmp_path, json.dumps(initial())) as port:
        theirs = {line: told(port, line) for line in lines}
    with ours(tmp_path, json.dumps(initial())) as port:
        found = {line: told(port, line) for line in lines}

    # without `setDefaultACLAccess`: Mosquitto 2.0 ignores what its own tool sends for it
    assert found == theirs
    assert "door/%c/#" in found["getRole doors"][1]
    assert found["listClients 1 1"][1].split() == ["d1"]


@needs_tool
def test_mosquitto_ctrl_makes_a_file_and_clients_that_work(tmp_path: Path) -> None:
    file = tmp_path / "init.json"
    arguments = [TOOL or "mosquitto_ctrl", "dynsec", "init", str(file), ADMIN, PASSWORD]
    subprocess.run(arguments, check=True, capture_output=True)  # noqa: S603 - as above
    with ours(tmp_path, file.read_text()) as port:
        for line in (*SESSION.strip().splitlines()[:2], "createClient d1 -p pw"):
            done(port, line)
        with Wire(port) as door:
            door.connect("door-1", username="d1", password=b"pw")
            assert door.publish("door/door-1/a", qos=1).reason == 0x87

            done(port, "addClientRole d1 doors")

            eventually(lambda: door.publish("door/door-1/a", qos=1).reason < 0x80)
            assert door.publish("door/door-2/a", qos=1).reason == 0x87
            done(port, "setDefaultACLAccess publishClientSend allow")
            eventually(lambda: door.publish("door/door-2/a", qos=1).reason < 0x80)
            done(port, "disableClient d1")
            assert door.receive_until_close()


@needs_mosquitto
def test_mosquitto_reads_what_we_write(tmp_path: Path) -> None:
    with ours(tmp_path, json.dumps(initial())) as port, Admin(port) as admin:
        admin.do("createRole", rolename="r", acls=[acl("publishClientSend", "a/#", priority=3)])
        admin.do("createClient", username="joe", password="pä55", roles=[{"rolename": "r"}])  # noqa: S106 - of a test
        admin.do("createGroup", groupname="g", clients=[{"username": "joe", "priority": 2}])
        admin.do("setAnonymousGroup", groupname="g")
        views = [
            admin.do("getClient", username="joe"),
            *(admin.do(f"list{what}", verbose=True) for what in ("Clients", "Groups", "Roles")),
            admin.do("getAnonymousGroup"),
        ]

    with mosquitto(tmp_path, (tmp_path / "ours.json").read_text()) as port, Admin(port) as admin:
        assert views == [
            admin.do("getClient", username="joe"),
            *(admin.do(f"list{what}", verbose=True) for what in ("Clients", "Groups", "Roles")),
            admin.do("getAnonymousGroup"),
        ]
        with Wire(port) as wire:
            wire.send(connect("c", username="joe", password="pä55".encode()))
            assert wire.expect(CONNACK).reason == 0
            assert wire.publish("a/b", qos=1).reason < 0x80
            assert wire.publish("b", qos=1).reason == 0x87
