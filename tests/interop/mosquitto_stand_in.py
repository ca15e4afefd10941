"""Stands in for `mosquitto -c FILE` in Mosquitto's own test scripts: a broker behind a relay.

The scripts compare packets byte by byte. The relay changes two of them, in which a server may send
what it likes: the properties of a successful CONNACK become those of Mosquitto, and CONNECT asks
for no reason strings. All other packets pass unchanged.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from mqttcore.auth.rules import RulesPlugin
from mqttcore.plugin import Allow, Login, hook

from tests.crash.process import NotUpError, ServerProcess
from tests.eventually import eventually

CONNECT, CONNACK = 0x10, 0x20
NO_PROBLEM_INFORMATION = b"\x17\x00"
MOSQUITTOS = b"\x22\x00\x0a\x21\x00\x14"
"""Topic Alias Maximum 10 and Receive Maximum 20."""


class OpenDoor(RulesPlugin):
    """Admits everybody with the rules of the ACL file, as Mosquitto without a password file."""

    @hook.authenticate
    def login(self, login: Login) -> Allow:
        """Admits."""
        return Allow(self.grant_for(user=login.username, client_id=login.client_id))


def configuration(conf: Path) -> tuple[int, str]:
    """The port of a file of Mosquitto, and the same configuration for mqttcore."""
    words = (line.split(maxsplit=1) for line in conf.read_text().splitlines() if line.strip())
    keys = {key: " ".join(rest) for key, *rest in words}
    port = int((keys.get("listener") or keys["port"]).split()[0])
    here = conf.resolve().parent
    lines = ["shards = 1", "[[listeners]]", 'address = "127.0.0.1:0"', "[[plugins]]"]
    if "plugin_opt_config_file" in keys:
        path = here / keys["plugin_opt_config_file"]
        lines += ['use = "mqttcore.auth.dynamic_security"', "[plugins.config]", f'path = "{path}"']
        lines += [f"allow_anonymous = {keys.get('allow_anonymous', 'false')}"]
    else:
        lines += ['use = "tests.interop.mosquitto_stand_in:OpenDoor"', "[plugins.config]"]
        lines += [f'acl_file = "{here / keys["acl_file"]}"']
    return port, "\n".join(lines) + "\n"


def packets(source: socket.socket) -> Iterator[tuple[int, bytes]]:
    """The packets that come: first byte and body."""
    with source.makefile("rb") as stream:
        while first := stream.read(1):
            length = shift = 0
            while True:
                byte = stream.read(1)[0]
                length |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
            yield first[0], stream.read(length)


def packet(first: int, body: bytes) -> bytes:
    """A packet of fewer than 2 MiB."""
    length, rest = bytearray(), len(body)
    while rest >= 0x80:
        length.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([first, *length, rest]) + body


def relay(client: socket.socket, port: int) -> None:
    """Passes packets between a client and the broker until one of them closes."""
    with client, socket.create_connection(("127.0.0.1", port)) as broker:
        versions: list[int] = []

        def answers() -> None:
            for first, body in packets(broker):
                is_success = first == CONNACK and versions[0] == 5 and body[1] == 0
                if is_success:
                    body = body[:2] + bytes([len(MOSQUITTOS)]) + MOSQUITTOS
                client.sendall(packet(first, body))
            client.shutdown(socket.SHUT_RDWR)

        back = threading.Thread(target=answers, daemon=True)
        back.start()
        for first, body in packets(client):
            if first == CONNECT:
                versions.append(body[6])
                if body[6] == 5:  # properties of fewer than 126 bytes follow
                    count = body[10] + len(NO_PROBLEM_INFORMATION)
                    body = body[:10] + bytes([count]) + NO_PROBLEM_INFORMATION + body[11:]
            broker.sendall(packet(first, body))
        broker.shutdown(socket.SHUT_RDWR)
        back.join()


def main() -> int:
    """Runs until SIGTERM; SIGHUP reloads, and no connection is accepted before it is done."""
    port, toml = configuration(Path(sys.argv[sys.argv.index("-c") + 1]))
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "mqttcore.toml"
        config.write_text(toml)
        server = ServerProcess(data=Path(folder) / "data", config=config, is_kept=False)
        try:
            server.start()
        except NotUpError as error:
            print(error, file=sys.stderr)
            return 1

        def reload(*_: object) -> None:
            assert server.process is not None
            done = server.log.read_text().count("reload")
            server.process.send_signal(signal.SIGHUP)
            eventually(lambda: server.log.read_text().count("reload") > done)

        def stop(*_: object) -> None:
            server.stop()
            print(server.log.read_text(), file=sys.stderr, flush=True)
            os._exit(0)

        signal.signal(signal.SIGHUP, reload)
        signal.signal(signal.SIGTERM, stop)
        with socket.create_server(("127.0.0.1", port)) as listener:
            while True:
                client, _ = listener.accept()
                threading.Thread(target=quietly, args=(client, server.port), daemon=True).start()


def quietly(client: socket.socket, port: int) -> None:
    """`relay`, and a lost connection is no error."""
    try:
        relay(client, port)
    except OSError:
        return


if __name__ == "__main__":
    sys.exit(main())
