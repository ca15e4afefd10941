"""ACL files mean the same here as in an installed Mosquitto, asked over the wire."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from mqttcore.auth.acl_file import AclFile, read_acl_file
from mqttcore.plugin import Grant
from mqttcore.testing import allows

from tests.operations.sys_diff import free_port, wait_for
from tests.wire import PINGRESP, PUBLISH, Wire, pingreq

COMMAND = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
OBSERVER = "user observer\ntopic readwrite #\ntopic readwrite $mine/#\n"
FILES = {
    "users": "topic read a/#\nuser joe\ntopic a/b\ntopic deny a/b/c\ntopic write a/#\n",
    "order": "user joe\ntopic readwrite a/#\ntopic deny a/+\ntopic read +/b\nuser ann\ntopic b\n"
    "user joe\ntopic deny b\n",
    "patterns": "pattern read %u/in\npattern write %c/out\npattern deny %c/out/x\npattern a/#\n"
    "user joe\ntopic readwrite c1/out/x\n",
    "dollar": "user joe\ntopic #\ntopic read $mine/a\npattern +/%c\n",
    "spaces": "user joe\ntopic   readwrite   a  b\ntopic read x\n\n  topic write y\n",
}
TOPICS = (
    *("a", "a/b", "a/b/c", "b", "x/b", "joe/in", "ann/in", "c1/out", "c1/out/x", "c2/out"),
    *("$mine/a", "$mine/b", "a  b", "x", "y", "x/c1", "a/b/out", "%c/out", "joe"),
)
CLIENTS = (
    *((None, "c1"), ("joe", "c1"), ("joe", "c2"), ("ann", "c1"), ("joe", "a/b"), ("joe", "+")),
    *(("+", "c1"), ("joe", "%c"), ("a/b", "c1")),
)


@contextlib.contextmanager
def mosquitto(folder: Path, rules: str) -> Iterator[int]:
    """Runs Mosquitto with an ACL file; yields its port."""
    port = free_port()
    (folder / "acl").write_text(rules)
    config = folder / "mosquitto.conf"
    config.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nacl_file {folder / 'acl'}\n"
        "user root\n"  # as another user it could not read the folder of a test that root runs
    )
    quiet = subprocess.DEVNULL
    arguments = [COMMAND or "mosquitto", "-c", str(config)]
    with subprocess.Popen(arguments, stdout=quiet, stderr=quiet) as process:  # noqa: S603 - found on a fixed path
        try:
            wait_for(port)
            yield port
        finally:
            process.terminate()


def received(wire: Wire) -> set[str]:
    """The topics of all messages that are on the way: Mosquitto has one thread."""
    wire.send(pingreq())
    topics = set()
    while (found := wire.receive()).kind == PUBLISH:
        topics.add(found.topic)
    assert found.kind == PINGRESP
    return topics


def asked(port: int, user: str | None, client_id: str) -> tuple[set[str], set[str]]:
    """The topics that the client may write, and those that it may read."""
    with Wire(port, version=4) as observer, Wire(port, version=4) as client:
        observer.connect("observer", username="observer")
        observer.subscribe(("#", 0), ("$mine/#", 0))
        client.connect(client_id, username=user)
        for topic in TOPICS:
            client.publish(topic)
        written = received(observer)
        client.subscribe(("#", 0), ("$mine/#", 0))
        for topic in TOPICS:
            observer.publish(topic)
        return written, received(client)


def ours(acl: AclFile, user: str | None, client_id: str) -> tuple[set[str], set[str]]:
    """The same, by the rules."""
    grant = Grant(access_list=acl.rules_of(user=user, client_id=client_id))
    return (
        {topic for topic in TOPICS if allows(grant, "publish", topic)},
        {topic for topic in TOPICS if allows(grant, "receive", topic)},
    )


@pytest.mark.skipif(COMMAND is None, reason="mosquitto is not installed")
@pytest.mark.parametrize("name", FILES)
def test_an_acl_file_means_what_it_means_in_mosquitto(tmp_path: Path, name: str) -> None:
    with mosquitto(tmp_path, FILES[name] + OBSERVER) as port:
        acl = read_acl_file(tmp_path / "acl")
        theirs = {client: asked(port, *client) for client in CLIENTS}

    assert {client: ours(acl, *client) for client in CLIENTS} == theirs
