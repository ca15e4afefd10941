"""`mqttcore bench`: measures rate and latency between publishers and subscribers."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

from mqttcore.cli.client_options import add_client_options, client_of, parser_of, read_url
from mqttcore.cli.failure import NOT_DONE, OK, USAGE, CommandError, reporting
from mqttcore.cli.load import STAMPS, Load, Plan, summary

PERCENTS: Final = (50, 90, 99, 99.9)
BUSY: Final = 0.8
"""Share of a core above which the generator itself may be the limit."""
SHORT_S: Final = 2.0
"""Shorter runs print no progress."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures; returns the exit status."""
    options = parser().parse_args(arguments)
    return reporting("bench", lambda: bench(options), is_quiet=options.quiet)


def parser() -> argparse.ArgumentParser:
    """The command line. Longer than other functions: one call for each option."""
    made = parser_of(
        "bench",
        "Measures pairs of a publisher and a subscriber, all in this one process. With --rate,"
        " messages are sent on a schedule, whether the broker keeps up or not, and latency counts"
        " from the time at which a message was due. Without it, each pair sends as soon as earlier"
        " messages have arrived: a slow broker is then asked less often, so that the latency says"
        " nothing about a load that does not wait (coordinated omission).",
    )
    add_client_options(made)
    made.add_argument(
        "--pairs", type=positive, default=1, metavar="COUNT", help="number of pairs (default: 1)"
    )
    made.add_argument(
        "--rate",
        type=float,
        default=0.0,
        metavar="RATE",
        help="messages per second of all pairs together (default: as many as --window allows)",
    )
    made.add_argument(
        "--window",
        type=positive,
        default=100,
        metavar="COUNT",
        help="without --rate: messages in flight of each pair (default: 100)",
    )
    made.add_argument(
        "--seconds", type=float, default=10.0, metavar="SECONDS", help="duration (default: 10)"
    )
    made.add_argument(
        "--size",
        type=positive,
        default=64,
        metavar="BYTES",
        help="bytes of a payload (default: 64)",
    )
    made.add_argument(
        "-q", "--qos", type=int, choices=(0, 1, 2), default=0, help="QoS (default: 0)"
    )
    made.add_argument(
        "-t", "--topic", metavar="TOPIC", help="prefix of the topics (default: bench/ID)"
    )
    made.add_argument("--json", action="store_true", help="print JSON, and no progress")
    return made


def positive(text: str) -> int:
    """A whole number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("the number must be 1 or more")
    return number


def bench(options: argparse.Namespace) -> int:
    """Measures; returns the exit status."""
    topic = options.topic or read_url(options) or f"bench/{os.urandom(4).hex()}"
    plan = plan_of(options, topic)
    load = Load(plan, lambda: client_of(options), options.pairs)
    load.run(lambda so_far, seconds: None if options.json else tell(so_far, seconds, plan))
    found = result(load, plan, options.pairs)
    print(json.dumps(found) if options.json else text_of(found, plan))
    return OK if load.received == load.sent or not plan.qos else NOT_DONE


def plan_of(options: argparse.Namespace, topic: str) -> Plan:
    """The plan of the measurement.

    Raises:
        CommandError: the options contradict each other.
    """
    if options.size < STAMPS.size:
        text = f"--size is {STAMPS.size} or more: payloads begin with the time"
        raise CommandError(text, status=USAGE)
    if options.rate < 0 or options.seconds <= 0:
        raise CommandError("--rate and --seconds are above 0", status=USAGE)
    if options.id is not None or options.id_prefix or options.disable_clean_session:
        raise CommandError("-i, -I and -c are for one client, bench has many", status=USAGE)
    return Plan(
        rate=options.rate,
        seconds=options.seconds,
        qos=options.qos,
        size=options.size,
        window=options.window,
        topic=topic,
    )


def tell(load: Load, seconds: float, plan: Plan) -> None:
    """Prints the progress of runs of more than two seconds."""
    if plan.seconds > SHORT_S:
        p99_ms = load.latency.percentile_ns(99) / 1e6
        print(
            f"{seconds:.0f} s: sent {load.sent:,}, received {load.received:,}, p99 {p99_ms:.2f} ms",
            file=sys.stderr,
            flush=True,
        )


def result(load: Load, plan: Plan, pairs: int) -> dict[str, Any]:  # what `json.dumps` takes
    """The measurement."""
    return {
        "pairs": pairs,
        "qos": plan.qos,
        "payload_bytes": plan.size,
        "seconds": plan.seconds,
        "asked_rate": plan.rate or None,
        "sent": load.sent,
        "received": load.received,
        "refused": load.refused,
        "lost": load.sent - load.received - load.refused,
        "sent_rate": load.sent / load.sending_s,
        "latency": summary(load.latency, PERCENTS),
        "latency_from": "due" if plan.rate else "sent",
        "service_time": summary(load.service, PERCENTS),
        "publisher_lag": summary(load.lag, PERCENTS),
        "generator_cpu": load.cpu_s / load.elapsed_s,
    }


def text_of(found: dict[str, Any], plan: Plan) -> str:
    """The measurement for people."""
    asked = f", asked {plan.rate:,.0f}/s" if plan.rate else ""
    lines = [
        f"{found['pairs']} pairs, QoS {plan.qos}, {plan.size} bytes, {plan.seconds:g} s",
        f"sent          {found['sent']:,} ({found['sent_rate']:,.0f}/s{asked})",
        f"received      {found['received']:,}; lost {found['lost']:,};"
        f" refused {found['refused']:,}",
        f"latency       {percentiles(found['latency'])}",
    ]
    if plan.rate:
        lines += [
            f"service time  {percentiles(found['service_time'])}",
            f"publisher lag {percentiles(found['publisher_lag'])}",
            "Latency counts from the time at which a message was due; service time from the time"
            " at which it was sent.",
        ]
    else:
        lines.append(
            "Publishers waited for their subscribers: with a load that does not wait (--rate),"
            " latency may be much higher."
        )
    if found["generator_cpu"] > BUSY:
        lines.append(
            f"This command used {found['generator_cpu']:.0%} of a core: it may be the limit, not"
            " the broker. Lower --rate, or run several."
        )
    return "\n".join(lines)


def percentiles(times: dict[str, float]) -> str:
    """Percentiles in a line."""
    return "  ".join(f"{name.removesuffix('_ms')} {time:.3g} ms" for name, time in times.items())


if __name__ == "__main__":
    sys.exit(main())
