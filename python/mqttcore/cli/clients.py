"""`mqttcore clients`: clients of a running broker."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from mqttcore.cli import kick
from mqttcore.cli.api import Api, Json, add_command, asking, path_of
from mqttcore.cli.events import event_options, print_events
from mqttcore.cli.failure import OK
from mqttcore.cli.listing import natural, paging_options, print_list, with_default
from mqttcore.cli.table import Column, Table, age, expiry, fact_lines
from mqttcore.cli.terminal import json_text

SORTS: Final = (
    *("client_id", "stored", "queue", "inflight", "backlog", "connected_at"),
    *("rate_in", "rate_out", "slow"),
)
COLUMNS: Final = (
    Column("CLIENT", lambda client: client["client_id"]),
    Column("USER", lambda client: client["username"]),
    Column("CONNECTED", lambda client: age(client["connected_at_ms"])),
    Column("ADDRESS", lambda client: client["address"]),
    Column("LISTENER", lambda client: client["listener"]),
    Column("MQTT", lambda client: client["version"], is_number=True),
    Column("SUBS", lambda client: client["subscriptions"], is_number=True),
    Column("QUEUE", lambda client: client["queue"]["messages"], is_number=True),
    Column("OUT", lambda client: client["inflight"]["out"], is_number=True),
    Column("BACKLOG", lambda client: client["backlog_bytes"], is_number=True),
)
SUBSCRIPTIONS: Final = (
    Column("FILTER", lambda held: held["filter"]),
    Column("GROUP", lambda held: held["share"]),
    Column("QOS", lambda held: held["qos"], is_number=True),
    Column("ID", lambda held: held["subscription_id"], is_number=True),
)
IN_FLIGHT: Final = (
    Column("TOPIC", lambda sent: sent["topic"]),
    Column("PACKET", lambda sent: sent["packet_id"], is_number=True),
    Column("QOS", lambda sent: sent["qos"], is_number=True),
    Column("STATE", lambda sent: sent["state"]),
    Column("BYTES", lambda sent: sent["payload_bytes"], is_number=True),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints clients; returns the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    options = parser().parse_args(with_default(given, "list"))
    return asking("clients", options, options.run)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="mqttcore clients",
        description="Clients of a running broker: sessions, with or without a connection."
        " Without a subcommand: list.",
    )
    commands = made.add_subparsers(required=True, metavar="COMMAND")
    words = "list clients"
    listing = add_command(commands, "list", words, paging_options())
    add_filters(listing)
    listing.add_argument(
        "--sort",
        choices=SORTS,
        default=SORTS[0],
        help="order (default: client_id); all but client_id and stored print at most 1,000 clients",
    )
    listing.set_defaults(run=list_clients, connected=None)
    words = "print one client, its subscriptions and its messages in flight"
    show = add_command(commands, "show", words)
    show.add_argument("client", metavar="ID", help="client identifier")
    show.set_defaults(run=show_client)
    words = "list recent events of one client, the newest first"
    events = add_command(commands, "events", words)
    events.add_argument("client", metavar="ID", help="client identifier")
    event_options(events)
    events.set_defaults(run=print_events)
    words = "disconnect a client, as `mqttcore kick` does"
    kicked = add_command(commands, "kick", words)
    kick.add_options(kicked)
    kicked.set_defaults(run=kick.kick)
    return made


def add_filters(listing: argparse.ArgumentParser) -> None:
    """Adds which clients are listed."""
    listing.add_argument("--find", metavar="TEXT", help="part of the client identifier")
    state = listing.add_mutually_exclusive_group()
    state.add_argument(
        "--connected", action="store_const", const=True, help="clients with a connection"
    )
    state.add_argument(
        "--offline",
        action="store_const",
        const=False,
        dest="connected",
        help="clients without a connection",
    )
    listing.add_argument("--user", metavar="NAME", help="clients with this user name")
    listing.add_argument("--ip", metavar="NETWORK", help="clients of this address or network")
    listing.add_argument(
        "--mqtt", choices=("3.1", "3.1.1", "5.0"), help="clients of this MQTT version"
    )
    listing.add_argument("--listener", metavar="NAME", help="clients of this listener")
    listing.add_argument(
        "--min-queue", type=natural, metavar="COUNT", help="minimum number of queued messages"
    )
    listing.add_argument(
        "--min-inflight", type=natural, metavar="COUNT", help="minimum number of messages in flight"
    )


def list_clients(api: Api, options: argparse.Namespace) -> int:
    """Prints a table of clients."""
    query = {
        "q": options.find,
        "connected": options.connected,
        "user": options.user,
        "ip": options.ip,
        "version": options.mqtt,
        "listener": options.listener,
        "min_queue": options.min_queue,
        "min_inflight": options.min_inflight,
        "sort": options.sort,
    }
    return print_list(api, "/clients", query, COLUMNS, options)


def show_client(api: Api, options: argparse.Namespace) -> int:
    """Prints all about one client."""
    found = details(api, options.client)
    if options.json:
        lists = {"subscriptions": found.subscriptions, "inflight_messages": found.in_flight}
        print(json_text({**found.client, **lists}))
        return OK
    print(*detail_lines(found), sep="\n")
    return OK


class Details(NamedTuple):
    """All about one client."""

    client: Json
    subscriptions: list[Json]
    in_flight: list[Json]


def details(api: Api, client_id: str) -> Details:
    """A client with its subscriptions and its messages in flight.

    Raises:
        CommandError: there is no such client, or the broker does not answer.
    """
    path = path_of("clients", client_id)
    client = api.get(path)
    subscriptions = api.get(f"{path}/subscriptions", {"limit": 1_000})["items"]
    in_flight = api.get(f"{path}/inflight", {"limit": 1_000})["items"]
    return Details(client, subscriptions, in_flight)


def detail_lines(found: Details, *, width: int | None = None) -> Iterator[str]:
    """All about one client, for people; ``width`` as in `Table`."""
    yield from fact_lines(facts(found.client))
    for columns, items in ((SUBSCRIPTIONS, found.subscriptions), (IN_FLIGHT, found.in_flight)):
        if items:
            yield ""
            yield from Table(columns, width=width).lines(items)


def protocol(client: Json) -> str:
    """The protocol version of a client, and what its connection runs over."""
    words = str(client["version"])
    if client["transport"]:
        words += f" over {client['transport']}"
    if tls := client["tls"]:
        words += f", TLS {tls['version']} with {tls['cipher']}"
    return words


def queued(queue: Json) -> str:
    """The queue of a client."""
    words = f"{queue['messages']} of {queue['max_messages']} messages, {queue['bytes']} bytes"
    return f"{words}, {queue['on_disk']} on the disk only" if queue["on_disk"] else words


def will(sent: Json | None) -> str | None:
    """The will of a client."""
    if sent is None:
        return None
    retained = ", retained" if sent["retain"] else ""
    delay = f", after {sent['delay_s']} s" if sent["delay_s"] else ""
    return f"{sent['topic']} with QoS {sent['qos']}{retained}{delay}"


def limit_name(limit: str) -> str:
    """A limit that holds a client back, as the configuration names it."""
    return "memory" if limit == "memory" else f"{limit}_per_second"


def traffic(client: Json) -> list[tuple[str, object]]:
    """Rates and times of a connected client."""
    found: list[tuple[str, object]] = []
    if rates := client["rates"]:
        found.append(("packets/s", f"{rates['in']} from it, {rates['out']} to it"))
    if counted := client.get("bytes"):
        found.append(("bytes", f"{counted['in']} from it, {counted['out']} to it"))
    if latency := client["latency"]:
        found.append(("deliveries", f"{latency['last_ms']} ms, at worst {latency['worst_ms']} ms"))
    waits = {"network": "its network: the socket is full", "ack": "acknowledgements"}
    if client["waits_for"]:
        found.append(("messages wait for", waits[client["waits_for"]]))
    if client["held_back_by"]:
        found.append(("held back by", ", ".join(map(limit_name, client["held_back_by"]))))
    return found


def facts(client: Json) -> list[tuple[str, object]]:
    """The fields of a client in words."""
    connected = age(client["connected_at_ms"])
    heard, expires = age(client["last_packet_ms"]), expiry(client["session_expiry_s"])
    created = age(client["session_created_ms"])
    made = f", created {created} ago" if created else ""
    return [
        ("client", client["client_id"]),
        ("user", client["username"]),
        ("connected", f"for {connected}, last packet {heard} ago" if connected else "no"),
        ("address", client["address"]),
        ("port", client["port"]),
        ("listener", client["listener"]),
        ("MQTT", protocol(client)),
        ("keep-alive", f"{client['keep_alive_s']} s"),
        ("clean start", client["clean_start"]),
        ("session expiry", f"{expires}, durability {client['durability']}{made}"),
        ("subscriptions", client["subscriptions"]),
        ("queued", queued(client["queue"])),
        ("in flight", f"{client['inflight']['out']} out, {client['inflight']['in']} in"),
        *(("dropped", f"{count}: {why}") for why, count in client["dropped"].items()),
        *([("taken over", f"{client['takeovers']} times")] if client["takeovers"] else []),
        ("backlog", f"{client['backlog_bytes']} bytes"),
        *traffic(client),
        ("will", will(client["will"])),
        ("certificate", client["certificate"]),
        ("permissions of", client["granted_by"]),
    ]


if __name__ == "__main__":
    sys.exit(main())
