"""Value types of the configuration: addresses, paths, filters."""

import ipaddress
import os
import re
from typing import Annotated, Literal

from mqttcore import _core
from mqttcore._schema import Parsed, Range

BUILT_IN_ADDRESS = "127.0.0.1:1883"
UNIX_SCHEME = "unix:"
UNIX_PATH_BYTES = 107
"""Maximum length of the path of a socket on Linux."""
SOCKET_MODE = "0660"
WEBSOCKET_SCHEME = "ws://"
WEBSOCKET_PATH = "/mqtt"
ProtocolVersion = Literal["3.1", "3.1.1", "5.0"]
Seconds = Annotated[float, Range(0, 2**32 - 1)]


def split_address(text: str) -> tuple[str, int]:
    """Host and port of ``127.0.0.1:1883``, ``[::1]:1883`` or ``localhost:1883``.

    Raises:
        ValueError: the text is no such address.
    """
    if "://" in text:
        raise ValueError(f"{text!r} is a URL")
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"{text!r} has no port")
    if host == "localhost":
        return "127.0.0.1", int(port)
    bracketed = host.startswith("[") and host.endswith("]")
    address = ipaddress.ip_address(host[1:-1] if bracketed else host)
    if bracketed != (address.version == 6):
        raise ValueError(f"{text!r}: write IPv6 addresses in brackets, others without")
    return str(address), int(port)


def is_loopback(address: str) -> bool:
    """Whether ``address`` is reachable from this machine only."""
    if unix_path(address) is not None:
        return True
    host, _ = split_address(address)
    return ipaddress.ip_address(host).is_loopback


def unix_path(address: str) -> str | None:
    """The path of ``unix:/run/mqttcore/mqtt.sock``; None: another kind of address."""
    return address.removeprefix(UNIX_SCHEME) if address.startswith(UNIX_SCHEME) else None


def check_listen_address(text: str) -> None:
    """Refuses text that is neither an address nor a possible path of a socket."""
    path = unix_path(text)
    if path is None:
        split_address(text)
    elif not path.startswith("/") or path.endswith("/") or "\0" in path:
        raise ValueError(f"{path!r} is not an absolute path of a file")
    elif len(os.fsencode(path)) > UNIX_PATH_BYTES:
        raise ValueError(f"the path is longer than {UNIX_PATH_BYTES} bytes")


def socket_mode(text: str) -> int:
    """The permissions in octal digits, as ``0660``.

    Raises:
        ValueError: the text is something else.
    """
    if not re.fullmatch(r"0?[0-7]{3}", text):
        raise ValueError(f"{text!r} is not a mode")
    return int(text, 8)


Address = Annotated[
    str, Parsed(split_address, "IP address or localhost, and port, as 127.0.0.1:1883 or [::1]:1883")
]


def check_http_address(text: str) -> None:
    """Refuses text that is neither an address nor empty."""
    if text:
        split_address(text)


HttpAddress = Annotated[
    str,
    Parsed(
        check_http_address,
        "IP address or localhost, and port, as 127.0.0.1:8090; or empty: Unix sockets only",
    ),
]

ListenAddress = Annotated[
    str,
    Parsed(
        check_listen_address,
        "IP address or localhost, and port, as 127.0.0.1:1883 or [::1]:1883; or"
        " unix: and a path, as unix:/run/mqttcore/mqtt.sock",
    ),
]
SocketMode = Annotated[str, Parsed(socket_mode, "three octal digits, as 0660")]


def check_metric_name(text: str) -> None:
    """Refuses text that cannot be the name of a metric of topics."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", text):
        raise ValueError(f"{text!r} is not the name of a metric")


MetricName = Annotated[
    str, Parsed(check_metric_name, "1 to 64 letters, digits, dots, hyphens and underscores")
]


Filter = Annotated[str, Parsed(_core.TopicFilter, "a topic filter")]
MountPoint = Annotated[
    str, Parsed(_core.check_mount_point, "a topic name that does not begin with $, as plant/1")
]


Network = Annotated[
    str, Parsed(ipaddress.ip_network, "an IP address, or a network as 10.0.0.0/8 or 2001:db8::/32")
]


def check_proxy(text: str) -> None:
    """Refuses text that is neither a network nor ``uid:`` and the number of a user."""
    user = text.removeprefix("uid:")
    if user == text:
        ipaddress.ip_network(text)
    elif not re.fullmatch(r"[0-9]{1,10}", user) or int(user) >= 2**32:
        raise ValueError(f"{text!r} is not uid: and the number of a user")


ProxySource = Annotated[
    str,
    Parsed(
        check_proxy,
        "an IP address, a network as 10.0.0.0/8 or 2001:db8::/32, or uid: and the number of a user",
    ),
]


GrantRule = Annotated[
    str,
    Parsed(
        _core.check_grant_rule,
        "a topic filter, or $# for all topics that begin with $",
        is_placed=True,
    ),
]


def check_path(text: str) -> None:
    """Refuses text that is not a path of an HTTP request."""
    if not re.fullmatch(r"/[!-~]*", text) or re.search(r"[?#]", text):
        raise ValueError(f"{text!r} is not a path")


def check_origin(text: str) -> None:
    """Refuses text that is not an origin of a browser."""
    if text != "*" and not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*://[^/\s]+", text):
        raise ValueError(f"{text!r} is not an origin")


def check_host(text: str) -> None:
    """Refuses text that is not a host name."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", text):
        raise ValueError(f"{text!r} is not a host name")


HostName = Annotated[str, Parsed(check_host, "a name as broker.example.org, without port")]
UrlPath = Annotated[str, Parsed(check_path, "a path as /mqtt, without query")]
Origin = Annotated[str, Parsed(check_origin, 'an origin as https://example.org, or "*"')]
