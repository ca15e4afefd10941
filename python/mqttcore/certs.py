"""`mqttcore certs dev [FOLDER]`: a CA and certificates for tests of TLS.

They are only for tests on one machine: the key of the CA is discarded, and nothing is renewed.
"""

import argparse
import json
import pathlib
import sys
from collections.abc import Sequence

from mqttcore import _core

CONFIGURATION = """\
# Written by `mqttcore certs dev`: MQTT over TLS, on this machine.

[[listeners]]
address = "127.0.0.1:8883"
anonymous = true

[listeners.tls]
certificate = "server.pem"
key = "server.key"
client_ca = "ca.pem"
client_certificates = "optional"
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the files; returns the exit status."""
    options = parser().parse_args(arguments)
    folder: pathlib.Path = options.folder
    try:
        _core.make_certificates(folder, hosts=options.host or HOSTS, client=options.client)
        (folder / "mqttcore.toml").write_text(CONFIGURATION, encoding="utf-8")
    except OSError as error:
        print(f"mqttcore certs: cannot write to {folder}: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps({"folder": str(folder), "files": FILES}))
        return 0
    print(
        f"{folder}: {', '.join(FILES)}\n"
        f"start: python -m mqttcore.serve -c {folder}/mqttcore.toml\n"
        f"try: mosquitto_sub --cafile {folder}/ca.pem -h localhost -p 8883 -t '#' -v"
    )
    return 0


FILES = ["ca.pem", "server.pem", "server.key", "client.pem", "client.key", "mqttcore.toml"]
"""Files that `dev` writes."""
HOSTS = ["localhost", "127.0.0.1", "::1"]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="mqttcore certs", description="Makes certificates for tests of TLS."
    )
    tools = made.add_subparsers(dest="tool", required=True, metavar="dev")
    dev = tools.add_parser(
        "dev",
        help="write a CA, a server and a client certificate, and a configuration",
    )
    dev.add_argument(
        "folder",
        nargs="?",
        type=pathlib.Path,
        default=pathlib.Path("certs"),
        metavar="FOLDER",
        help="folder of the files (default: certs)",
    )
    dev.add_argument(
        "--host",
        action="append",
        metavar="NAME",
        help="host name or address of the server; may be repeated (default: those of this machine)",
    )
    dev.add_argument("--json", action="store_true", help="print the names of the files as JSON")
    dev.add_argument("--client", default="client", metavar="NAME", help="common name of the client")
    return made


if __name__ == "__main__":
    sys.exit(main())
