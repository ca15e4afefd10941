"""`mqttcore bench`: measures rates and latencies of a broker."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from mqttcore.cli.bench_compare import Found, compare, compared, compared_lines
from mqttcore.cli.bench_options import OPTIONS, add_comparison
from mqttcore.cli.client_options import (
    STATUSES,
    add_client_options,
    add_help,
    client_of,
    parser_of,
    read_url,
)
from mqttcore.cli.connecting import Connections
from mqttcore.cli.failure import NOT_DONE, OK, REFUSED, USAGE, CommandError, reporting
from mqttcore.cli.histogram import Histogram
from mqttcore.cli.listing import with_default
from mqttcore.cli.load import Load, Plan
from mqttcore.cli.requests import Requests, RetainedMessages, Schedule, Subscriptions, retain
from mqttcore.cli.terminal import json_text, printable
from mqttcore.packets import Publish

PERCENTS: Final = (50, 90, 99, 99.9)
BUSY: Final = 0.8
"""Share of a core above which the generator itself may be the limit."""
SHORT_S: Final = 2.0
"""Shorter runs print no progress."""
SPARE_FILES: Final = 64
"""Open files of the process itself."""

Running = TypeVar("Running", Load, Requests, Connections)
WAITED: Final = (
    "Requests waited for others: with a load that does not wait (--rate), latency may be much"
    " higher."
)
FROM_DUE: Final = (
    "Latency counts from the time at which a request was due; service time from the time at which"
    " it was sent."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures; returns the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    options = parser().parse_args(with_default(given, "pairs", helps=("--help",)))
    return reporting("bench", lambda: bench(options), is_quiet=options.quiet)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = parser_of(
        "bench",
        "Measures a broker with clients in this one process. Without a subcommand: pairs. With"
        " --rate, messages and requests are sent on a schedule, whether the broker keeps up or not,"
        " and latency counts from the time at which each was due. Without it, they wait for earlier"
        " ones: a slow broker is then asked less often, so that the latency says nothing about a"
        " load that does not wait (coordinated omission).",
    )
    commands = made.add_subparsers(required=True, metavar="COMMAND")
    for name, run, words in (
        ("pairs", bench_messages, "messages from publishers to a subscriber each"),
        ("fan", bench_messages, "messages from publishers to many subscribers each"),
        ("pub", bench_messages, "messages without a subscriber, until their acknowledgement"),
        ("conn", bench_connections, "connections, from the first packet of TCP to the CONNACK"),
        ("sub", bench_subscriptions, "subscriptions, from the SUBSCRIBE to the SUBACK"),
        ("retained", bench_retained, "subscriptions, until all retained messages have arrived"),
    ):
        command = commands.add_parser(
            name,
            help=f"measure {words}",
            description=f"Measures {words}.",
            add_help=False,
            formatter_class=made.formatter_class,
            epilog=STATUSES,
        )
        add_help(command)
        add_client_options(command)
        OPTIONS[name](command)
        add_comparison(command)
        command.add_argument("--json", action="store_true", help="print JSON, and no progress")
        command.set_defaults(run=run, bench=name)
    return made


def bench(options: argparse.Namespace) -> int:
    """Measures; returns the exit status."""
    if options.id is not None or options.id_prefix or options.disable_clean_session:
        raise CommandError("-i, -I and -c are for one client, bench has many", status=USAGE)
    topic = read_url(options)
    if "topic" in options:
        options.topic = options.topic or topic or f"bench/{os.urandom(4).hex()}"
    elif topic:
        raise CommandError(f"bench conn sends no messages: leave out {topic!r}", status=USAGE)
    found, lines = measured(options)
    print(json_text(found) if options.json else "\n".join(map(printable, lines)), flush=True)
    lost, refused = found["lost"], found["refused"]
    if refused:
        raise CommandError(f"the broker refused {refused:,}", status=REFUSED)
    if lost and (found.get("qos") or "qos" not in found):
        raise CommandError(f"{lost:,} were lost", status=NOT_DONE)
    return OK


def measured(options: argparse.Namespace) -> tuple[Found, list[str]]:
    """Measures one broker, or two in turn; returns what was measured, and lines for people."""
    if options.against is None:
        found, lines = options.run(options)
        return found, lines
    rounds = []
    for number, one in enumerate(compare(options, lambda options: options.run(options)[0]), 1):
        rounds.append(one)
        if not options.json:
            print(f"round {number} of {options.rounds} is done", file=sys.stderr, flush=True)
    found = compared(options.bench, rounds)
    return found, compared_lines(found)


def bench_messages(options: argparse.Namespace) -> tuple[Found, list[str]]:
    """Measures messages; returns what was measured, and lines for people."""
    plan = Plan(
        rate=options.rate,
        seconds=options.seconds,
        qos=options.qos,
        size=options.size,
        window=options.window,
        topic=options.topic,
        fan=options.fan,
    )
    reserve_descriptors(options.publishers * (1 + plan.fan))
    load = Load(plan, lambda: client_of(options), options.publishers)
    load.run(progress(options, lambda load: f"sent {load.sent:,}, received {load.received:,}"))
    found = {
        "bench": options.bench,
        "publishers": options.publishers,
        "subscribers": options.publishers * plan.fan,
        "qos": plan.qos,
        "payload_bytes": plan.size,
        "seconds": plan.seconds,
        "sent": load.sent,
        "received": load.received,
        "refused": load.refused,
        "lost": load.lost if plan.fan else load.unacknowledged,
        "sent_rate": load.sent / load.sending_s,
        "received_rate": load.received / load.sending_s,
        "acknowledgement": summary(load.acknowledgement),
        "publisher_lag": summary(load.lag),
        **timing(options, load),
    }
    return found, message_lines(found, options)


def message_lines(found: Found, options: argparse.Namespace) -> list[str]:
    """What was measured of messages, for people."""
    lines = [
        f"{found['publishers']:,} publishers, {found['subscribers']:,} subscribers,"
        f" QoS {options.qos}, {options.size} bytes, {options.seconds:g} s",
        f"sent          {found['sent']:,} ({found['sent_rate']:,.0f}/s{asked(options)})",
        f"received      {found['received']:,} ({found['received_rate']:,.0f}/s);"
        f" lost {found['lost']:,}; refused {found['refused']:,}",
    ]
    if options.qos and options.fan:
        lines.append(f"acknowledged  {percentiles(found['acknowledgement'])}")
    if options.rate:
        lines.append(f"publisher lag {percentiles(found['publisher_lag'])}")
    return [*lines, *timing_lines(found)]


def bench_connections(options: argparse.Namespace) -> tuple[Found, list[str]]:
    """Measures connections; returns what was measured, and lines for people."""
    reserve_descriptors(options.clients)
    load = Connections(lambda: client_of(options), schedule(options, options.clients))
    load.run(progress(options, lambda load: f"{load.done:,} of {options.clients:,}"), options.hold)
    found = {
        "bench": "conn",
        "clients": options.clients,
        "connected": load.done,
        "refused": load.failed.total(),
        "failures": dict(load.failed),
        "lost": load.lost,
        "rate": load.done / load.elapsed_s,
        **timing(options, load),
    }
    lines = [
        f"connected     {found['connected']:,} of {options.clients:,}"
        f" ({found['rate']:,.0f}/s{asked(options)}); ended by the broker {found['lost']:,}",
        *(f"failed        {count:,}: {why}" for why, count in load.failed.most_common()),
        *timing_lines(found),
    ]
    return found, lines


def bench_subscriptions(options: argparse.Namespace) -> tuple[Found, list[str]]:
    """Measures subscriptions; returns what was measured, and lines for people."""
    reserve_descriptors(options.clients)
    clients = [client_of(options) for _ in range(options.clients)]
    plan = schedule(options, options.subscriptions)
    load = Subscriptions(clients, plan, options.qos, options.topic)
    load.run(progress(options, lambda load: f"{load.done:,} of {plan.total:,}"))
    found = requested(options, load)
    title = f"{options.clients:,} clients, {plan.total:,} subscriptions"
    return found, [title, *request_lines(found, options), *timing_lines(found)]


def bench_retained(options: argparse.Namespace) -> tuple[Found, list[str]]:
    """Measures retained messages; returns what was measured, and lines for people."""
    reserve_descriptors(options.clients)
    clients = [client_of(options) for _ in range(options.clients)]
    plan = schedule(options, options.clients)
    load = RetainedMessages(clients, plan, options.qos, options.topic, options.messages)
    begun = time.monotonic()
    try:
        retain_all(options, b"x" * options.size)
        retained_s = time.monotonic() - begun
        load.run(progress(options, lambda load: f"{load.done:,} of {plan.total:,} clients"))
    finally:
        retain_all(options, b"")
    found = requested(options, load) | {
        "messages": options.messages,
        "payload_bytes": options.size,
        "retained_rate": options.messages / retained_s,
        "received": load.received,
        "received_rate": load.received / load.elapsed_s,
        "first_message": summary(load.first),
    }
    lines = [
        f"{options.messages:,} retained messages of {options.size} bytes,"
        f" {options.clients:,} clients, QoS {options.qos}",
        f"retained      {found['retained_rate']:,.0f}/s",
        *request_lines(found, options),
        f"received      {found['received']:,} messages ({found['received_rate']:,.0f}/s)",
        f"first message {percentiles(found['first_message'])}",
        *timing_lines(found),
    ]
    return found, lines


def retain_all(options: argparse.Namespace, payload: bytes) -> None:
    """Publishes the retained messages; without a payload they are removed.

    Raises:
        CommandError: the broker cannot be reached, or refuses one.
    """
    with client_of(options) as publisher:
        publisher.connect()
        retain(
            publisher,
            (
                Publish(
                    topic=f"{options.topic}/{number}",
                    payload=payload,
                    qos=max(options.qos, 1),
                    retain=True,
                )
                for number in range(options.messages)
            ),
        )
        publisher.close()


def schedule(options: argparse.Namespace, count: int) -> Schedule:
    """The schedule of requests."""
    return Schedule(total=count, rate=options.rate, window=options.window)


def reserve_descriptors(connections: int) -> None:
    """Raises the limit of open files, if it is too low.

    Raises:
        CommandError: the system does not allow it.
    """
    import resource  # only `bench` has many connections

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + SPARE_FILES
    if hard != resource.RLIM_INFINITY and needed > hard:
        text = f"{connections:,} connections need {needed:,} open files; the limit is {hard:,}"
        raise CommandError(f"{text}: raise it (ulimit -n), or use fewer", status=USAGE)
    if soft != resource.RLIM_INFINITY and needed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def progress(
    options: argparse.Namespace, words: Callable[[Running], str]
) -> Callable[[Running, float], None]:
    """Prints how far a load is, if it takes more than two seconds."""

    def tell(load: Running, passed_s: float) -> None:
        if options.json or getattr(options, "seconds", passed_s) <= SHORT_S:
            return
        p99_ms = load.latency.percentile_ns(99) / 1e6
        print(f"{passed_s:.0f} s: {words(load)}, p99 {p99_ms:.2f} ms", file=sys.stderr, flush=True)

    return tell


def requested(options: argparse.Namespace, load: Requests) -> Found:
    """What was measured of requests."""
    return {
        "bench": options.bench,
        "clients": options.clients,
        "qos": options.qos,
        "begun": load.begun,
        "done": load.done,
        "refused": load.refused.total(),
        "refusals": dict(load.refused),
        "lost": load.begun - load.ended,
        "rate": load.done / load.elapsed_s,
        **timing(options, load),
    }


def request_lines(found: Found, options: argparse.Namespace) -> list[str]:
    """The numbers of requests for people."""
    return [
        f"subscribed    {found['done']:,} ({found['rate']:,.0f}/s{asked(options)});"
        f" lost {found['lost']:,}; refused {found['refused']:,}",
        *(f"refused       {count:,}: {why}" for why, count in found["refusals"].items()),
    ]


def timing(options: argparse.Namespace, load: Load | Requests | Connections) -> Found:
    """The latencies, and the share of a core that this process used."""
    return {
        "asked_rate": options.rate or None,
        "latency": summary(load.latency),
        "latency_from": "due" if options.rate else "sent",
        "service_time": summary(load.service),
        "generator_cpu": load.cpu_s / load.elapsed_s,
    }


def timing_lines(found: Found) -> list[str]:
    """The latencies for people."""
    lines = [f"latency       {percentiles(found['latency'])}"]
    if found["asked_rate"] and found["service_time"]:
        lines += [f"service time  {percentiles(found['service_time'])}", FROM_DUE]
    elif not found["asked_rate"] and found["latency"]:
        lines.append(WAITED)
    if found["generator_cpu"] > BUSY:
        lines.append(
            f"This command used {found['generator_cpu']:.0%} of a core: it may be the limit, not"
            " the broker. Lower --rate, or run several."
        )
    return lines


def asked(options: argparse.Namespace) -> str:
    """The rate of the options, as a part of a line."""
    return f", asked {options.rate:,.0f}/s" if options.rate else ""


def summary(times: Histogram) -> dict[str, float] | None:
    """Percentiles in milliseconds; `None` without times."""
    if not times.count:
        return None
    found = {f"p{percent:g}_ms": times.percentile_ns(percent) / 1e6 for percent in PERCENTS}
    return {**found, "max_ms": times.maximum_ns / 1e6}


def percentiles(times: dict[str, float] | None) -> str:
    """Percentiles in a line."""
    if times is None:
        return "not measured: there is no answer to QoS 0, or none has come"
    return "  ".join(f"{name.removesuffix('_ms')} {time:.3g} ms" for name, time in times.items())


if __name__ == "__main__":
    sys.exit(main())
