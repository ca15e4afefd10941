"""`mqttcore bench --against`: measures two brokers in turn, and compares them."""

import argparse
import statistics
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from mqttcore.cli.client_options import PORT, TLS_PORT, wants_tls
from mqttcore.cli.failure import USAGE, CommandError

Found = dict[str, Any]  # a measurement: what `json.dumps` takes
RATES: Final = {"pub": "sent_rate", "conn": "rate", "sub": "rate"}
"""The rate that is compared; of the others, that of received messages."""
LATENCIES: Final = ("p50_ms", "p99_ms")


class Place(NamedTuple):
    """The address of a broker."""

    host: str
    port: int | None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.port else host


def place_of(text: str) -> Place:
    """The address of ``--against``, as HOST or HOST:PORT."""
    from urllib.parse import urlsplit  # as in `read_url`

    try:
        url = urlsplit(f"//{text}")
        found = Place(url.hostname or "", url.port)
    except ValueError:
        found = Place("", None)
    if not found.host or url.path or url.query or "@" in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST or HOST:PORT")
    return found


def compare(
    options: argparse.Namespace, measure: Callable[[argparse.Namespace], Found]
) -> Iterator[Found]:
    """Measures both brokers in each round, in changing order; returns a round at a time.

    Raises:
        CommandError: the options name one broker twice, or something fails.
    """
    places = (Place(options.host, options.port), options.against)
    if options.unix:
        raise CommandError("--against needs -h: --unix names one broker only", status=USAGE)
    default = TLS_PORT if wants_tls(options) else PORT
    addresses = [str(place._replace(port=place.port or default)) for place in places]
    if addresses[0] == addresses[1]:
        raise CommandError(f"--against names the broker of -h: {addresses[0]}", status=USAGE)
    for number in range(options.rounds):
        found: Found = {}
        order = list(zip(addresses, places, strict=True))
        for address, place in reversed(order) if number % 2 else order:
            options.host, options.port = place
            found[address] = measure(options)
        yield {address: found[address] for address in addresses}


def compared(bench: str, rounds: list[Found]) -> Found:
    """All rounds, and the ratios of the second broker to the first."""
    ratios: dict[str, list[float]] = {}
    for measured in rounds:
        first, second = (figures(bench, found) for found in measured.values())
        for name, figure in first.items():
            if figure and name in second:
                ratios.setdefault(name, []).append(second[name] / figure)
    every = [found for measured in rounds for found in measured.values()]
    return {
        "bench": bench,
        "brokers": list(rounds[0]),
        "rounds": rounds,
        "ratio": {
            name: {"median": statistics.median(found), "least": min(found), "most": max(found)}
            for name, found in ratios.items()
        },
        "lost": sum(found["lost"] for found in every),
        "refused": sum(found["refused"] for found in every),
        "qos": every[0].get("qos", 1),
    }


def figures(bench: str, found: Found) -> dict[str, float]:
    """The figures of a measurement that are compared."""
    latency = found["latency"] or {}
    rate = found[RATES.get(bench, "received_rate")]
    return {"rate": rate, **{name: latency[name] for name in LATENCIES if latency}}


def compared_lines(found: Found) -> list[str]:
    """A comparison for people."""
    lines = [f"{len(found['rounds'])} rounds, {' and '.join(found['brokers'])} in turn"]
    for address in found["brokers"]:
        all_rounds = [figures(found["bench"], one[address]) for one in found["rounds"]]
        texts = [
            f"{name.removesuffix('_ms')} {text_of(name, [one[name] for one in all_rounds])}"
            for name in found["ratio"]
        ]
        lines.append(f"{address}: {', '.join(texts)} (medians)")
    for name, ratio in found["ratio"].items():
        lines.append(
            f"{name.removesuffix('_ms')}: {found['brokers'][1]} has {ratio['median']:.2f} times"
            f" that of {found['brokers'][0]} ({ratio['least']:.2f} to {ratio['most']:.2f})"
        )
    lines.append(f"lost {found['lost']:,}; refused {found['refused']:,}")
    return lines


def text_of(name: str, values: list[float]) -> str:
    """The median with its unit."""
    median = statistics.median(values)
    return f"{median:,.0f}/s" if name == "rate" else f"{median:.3g} ms"
