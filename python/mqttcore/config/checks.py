"""Validation that needs more than one value of the configuration."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from mqttcore._core import has_streams
from mqttcore._schema import Entry, Faults, Made, Place
from mqttcore.config.parts import HttpListener, Listener, LogOutput, Metrics, Tls, TopicRule
from mqttcore.config.values import SOCKET_MODE, WEBSOCKET_PATH, is_loopback, unix_path
from mqttcore.errors import ConfigError
from mqttcore.streams.kafka import check_kafka
from mqttcore.streams.settings import BUILD, check_streams, read_token

TOPIC_METRICS_MAX: Final = 100
"""Maximum number of metrics of topics: each PUBLISH is compared with all of their filters."""


def check_together(
    values: Mapping[str, Made], place: Callable[[str], Place], faults: Faults
) -> None:
    """Checks values against each other; ``values`` are the given ones, by key."""
    check_listeners(values.get("listeners", (Listener(),)), place, faults)
    check_topics(values.get("topics", ()), place, faults)
    check_metrics(values.get("metrics", Metrics()), values.get("http"), place, faults)
    output = values.get("log", LogOutput())
    if output.rotate_mb and output.to == "stderr":
        faults.add(place("log.rotate_mb"), "log.rotate_mb", "needs a file in log.to")
    if not values.get("data"):
        check_durability(values, place, faults)
    streams = values.get("streams", ())
    check_streams(streams, values.get("data", ""), place, faults)
    check_kafka([stream.log for stream in streams], values.get("kafka"), place, faults)
    if http := values.get("http"):
        check_http(http, place, faults)
        if not has_streams:
            faults.add(place("http"), "http", BUILD)
        if not http.address and not values.get("data"):
            what = "needs an address, or a data folder for its Unix socket"
            faults.add(place("http"), "http", what)


def check_http(http: HttpListener, place: Callable[[str], Place], faults: Faults) -> None:
    """Checks that the address is allowed, and that the token is valid."""
    if http.tls is not None:
        check_tls(http.tls, "http.tls", place, faults)
        if http.tls.identity is not None:
            what = "does nothing here: requests name no user"
            faults.add(place("http.tls.identity"), "http.tls.identity", what)
    if http.tls is not None and not http.address:
        faults.add(place("http.tls"), "http.tls", "has no effect without http.address")
    is_local = not http.address or is_loopback(http.address)
    if http.tls is None and not http.insecure and not is_local:
        faults.add(
            place("http.address"),
            "http.address",
            f"{http.address} can be reached by other machines, and tokens are not encrypted",
            "allowed: a loopback address, http.tls, or http.insecure = true",
        )
    if http.metrics == "token" and http.token_file is None and http.keys_file is None:
        what = "'token' needs http.token_file or http.keys_file"
        faults.add(place("http.metrics"), "http.metrics", what, "allowed: open, off")
    if http.token_file is None:
        return
    try:
        read_token(http.token_file)
    except ValueError as error:
        allowed = (
            "allowed: a file that only its owner can read, with 16 to 4_096 printable characters"
        )
        faults.add(place("http.token_file"), "http.token_file", str(error), allowed)


def check_listeners(
    listeners: Sequence[Listener], place: Callable[[str], Place], faults: Faults
) -> None:
    """Checks the listeners against each other, and that their addresses are allowed."""
    if not listeners:
        faults.add(place("listeners"), "listeners", "is empty", "allowed: one or more")
    taken: dict[str, int] = {}
    for index, listener in enumerate(listeners):
        key = f"listeners[{index}]"
        if taken.setdefault(listener.title, index) != index and not is_free_port(listener):
            other = f"listeners[{taken[listener.title]}]"
            faults.add(
                place(key), key, f"{listener.title!r} is already the address or name of {other}"
            )
        if listener.access and not listener.insecure and not is_loopback(listener.address):
            faults.add(
                place(f"{key}.anonymous"),
                f"{key}.anonymous",
                f"{listener.address} can be reached by other machines",
                f"allowed: a loopback address, or {key}.insecure = true",
            )
        if not listener.protocol_versions:
            where = f"{key}.protocol_versions"
            faults.add(place(where), where, "is empty", "allowed: one or more")
        check_transport(listener, key, place, faults)
        check_socket(listener, key, place, faults)
        if listener.tls is not None:
            check_tls(listener.tls, f"{key}.tls", place, faults)


def check_durability(
    values: Mapping[str, Made], place: Callable[[str], Place], faults: Faults
) -> None:
    """Refuses levels of durability that need a data folder if there is none."""
    limits = values.get("limits")
    if limits is not None and limits.queue_policy == "refuse":
        refuse_policy("limits.queue_policy", place, faults)
    for name in ("listeners", "topics"):
        for index, entry in enumerate(values.get(name, ())):
            if entry.durability in ("os", "fsync"):
                key = f"{name}[{index}].durability"
                what = f"{entry.durability!r} needs a data folder"
                faults.add(place(key), key, what, "allowed: memory")
            if entry.queue_policy == "refuse":
                refuse_policy(f"{name}[{index}].queue_policy", place, faults)


def check_topics(
    topics: Sequence[TopicRule], place: Callable[[str], Place], faults: Faults
) -> None:
    """Refuses rules without an effect."""
    for index, rule in enumerate(topics):
        if rule.durability is None and rule.queue_policy is None:
            key = f"topics[{index}]"
            faults.add(place(key), key, "has no effect without durability or queue_policy")


def check_metrics(
    metrics: Metrics, http: HttpListener | None, place: Callable[[str], Place], faults: Faults
) -> None:
    """Refuses metrics of topics that nobody can read, too many of them, and equal names."""
    key = "metrics.topics"
    if metrics.topics and http is None:
        faults.add(place(key), key, "has no effect without [http], which serves the metrics")
    if len(metrics.topics) > TOPIC_METRICS_MAX:
        what = f"has {len(metrics.topics)} entries"
        faults.add(place(key), key, what, f"allowed: up to {TOPIC_METRICS_MAX}")
    taken: dict[str, int] = {}
    for index, metric in enumerate(metrics.topics):
        first = taken.setdefault(metric.name, index)
        if first != index:
            where = f"{key}[{index}].name"
            what = f"{metric.name!r} is already the name of {key}[{first}]"
            faults.add(place(where), where, what, "allowed: another name")


def refuse_policy(key: str, place: Callable[[str], Place], faults: Faults) -> None:
    """Refuses ``refuse`` without a store: only stored messages can be refused."""
    what = "'refuse' has no effect without a data folder: no session is kept"
    faults.add(place(key), key, what)


def check_transport(
    listener: Listener, key: str, place: Callable[[str], Place], faults: Faults
) -> None:
    """Refuses keys without an effect."""
    if listener.transport == "websocket":
        return
    for name, is_given in (
        ("path", listener.path != WEBSOCKET_PATH),
        ("origins", bool(listener.origins)),
    ):
        if is_given:
            where = f"{key}.{name}"
            faults.add(place(where), where, f"has no effect with transport {listener.transport!r}")


def check_socket(
    listener: Listener, key: str, place: Callable[[str], Place], faults: Faults
) -> None:
    """Refuses keys for Unix sockets only, and two identities."""
    if unix_path(listener.address) is None:
        for name, is_given in (
            ("mode", listener.mode != SOCKET_MODE),
            ("group", listener.group is not None),
            ("identity", listener.identity == "uid"),
        ):
            if is_given:
                where = f"{key}.{name}"
                faults.add(place(where), where, "has no effect without a Unix socket")
    check_proxies(listener, key, place, faults)
    if listener.identity and listener.tls is not None and listener.tls.identity:
        where = f"{key}.identity"
        faults.add(place(where), where, "the user name cannot come from tls.identity, too")


def check_proxies(
    listener: Listener, key: str, place: Callable[[str], Place], faults: Faults
) -> None:
    """Refuses proxies that cannot connect to the listener, and identities that do not fit."""
    is_unix = unix_path(listener.address) is not None
    for number, source in enumerate(listener.proxy_from):
        if source.startswith("uid:") != is_unix:
            where = f"{key}.proxy_from[{number}]"
            text = "a network has no effect on a Unix socket: name a user, as uid:33"
            faults.add(
                place(where), where, text if is_unix else "has no effect without a Unix socket"
            )
    if listener.identity == "uid" and listener.proxy_from:
        where = f"{key}.identity"
        faults.add(
            place(where), where, "clients behind a proxy have no user: 'uid' needs no proxy_from"
        )
    identity = listener.identity or ""
    if identity.startswith("proxy_") and not listener.proxy_from:
        where = f"{key}.identity"
        faults.add(place(where), where, f"{identity!r} has no effect without proxy_from")


def check_tls(tls: Tls, key: str, place: Callable[[str], Place], faults: Faults) -> None:
    """Refuses keys that contradict each other; the files are read when the broker starts."""
    asks = tls.client_certificates != "none"
    if asks and tls.client_ca is None:
        where = f"{key}.client_certificates"
        what = f"{tls.client_certificates!r} does nothing without client_ca"
        faults.add(place(where), where, what, "allowed: none, or a file with CAs in client_ca")
    for name in ("client_ca", "crl", "identity"):
        if not asks and getattr(tls, name) is not None:
            where = f"{key}.{name}"
            what = "does nothing unless client_certificates is 'optional' or 'required'"
            faults.add(place(where), where, what)


def is_free_port(listener: Listener) -> bool:
    """Whether the address has another port after each start."""
    return not listener.name and listener.address.endswith(":0")


def raise_faults(faults: Faults) -> None:
    """Raises `ConfigError` if there are faults."""
    if faults:
        raise ConfigError(faults.lines(), placed=faults.placed())


def place_of(root: Entry, key: str) -> Place:
    """The place of ``key``, or of the nearest key around it."""
    entry = root
    for step in re.findall(r"[^.\[\]]+", key):
        if isinstance(entry.value, dict) and step in entry.value:
            entry = entry.value[step]
        elif isinstance(entry.value, list) and step.isdigit() and int(step) < len(entry.value):
            entry = entry.value[int(step)]
    return entry.place
