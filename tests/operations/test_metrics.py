"""`/metrics`: OpenMetrics that a foreign parser reads, in which every family moves."""

from __future__ import annotations

import ctypes
import functools
import http.client
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace

import pytest
from mqttcore import Broker, Settings, _core
from mqttcore._socket_path import short
from mqttcore.config import Access, HttpListener, Listener, Metrics, ServerLimits, TopicMetric
from mqttcore.plugin import Allow, Deny, Grant, Login, Message, Plugin, hook
from mqttcore.plugin.breaker import FAILURES
from mqttcore.streams.client import StreamClient
from mqttcore.streams.settings import Stream
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.eventually import eventually
from tests.operations.api import Api, UnixConnection
from tests.wire import Wire, publish

pytestmark = pytest.mark.skipif(not _core.has_streams, reason="this build has no HTTP endpoint")

ROOT = pathlib.Path(__file__).parents[2]
FAMILIES = ROOT / "rust/http/src/metrics/families.rs"

Page = dict[str, Metric]
READERS = {"mqttcore_stream_hold_lag_rows", "mqttcore_query_lag_seconds"}
"""Families with names that callers chose."""

OPEN = HttpListener(address="127.0.0.1:0")
LISTENER = Listener(address="127.0.0.1:0", name="main", anonymous=True)


def scrape(broker: Broker) -> str:
    address = broker.http_address
    assert address is not None
    with closing(http.client.HTTPConnection(*address, timeout=10)) as connection:
        return metrics(connection)


def scrape_as_owner(broker: Broker) -> str:
    socket = pathlib.Path(broker.settings.data or "") / "http"
    with short(socket) as place, closing(UnixConnection(place)) as connection:
        return metrics(connection)


def metrics(connection: http.client.HTTPConnection) -> str:
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    text = answer.read().decode()
    assert answer.status == 200
    return text


def parsed(text: str) -> Page:
    families = text_string_to_metric_families(text)  # type: ignore[no-untyped-call] # has no types
    return {family.name: family for family in families}


def values(page: Page, family: str) -> dict[tuple[str, ...], float]:
    samples = page[family].samples if family in page else []
    return {(sample.name, *sample.labels.values()): sample.value for sample in samples}


class Doorkeeper(Plugin):
    """Knows one user."""

    @hook.authenticate()
    async def login(self, login: Login) -> Deny | None:
        """Refuses strangers."""
        if login.username == "breaks":
            raise ValueError("a fault of the plugin")
        return Deny("bad_credentials") if login.username == "stranger" else None


ASKED, RELEASED = threading.Event(), threading.Event()


class Gate(Plugin):
    """Lets users in, remembers them, and holds messages up."""

    @hook.authenticate(cache=60)
    def enter(self, login: Login) -> Allow | None:
        """Lets users in."""
        return Allow(Grant(publish=["#"])) if login.username == "user" else None

    @hook.publish("gate/#", timeout=30)
    def look(self, _: Message) -> None:
        """Comes back when the test says so."""
        ASKED.set()
        RELEASED.wait(30)


def settings(folder: str, **changes: object) -> Settings:
    limits = ServerLimits(
        queue_messages=3,
        queue_disk_bytes=4_096,
        queues_disk_bytes=65_536,
        retained_messages=2,
        flapping_connects_per_minute=3,
        exempt_addresses=(),
        address_connects_per_second=0,
    )
    given = {"listeners": (LISTENER,), "limits": limits, "http": OPEN, "data": folder, **changes}
    stream = Stream(name="rows", filter=("rows/#",))
    return Settings(streams=(stream,), sys_interval_s=0.0, shards=2, **given)  # type: ignore[arg-type] # by name


@contextmanager
def running(**changes: object) -> Iterator[Broker]:
    with (
        tempfile.TemporaryDirectory() as folder,
        Broker(settings(folder, **changes), plugins=[Doorkeeper(), Gate()]) as broker,
    ):
        yield broker


class Scene:
    """A broker and its clients, whose connections end with it."""

    def __init__(self, broker: Broker, stack: ExitStack) -> None:
        self.broker = broker
        self._stack = stack

    def at_end(self, call: Callable[[], object]) -> None:
        """Calls something after the last scrape."""
        self._stack.callback(call)

    def dial(self, *, version: int = 5) -> Wire:
        """A connection."""
        return self._stack.enter_context(Wire(self.broker.port, version=version))

    def client(self, client_id: str, **given: object) -> Wire:
        """A connection with CONNACK."""
        wire = self.dial()
        wire.connect(client_id, **given)  # type: ignore[arg-type] # by name
        return wire

    def leaver(self) -> None:
        """A client with a kept session and a subscription goes away."""
        with Wire(self.broker.port) as wire:
            wire.connect("away", props={"session_expiry_interval": 600})
            wire.subscribe(("q/#", 1))


Mover = Callable[[Scene], None]


# --- what moves families --------------------------------------------------------------------------


def traffic(scene: Scene) -> None:
    """A kept session with a subscription gets messages, which are retained as well."""
    subscriber = scene.client("subscriber", props={"session_expiry_interval": 600})
    subscriber.subscribe(("a/#", 1), ("$share/group/s", 1))
    publisher = scene.client("publisher")
    for number in range(3):
        publisher.publish("a/b", b"x" * 100, qos=1, packet_id=number + 1, retain=number == 0)
        subscriber.receive_publish()
    # Two topics by turns: a topic that comes several times in a row is searched for only once.
    # Results of searches beside a change of the subscriptions are not kept.
    by_turns = (publish("elsewhere", version=5) + publish("nowhere", version=5)) * 300

    def is_cached() -> bool:
        publisher.send(by_turns)
        publisher.ping()
        return bool(scene.broker.stats()["matches_cached"])

    eventually(is_cached)
    publisher.publish("rows/1", b"a row", qos=1)
    # A row is read by queries, and counted, soon after it was acknowledged.
    eventually(lambda: scene.broker.stats()["stream_rows"] > 0)


def work(_: Scene) -> None:
    """This process, which is the broker's, takes CPU time: several ticks of the system's clock."""
    begin = time.process_time()
    while time.process_time() < begin + 0.05:
        pass


def thread(scene: Scene) -> None:
    """This process, which is the broker's, has more threads than may end meanwhile."""
    ended = threading.Event()
    scene.at_end(ended.set)
    for _ in range(100):
        threading.Thread(target=ended.wait, args=(30,)).start()


def takeover(scene: Scene) -> None:
    scene.client("same")
    scene.client("same")


def violation(scene: Scene) -> None:
    wire = scene.client("bad")
    wire.send(b"\xf0\xff\xff\xff\xff")
    wire.receive_until_close()


def noise(scene: Scene) -> None:
    wire = scene.dial()
    wire.send(b"GET / HTTP/1.1\r\n\r\n")
    wire.receive_until_close()


def wrong_login(scene: Scene) -> None:
    scene.dial().connect("c", username="stranger", password=b"x", reason=0x86)


def hooks(scene: Scene) -> None:
    """Three logins, one of them out of the cache; a message holds a hook up, another one waits."""
    ASKED.clear()
    RELEASED.clear()
    scene.at_end(RELEASED.set)
    names = ("a", "a", "b")
    _, *clients = [scene.client(name, username="user", password=b"x") for name in names]
    clients[0].send(publish("gate/1", b"", version=5))
    assert ASKED.wait(30)
    clients[1].send(publish("gate/2", b"", version=5))
    until(scene.broker, "mqttcore_hook_queue")


def flapping(scene: Scene) -> None:
    for _ in range(3):
        with Wire(scene.broker.port) as wire:
            wire.connect("restless")
    scene.dial().connect("restless", reason=0x8A)


def crowd(scene: Scene) -> None:
    """One connection too many of a listener."""
    scene.client("first")
    scene.dial().receive_until_close()


def silence(scene: Scene) -> None:
    scene.client("silent", keep_alive=1).receive_until_close()


def expiry(scene: Scene) -> None:
    with Wire(scene.broker.port) as wire:
        wire.connect("short", props={"session_expiry_interval": 1})
    until(scene.broker, "mqttcore_sessions_ended")


def full_queue(scene: Scene) -> None:
    """The queue of a kept session that is away takes so much and no more."""
    scene.leaver()
    publisher = scene.client("publisher")
    for number in range(20):
        publisher.publish("q/1", b"x" * 512, qos=1, packet_id=number + 1)


def waiting_queue(scene: Scene) -> None:
    full_queue(scene)
    until(scene.broker, "mqttcore_queue_messages")


def stored_queue(scene: Scene) -> None:
    full_queue(scene)
    until(scene.broker, "mqttcore_store_queues_ratio")


def slow_client(scene: Scene) -> None:
    """Reads nothing, and gets more than the buffers of the system hold."""
    scene.client("slow").subscribe(("a", 0))
    publisher = scene.client("publisher")
    while not any(values(parsed(scrape(scene.broker)), "mqttcore_waiting_packets").values()):
        publisher.send(publish("a", b"x" * 60_000, version=5) * 16)
        publisher.ping()


def refused_queue(scene: Scene) -> None:
    scene.leaver()
    publisher = scene.client("publisher")
    answers = (
        publisher.publish("q/1", b"x" * 512, qos=1, packet_id=number + 1) for number in range(20)
    )
    assert 0x97 in [answer.reason for answer in answers]


def denied(scene: Scene) -> None:
    assert scene.client("publisher").publish("private/1", b"x", qos=1).reason == 0x87


def too_many_retained(scene: Scene) -> None:
    publisher = scene.client("publisher")
    for number in range(4):
        publisher.publish(f"r/{number}", b"x", qos=1, packet_id=number + 1, retain=True)


def old_version(scene: Scene) -> None:
    scene.dial(version=4).connect("old", reason=1)


def until(broker: Broker, family: str) -> None:
    """Scrapes until the counter has moved."""
    for _ in range(2_000):
        if any(values(parsed(scrape(broker)), family).values()):
            return
    raise AssertionError(f"{family} has not moved in 2,000 pages")


def operator(scene: Scene) -> None:
    scene.broker.ban(client_id="nobody")


def listing(scene: Scene) -> None:
    assert scene.broker.settings.data is not None
    assert Api(pathlib.Path(scene.broker.settings.data)).ask("GET", "/clients")[0] == 200


def consumer(scene: Scene) -> None:
    """A consumer of a stream has still to read its rows, and a query reports how far it is."""
    traffic(scene)
    assert scene.broker.settings.data is not None
    with StreamClient(str(scene.broker.settings.data)) as client:
        client.hold("rows", "etl", [0])
        client.report("query", {"lag_s": 1.5})


def failing_hook(scene: Scene) -> None:
    """A hook that raises so often that it is not called any more."""
    for number in range(FAILURES):
        scene.dial().connect(f"c{number}", username="breaks", password=b"x", reason=0x88)


def unacknowledged(scene: Scene) -> None:
    """A message that its subscriber does not acknowledge."""
    scene.client("lazy").subscribe(("lazy", 1))
    scene.client("publisher").publish("lazy", b"x", qos=1, packet_id=1)
    until(scene.broker, "mqttcore_inflight")


def too_fast(scene: Scene) -> None:
    """More messages than the client may send in a second."""
    client = scene.client("fast")
    client.send(publish("a", version=5) * 200)
    until(scene.broker, "mqttcore_limit")


NEW_ONLY = replace(LISTENER, protocol_versions=("5.0",))
NARROW = replace(LISTENER, max_connections=1)
GUARDED = replace(LISTENER, anonymous=Access(publish=("a/#",)))
REFUSING = ServerLimits(queue_messages=3, queue_disk_bytes=4_096, queue_policy="refuse")

CHOSEN = Metrics(
    topics=(
        TopicMetric(filter="plant/+/temp", name="temperatures"),
        TopicMetric(filter="plant/#", name="plant"),
        TopicMetric(filter="quiet", name="quiet"),
    )
)


def chosen_topics(scene: Scene) -> None:
    """Messages on topics of `[[metrics.topics]]`, and beside them."""
    client = scene.client("meter")
    client.publish("plant/1/temp", b"12345", qos=1, packet_id=1)
    client.publish("plant/1", b"123", qos=1, packet_id=2)
    client.publish("elsewhere", b"1", qos=1, packet_id=3)


SLOW = ServerLimits(anonymous_messages_per_second=10, exempt_addresses=())

SETTINGS: dict[Mover, dict[str, object]] = {
    too_fast: {"limits": SLOW},
    old_version: {"listeners": (NEW_ONLY,)},
    crowd: {"listeners": (NARROW,)},
    denied: {"listeners": (GUARDED,)},
    refused_queue: {"limits": REFUSING},
    chosen_topics: {"metrics": CHOSEN},
}

MOVERS: dict[str, Mover] = {
    "mqttcore_topic_messages": chosen_topics,
    "mqttcore_topic_bytes": chosen_topics,
    "mqttcore_connections": traffic,
    "mqttcore_connections_accepted": traffic,
    "mqttcore_connections_refused": crowd,
    "mqttcore_connects": wrong_login,
    "mqttcore_connects_unanswered": noise,
    "mqttcore_disconnects": takeover,
    "mqttcore_connects_limited": old_version,
    "mqttcore_connects_denied": wrong_login,
    "mqttcore_logins_failed": wrong_login,
    "mqttcore_flapping_bans": flapping,
    "mqttcore_takeovers": takeover,
    "mqttcore_violations": violation,
    "mqttcore_keep_alive_timeouts": silence,
    "mqttcore_limit": too_fast,
    "mqttcore_list_part_seconds": listing,
    "mqttcore_deliver_seconds": traffic,
    "mqttcore_login_seconds": traffic,
    "mqttcore_sessions": traffic,
    "mqttcore_sessions_ended": expiry,
    "mqttcore_subscriptions": traffic,
    "mqttcore_shared_subscriptions": traffic,
    "mqttcore_wildcard_subscriptions": traffic,
    "mqttcore_directory_nodes": traffic,
    "mqttcore_directory_retired_bytes": traffic,
    "mqttcore_packets": traffic,
    "mqttcore_bytes": traffic,
    "mqttcore_messages": traffic,
    "mqttcore_payload_bytes": traffic,
    "mqttcore_queue_messages": waiting_queue,
    "mqttcore_queue_bytes": waiting_queue,
    "mqttcore_inflight": unacknowledged,
    "mqttcore_waiting_packets": slow_client,
    "mqttcore_waiting_bytes": slow_client,
    "mqttcore_matches_cached": traffic,
    "mqttcore_messages_dropped": full_queue,
    "mqttcore_messages_dropped_acknowledged": full_queue,
    "mqttcore_messages_rejected": refused_queue,
    "mqttcore_denied": denied,
    "mqttcore_queues_nearly_full": full_queue,
    "mqttcore_retained": traffic,
    "mqttcore_retained_refused": too_many_retained,
    "mqttcore_memory_used_bytes": traffic,
    "mqttcore_shard_turn_age_seconds": traffic,
    "mqttcore_store_records": traffic,
    "mqttcore_store_groups": traffic,
    "mqttcore_store_written_bytes": traffic,
    "mqttcore_store_syncs": traffic,
    "mqttcore_store_sync_seconds": traffic,
    "mqttcore_store_queues_ratio": stored_queue,
    "mqttcore_store_pending_rows": traffic,
    "mqttcore_stream_rows": traffic,
    "mqttcore_stream_unsealed_rows": traffic,
    "mqttcore_stream_tail_bytes": traffic,
    "mqttcore_stream_hold_lag_rows": consumer,
    "mqttcore_query_lag_seconds": consumer,
    "mqttcore_hook_calls": hooks,
    "mqttcore_hook_calls_in_flight": hooks,
    "mqttcore_hook_cache_hits": hooks,
    "mqttcore_hook_run_seconds": hooks,
    "mqttcore_hook_wait_seconds": hooks,
    "mqttcore_hook_queue": hooks,
    "mqttcore_hook_paused": failing_hook,
    "mqttcore_audit_entries": operator,
    "mqttcore_bans": operator,
    "mqttcore_http_requests": traffic,
    "mqttcore_http_seconds": listing,
    "mqttcore_http_responses": listing,
    "process_cpu_seconds": work,
    "process_threads": thread,
    "process_open_fds": traffic,
}

UNMOVED: dict[str, str] = {
    "mqttcore_build": "does not move while a broker runs",
    "mqttcore_start_time_seconds": "does not move while a broker runs",
    "mqttcore_memory_budget_bytes": "does not move while a broker runs",
    "mqttcore_certificate_not_after_seconds": "TLS: rust/http/tests/suite/api_messages.rs",
    "process_max_fds": "does not move while a broker runs",
    "process_resident_memory_bytes": "moves when the system likes",
    "process_virtual_memory_bytes": "moves when the system likes",
    "mqttcore_stalled": "takes a long time: rust/broker/tests/suite/slow.rs",
    "mqttcore_shared_handed_on": "a race of shards: rust/broker/tests/suite/groups.rs",
    "mqttcore_directory_waits": "a race of threads: rust/topics/tests/reclamation.rs",
    "mqttcore_retained_withheld": "a reload: rust/broker/tests/suite/retain_source.rs",
    "mqttcore_wills_delayed": "1,000 lost clients: rust/broker/tests/suite/wills.rs",
    "mqttcore_mailbox_messages": "a busy shard: rust/http/tests/suite/operations.rs",
    "mqttcore_panics": "a fault: rust/broker/tests/suite/aftermath.rs",
    "mqttcore_stream_rows_refused": "64 MiB: tests/streams/test_broker.py",
    "mqttcore_stream_tier_uploaded_bytes": "object storage: tests/streams/test_tier.py",
    "mqttcore_stream_tier_waiting_files": "object storage: tests/streams/test_tier.py",
    "mqttcore_stream_tier_failing": "object storage: tests/streams/test_tier.py",
    "mqttcore_http_connections_refused": "129 connections: rust/http/tests/suite/endpoint.rs",
    "mqttcore_kafka_waiting_bytes": "a cluster: rust/streams/tests/suite/kafka.rs",
    "mqttcore_kafka_records": "a cluster: rust/streams/tests/suite/kafka.rs",
    "mqttcore_store_log_bytes": "a full segment",
    "mqttcore_store_live_bytes": "a full segment",
    "mqttcore_store_segments": "a full segment",
    "mqttcore_store_segments_scrubbed": "a week, or rust/store/tests/rot.rs",
    "mqttcore_store_segments_damaged": "damage",
    "mqttcore_store_checkpoints": "a checkpoint",
    "mqttcore_store_checkpoint_age_seconds": "a checkpoint",
    "mqttcore_store_pressure": "a full disk: rust/store/src/wal/tests/full.rs",
    "mqttcore_store_records_not_synced": "0 again before a scrape",
    "mqttcore_store_waiting_bytes": "0 again before a scrape",
}
"""Families that no client moves here, and why. Their wiring is proved by the test
`every_figure_of_the_engine_is_shown_once` of the table, as that of all."""


@functools.cache
def pages(mover: Mover) -> tuple[Page, Page]:
    """What a broker says before and after."""
    with running(**SETTINGS.get(mover, {})) as broker, ExitStack() as stack:
        before = parsed(scrape_as_owner(broker))
        mover(Scene(broker, stack))
        after = parsed(scrape_as_owner(broker))
    return before, after


def declared() -> list[str]:
    return re.findall(r'^    family\("(\w+)"', FAMILIES.read_text(), re.MULTILINE)


@pytest.mark.parametrize("family", [name for name in declared() if name not in UNMOVED])
def test_each_family_moves(family: str) -> None:
    assert family in MOVERS, f"{family} has no mover: add one to MOVERS"

    before, after = pages(MOVERS[family])

    assert values(before, family) != values(after, family)


def test_there_are_no_movers_of_families_that_are_gone() -> None:
    assert set(MOVERS) | set(UNMOVED) <= set(declared())
    assert not set(MOVERS) & set(UNMOVED)
    cited = re.findall(r"(?:rust|tests)/[\w/]+\.\w+", " ".join(UNMOVED.values()))
    assert [file for file in cited if not (ROOT / file).is_file()] == []


def test_the_page_is_open_metrics_with_closed_labels() -> None:
    with running() as broker, ExitStack() as stack:
        text = scrape(broker)
        first = parsed(text)
        scene = Scene(broker, stack)
        for number in range(4):
            scene.client(f"client-{number}").subscribe((f"topic/{number}/#", 1))
        second = parsed(scrape(broker))

    assert text.endswith("# EOF\n")
    kafka = {"mqttcore_kafka_waiting_bytes", "mqttcore_kafka_records"}
    chosen = {"mqttcore_topic_messages", "mqttcore_topic_bytes"}
    others = {"mqttcore_build", "mqttcore_certificate_not_after_seconds", "mqttcore_http_responses"}
    assert set(declared()) - set(first) <= kafka | chosen | READERS | others
    for name in first:
        assert first[name].documentation.endswith(".")
        assert values(first, name).keys() == values(second, name).keys()


def test_http_responses_are_counted_by_route_method_and_code() -> None:
    with running() as broker:
        api = Api(pathlib.Path(broker.settings.data or ""))
        for client in ("nobody", "somebody"):
            assert api.ask("DELETE", f"/clients/{client}")[0] == 404
        assert broker.http_address is not None
        for method, path in (("GET", "/api/v1/clients"), ("BREW", "/livez"), ("HEAD", "/teapot")):
            with closing(
                http.client.HTTPConnection(*broker.http_address, timeout=10)
            ) as connection:
                connection.request(method, path)
                connection.getresponse().read()
        page = parsed(scrape(broker))

    counts = {name[1:]: value for name, value in values(page, "mqttcore_http_responses").items()}
    assert counts == {
        ("api", "DELETE", "404"): 2,
        ("api", "GET", "403"): 1,
        ("health", "other", "405"): 1,
        ("unknown", "HEAD", "403"): 1,
    }


def test_messages_on_chosen_topics_are_counted_by_name() -> None:
    before, after = pages(chosen_topics)

    def counts(page: Page, family: str) -> dict[str, float]:
        return {name: value for (_, name), value in values(page, family).items()}

    assert counts(before, "mqttcore_topic_messages") == {"temperatures": 0, "plant": 0, "quiet": 0}
    assert counts(after, "mqttcore_topic_messages") == {"temperatures": 1, "plant": 2, "quiet": 0}
    assert counts(after, "mqttcore_topic_bytes") == {"temperatures": 5, "plant": 8, "quiet": 0}


def test_drops_have_the_qos_of_the_delivery_and_bytes_the_transport() -> None:
    _, after = pages(full_queue)

    def moved(family: str) -> set[tuple[str, ...]]:
        return {name[1:] for name, value in values(after, family).items() if value}

    assert moved("mqttcore_messages_dropped") == {("queue_full", "1")}
    assert moved("mqttcore_bytes") == {("in", "tcp"), ("out", "tcp")}


def test_open_metrics_name_no_consumers_and_no_queries() -> None:
    with running() as broker, ExitStack() as stack:
        consumer(Scene(broker, stack))
        shown, owned = parsed(scrape(broker)), parsed(scrape_as_owner(broker))

    assert READERS.isdisjoint(shown)
    assert owned.keys() >= READERS


SCRAPER = """
import http.client, sys, time
connection = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=30)
print("begins", flush=True)
end = time.monotonic() + 1.5
while time.monotonic() < end:
    connection.request("GET", "/metrics")
    connection.getresponse().read()
    print(time.monotonic())
"""


def test_a_scrape_is_answered_while_nothing_of_python_runs() -> None:
    with running() as broker:
        assert broker.http_address is not None
        host, port = broker.http_address
        command = [sys.executable, "-c", SCRAPER, host, str(port)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as scraper:  # noqa: S603 - own
            assert scraper.stdout is not None
            scraper.stdout.readline()
            begun = time.monotonic()
            ctypes.PyDLL(None).usleep(1_000_000)  # other threads get no turn
            ended = time.monotonic()
            answered = [float(line) for line in scraper.stdout]

    assert [at for at in answered if begun + 0.1 < at < ended - 0.1]


def test_packets_and_ends_are_counted_by_type_and_by_reason() -> None:
    with running() as broker, ExitStack() as stack:
        scene = Scene(broker, stack)
        takeover(scene)
        wrong_login(scene)
        polite = scene.client("polite")
        polite.subscribe(("a", 0))
        polite.disconnect(4)
        rude = scene.client("rude")
        rude.close()
        for _ in range(2_000):
            page = parsed(scrape(broker))
            ends = values(page, "mqttcore_disconnects")
            if ends["mqttcore_disconnects_total", "network", "Connection lost"]:
                break

    packets = values(page, "mqttcore_packets")
    assert packets["mqttcore_packets_total", "in", "connect"] == 5
    assert packets["mqttcore_packets_total", "in", "subscribe"] == 1
    assert packets["mqttcore_packets_total", "out", "suback"] == 1
    connects = {name: value for name, value in values(page, "mqttcore_connects").items() if value}
    assert connects == {
        ("mqttcore_connects_total", "Success"): 4,
        ("mqttcore_connects_total", "Bad User Name or Password"): 1,
    }
    assert {name[1:]: value for name, value in ends.items() if value} == {
        ("network", "Connection lost"): 1,
        ("broker", "Session taken over"): 1,
        ("client", "Disconnect with Will Message"): 1,
    }


def test_calls_of_hooks_are_counted_by_plugin_and_hook() -> None:
    with running() as broker, ExitStack() as stack:
        hooks(Scene(broker, stack))
        page = parsed(scrape(broker))
        listed = Api(pathlib.Path(broker.settings.data or "")).ask("GET", "/plugins")

    calls = {
        name[1:]: value for name, value in values(page, "mqttcore_hook_calls").items() if value
    }
    doorkeeper, gate = Doorkeeper().name, Gate().name
    assert calls == {(doorkeeper, "login", "passed"): 3, (gate, "enter", "allowed"): 2}
    assert (
        values(page, "mqttcore_hook_cache_hits")["mqttcore_hook_cache_hits_total", gate, "enter"]
        == 1
    )
    assert values(page, "mqttcore_hook_calls_in_flight") == {
        ("mqttcore_hook_calls_in_flight", doorkeeper, "login"): 0,
        ("mqttcore_hook_calls_in_flight", gate, "enter"): 0,
        ("mqttcore_hook_calls_in_flight", gate, "look"): 1,
    }
    assert values(page, "mqttcore_hook_queue") == {
        ("mqttcore_hook_queue", doorkeeper): 0,
        ("mqttcore_hook_queue", gate): 1,
    }
    status, found = listed
    by_hook = {item["hook"]: item for item in found["items"]}
    assert status == 200
    assert by_hook["login"]["results"]["passed"] == by_hook["login"]["run"]["count"] == 3
    assert (by_hook["look"]["in_flight"], by_hook["look"]["run"]["p99_us"]) == (1, None)
    run = values(page, "mqttcore_hook_run_seconds")
    assert run["mqttcore_hook_run_seconds_count", doorkeeper, "login"] == 3
    assert run["mqttcore_hook_run_seconds_count", gate, "look"] == 0
    assert 0 < run["mqttcore_hook_run_seconds_sum", gate, "enter"] < 60
    waited = values(page, "mqttcore_hook_wait_seconds")
    assert waited["mqttcore_hook_wait_seconds_count", gate, "look"] == 1


def test_a_broker_without_plugins_has_no_families_of_hooks() -> None:
    with Broker(Settings(listeners=(LISTENER,), http=OPEN)) as broker:
        page = parsed(scrape(broker))

    assert not [name for name in page if name.startswith("mqttcore_hook_")]


def test_a_broker_without_a_store_has_no_families_of_one() -> None:
    with Broker(Settings(listeners=(LISTENER,), http=OPEN)) as broker:
        page = parsed(scrape(broker))

    assert "mqttcore_connections" in page
    figures = {"mqttcore_store_segments_scrubbed", "mqttcore_store_segments_damaged"}
    assert {name for name in page if name.startswith("mqttcore_store_")} == figures
