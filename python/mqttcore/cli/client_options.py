"""Options of the commands that are MQTT clients, with Mosquitto's letters."""

import argparse
import functools
import os
import sys
from typing import Final

from mqttcore.cli.client import PACKET_IDS, MqttClient
from mqttcore.cli.connection import Endpoint
from mqttcore.cli.failure import USAGE, CommandError
from mqttcore.cli.message_properties import properties_of
from mqttcore.cli.terminal import printable, without_login
from mqttcore.errors import MqttError
from mqttcore.packets import Connect, Packet, Publish, Will, encode_packet, reason_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl

VERSIONS: Final = {
    **dict.fromkeys(("5", "5.0", "mqttv5"), 5),
    **dict.fromkeys(("311", "3.1.1", "mqttv311"), 4),
    **dict.fromkeys(("31", "3.1", "mqttv31"), 3),
}
PORT, TLS_PORT = 1883, 8883
LONGEST_S: Final = 86_400 * 366
COUNT_MAX: Final = (1 << 63) - 1
FOR_EVER: Final = 0xFFFF_FFFF
"""A Session Expiry Interval."""


STATUSES: Final = (
    "Exit status: 0 done, 1 not done, 2 the command line is wrong, 3 the broker cannot be reached,"
    " 4 the broker refused, 27 timeout."
)


class ClientParser(argparse.ArgumentParser):
    """Looks up the width of the terminal only to print help: `shutil` loads slowly."""

    def format_help(self) -> str:
        """The help."""
        self.formatter_class = argparse.HelpFormatter
        return super().format_help()

    def format_usage(self) -> str:
        """The first lines of the help."""
        self.formatter_class = argparse.HelpFormatter
        return super().format_usage()


def parser_of(command: str, description: str) -> argparse.ArgumentParser:
    """A parser without ``-h`` for help: as in Mosquitto, that is the host."""
    made = ClientParser(
        formatter_class=functools.partial(argparse.HelpFormatter, width=80),
        prog=f"mqttcore {command}",
        description=description,
        add_help=False,
        epilog=STATUSES,
    )
    add_help(made)
    return made


def add_help(parser: argparse.ArgumentParser) -> None:
    """Adds the only option for help."""
    parser.add_argument("--help", action="help", help="print this help and exit")


def add_client_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that all clients have."""
    add_connection_options(parser.add_argument_group("connection"))
    add_session_options(parser.add_argument_group("session"))
    add_tls_options(parser.add_argument_group("TLS"))
    add_will_options(parser.add_argument_group("will"))


def add_connection_options(group: argparse._ArgumentGroup) -> None:
    """Adds the options of the broker's address and of the login."""
    group.add_argument(
        "-h", "--host", default="localhost", help="host of the broker (default: localhost)"
    )
    group.add_argument(
        "-p",
        "--port",
        type=port,
        metavar="PORT",
        help="port of the broker (default: 1883, with TLS 8883)",
    )
    group.add_argument("--unix", default="", metavar="PATH", help="Unix socket of the broker")
    group.add_argument(
        "-L",
        "--url",
        metavar="URL",
        help="as mqtt://[USER[:PASSWORD]@]HOST[:PORT][/TOPIC], instead of -h, -p, -u, -P and -t;"
        " mqtts:// for TLS",
    )
    group.add_argument("-A", "--bind", default="", metavar="ADDRESS", help="local address")
    group.add_argument("-u", "--username", metavar="NAME", help="user name")
    group.add_argument(
        "-P", "--pw", metavar="PASSWORD", help="password; other users of this machine can see it"
    )
    group.add_argument("--password-file", metavar="FILE", help="file with the password")
    group.add_argument(
        "-V",
        "--protocol-version",
        choices=list(VERSIONS),
        default="5",
        metavar="VERSION",
        help="MQTT version: 5 (or mqttv5), 311 (mqttv311) or 31 (mqttv31); default: 5",
    )
    group.add_argument(
        "-d", "--debug", action="store_true", help="print each packet to standard error"
    )
    group.add_argument("--quiet", action="store_true", help="print no errors")


def add_session_options(group: argparse._ArgumentGroup) -> None:
    """Adds the options of the session. Longer than other functions: one call for each option."""
    group.add_argument("-i", "--id", metavar="ID", help="client identifier (default: a random one)")
    group.add_argument(
        "-I", "--id-prefix", metavar="PREFIX", help="client identifier: PREFIX and the process id"
    )
    group.add_argument(
        "-k",
        "--keepalive",
        type=keep_alive,
        default=60,
        metavar="SECONDS",
        help="Keep Alive (default: 60)",
    )
    group.add_argument(
        "-c",
        "--disable-clean-session",
        action="store_true",
        help="resume the session of this client identifier (-i); do not end it at exit",
    )
    group.add_argument(
        "-x",
        "--session-expiry-interval",
        type=expiry,
        metavar="SECONDS",
        help="seconds that the session outlives the connection; -1: for ever. MQTT 5.0 only",
    )
    group.add_argument(
        "-M",
        "--max-inflight",
        type=window,
        default=20,
        metavar="COUNT",
        help="maximum QoS 1 and 2 messages in flight (default: 20)",
    )
    group.add_argument(
        "-D",
        "--property",
        action="append",
        nargs="+",
        default=[],
        metavar="WORD",
        help="property of MQTT 5.0: PACKET NAME VALUE, as publish content-type text/plain, or"
        " PACKET user-property NAME VALUE. PACKET: connect, publish, subscribe, unsubscribe,"
        " disconnect or will",
    )


def add_tls_options(group: argparse._ArgumentGroup) -> None:
    """Adds TLS."""
    group.add_argument(
        "--tls-use-os-certs", action="store_true", help="use TLS, trust the CAs of the system"
    )
    group.add_argument("--cafile", metavar="FILE", help="use TLS, trust the CAs in FILE")
    group.add_argument("--capath", metavar="FOLDER", help="use TLS, trust the CAs in FOLDER")
    group.add_argument("--cert", metavar="FILE", help="certificate of the client, PEM")
    group.add_argument("--key", metavar="FILE", help="private key of the client, PEM")
    group.add_argument(
        "--insecure",
        action="store_true",
        help="do not compare the host name with the certificate; only for tests",
    )
    group.add_argument("--tls-alpn", metavar="PROTOCOL", help="protocol for ALPN")


def add_will_options(group: argparse._ArgumentGroup) -> None:
    """Adds the will."""
    group.add_argument("--will-topic", metavar="TOPIC", help="topic of the will")
    group.add_argument("--will-payload", default="", metavar="TEXT", help="payload of the will")
    group.add_argument(
        "--will-qos", type=int, choices=(0, 1, 2), default=0, help="QoS of the will (default: 0)"
    )
    group.add_argument("--will-retain", action="store_true", help="retain the will")


def within(number: float, least: float, most: float) -> float:
    """The number, if it is between these; NaN is not."""
    if not least <= number <= most:
        raise argparse.ArgumentTypeError(f"the number is from {least:.15g} to {most:.15g}")
    return number


def seconds(text: str) -> float:
    """A time."""
    return within(float(text), 0, LONGEST_S)


def count(text: str) -> int:
    """A number of messages."""
    return int(within(int(text), 1, COUNT_MAX))


def port(text: str) -> int:
    """A TCP port."""
    return int(within(int(text), 1, PACKET_IDS))


def keep_alive(text: str) -> int:
    """A Keep Alive."""
    return int(within(int(text), 0, PACKET_IDS))


def window(text: str) -> int:
    """A number of messages in flight."""
    return int(within(int(text), 1, PACKET_IDS))


def expiry(text: str) -> int:
    """A Session Expiry Interval in seconds."""
    seconds = FOR_EVER if text in ("-1", "∞") else int(text)
    if not 0 <= seconds <= FOR_EVER:
        raise argparse.ArgumentTypeError("seconds are -1, or from 0 to 4294967295")
    return seconds


def read_url(options: argparse.Namespace) -> str | None:
    """Takes host, port, user and password out of ``-L`` into the options; returns its topic."""
    if not options.url:
        return None
    # urllib would take a tenth of the time of `pub`
    from urllib.parse import unquote, urlsplit

    try:
        url = urlsplit(options.url)
        host, port = url.hostname, url.port
    except ValueError:
        host = None
    if not host or url.scheme not in ("mqtt", "mqtts"):
        shown = without_login(options.url)
        text = f"--url is mqtt://HOST[:PORT][/TOPIC] or mqtts://..., not {shown!r}"
        raise CommandError(text, status=USAGE)
    options.host, options.port = host, port or options.port
    options.username = unquote(url.username) if url.username else options.username
    options.pw = unquote(url.password) if url.password else options.pw
    if url.scheme == "mqtts" and not (options.cafile or options.capath):
        options.tls_use_os_certs = True
    return unquote(url.path[1:]) or None


def client_of(options: argparse.Namespace) -> MqttClient:
    """The client that the options describe.

    Raises:
        CommandError: the options contradict each other, or a file cannot be read.
    """
    tls = tls_of(options)
    port = options.port or (TLS_PORT if tls else PORT)
    endpoint = Endpoint(options.host, port, options.unix, options.bind, tls)
    trace = printed if options.debug else None
    login = login_of(options)
    try:
        encode_packet(login, version=login.version)
    except (MqttError, ValueError) as error:
        text = f"the options make no CONNECT (-i, -u, -P, --will-...): {error}"
        raise CommandError(text, status=USAGE) from error
    return MqttClient(endpoint, login, window=options.max_inflight, trace=trace)


def login_of(options: argparse.Namespace) -> Connect:
    """The CONNECT."""
    version = VERSIONS[options.protocol_version]
    expiry_s = options.session_expiry_interval
    if expiry_s is None and options.disable_clean_session:
        expiry_s = FOR_EVER
    if options.disable_clean_session and not (options.id or options.id_prefix):
        raise CommandError("-c needs -i: whose session is to be resumed?", status=USAGE)
    properties = list(properties_of(options.property, "connect", version=version))
    if expiry_s and version == VERSIONS["5"]:
        properties.append(("session_expiry_interval", expiry_s))
    return Connect(
        version=version,
        client_id=client_id(options),
        clean_start=not options.disable_clean_session,
        keep_alive_s=options.keepalive,
        username=options.username,
        password=password_of(options),
        will=will_of(options, version),
        properties=tuple(properties),
    )


def client_id(options: argparse.Namespace) -> str:
    """The client identifier."""
    if options.id_prefix:
        return f"{options.id_prefix}{os.getpid()}"
    given: str | None = options.id
    return f"mqttcore-{os.urandom(6).hex()}" if given is None else given


def password_of(options: argparse.Namespace) -> bytes | None:
    """The password."""
    if options.password_file is None:
        return None if options.pw is None else os.fsencode(options.pw)
    try:
        with open(options.password_file, "rb") as file:
            raw = file.read()
    except OSError as error:
        raise CommandError(f"--password-file: {error}", status=USAGE) from error
    return raw.rstrip(b"\r\n")


def will_of(options: argparse.Namespace, version: int) -> Will | None:
    """The will, if there is one."""
    if options.will_topic is None:
        return None
    return Will(
        topic=options.will_topic,
        payload=os.fsencode(options.will_payload),
        qos=options.will_qos,
        retain=options.will_retain,
        properties=properties_of(options.property, "will", version=version),
    )


def wants_tls(options: argparse.Namespace) -> bool:
    """Whether the options ask for TLS."""
    return options.tls_use_os_certs or any(tls_files(options))


def tls_files(options: argparse.Namespace) -> tuple[str | None, ...]:
    """The files of TLS."""
    return options.cafile, options.capath, options.cert, options.key


def tls_of(options: argparse.Namespace) -> "ssl.SSLContext | None":
    """The TLS of the connection; `None` without TLS."""
    if not wants_tls(options):
        return None
    import ssl

    try:
        made = ssl.create_default_context(cafile=options.cafile, capath=options.capath)
        if options.cert:
            made.load_cert_chain(options.cert, options.key)
    except OSError as error:  # ssl.SSLError is one
        named = " and ".join(filter(None, tls_files(options)))
        raise CommandError(f"cannot use {named}: {error}", status=USAGE) from error
    made.check_hostname = not options.insecure
    if options.tls_alpn:
        made.set_alpn_protocols([options.tls_alpn])
    return made


def printed(direction: str, packet: Packet) -> None:
    """Prints a packet for ``--debug``: no payload, no password."""
    facts = []
    for name in ("topic", "qos", "packet_id", "retain", "dup", "reason", "reasons", "filters"):
        value = getattr(packet, name, None)
        if name == "reason" and value is not None:
            value = reason_text(value)
        if value not in (None, False):
            facts.append(f"{name} {value}")
    if isinstance(packet, Publish):
        facts.append(f"{len(packet.payload)} bytes")
    line = f"{direction} {type(packet).__name__.upper()} {', '.join(facts)}".rstrip()
    print(printable(line), file=sys.stderr, flush=True)
