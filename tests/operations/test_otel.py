"""`mqttcore.otel`: traces, figures and the log, as a collector of OpenTelemetry gets them."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from mqttcore import Broker, Settings, _core
from mqttcore.config import HttpListener, Listener
from mqttcore.otel import GAUGES, OpenTelemetry, read_headers
from mqttcore.plugin import Message, Plugin, hook
from mqttcore.streams.client import StreamClient
from mqttcore.streams.settings import Stream
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from tests.collector import Collector, collecting
from tests.eventually import eventually
from tests.wire import DISCONNECT, Wire

FAMILIES = pathlib.Path(__file__).parents[2] / "rust/http/src/metrics/families.rs"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as server:
        yield server


@contextmanager
def broker(plugin: OpenTelemetry, **changes: object) -> Iterator[Broker]:
    listener = Listener(address="127.0.0.1:0", anonymous=True)
    settings = Settings(listeners=(listener,), sys_interval_s=0, **changes)  # type: ignore[arg-type] # by name
    with Broker(settings, plugins=[plugin]) as running:
        yield running


def plugin(endpoint: str, **given: object) -> OpenTelemetry:
    config = {"endpoint": endpoint, "figures": False, "log": False, **given}
    return OpenTelemetry(OpenTelemetry.Config(**config))  # type: ignore[arg-type] # by name


def traceparent(properties: object) -> str | None:
    assert isinstance(properties, list | None)
    return dict(properties or []).get("traceparent")


@pytest.mark.skipif(not _core.has_streams, reason="this build has no streams")
def test_copies_and_rows_have_the_span_of_the_broker_as_parent(
    collector: Collector, tmp_path: pathlib.Path
) -> None:
    pa = pytest.importorskip("pyarrow")
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text("a-token-of-a-test-made-up")
    changes = {
        "data": str(tmp_path / "data"),
        "http": HttpListener(),
        "streams": (Stream(name="orders", filter=("orders/#",)),),
    }
    traced = plugin(collector.endpoint, trace="propagate", filter="orders/#")
    with (
        broker(traced, **changes) as running,
        Wire(running.port) as subscriber,
        Wire(running.port) as client,
    ):
        subscriber.connect("subscriber")
        subscriber.subscribe(("#", 1))
        client.connect("publisher")
        others = [("a", "1"), ("a", "2")]
        given = {"user_property": [*others, ("traceparent", SAMPLED), ("tracestate", "k=v")]}
        client.publish("orders/1", b"x", qos=1, props=given)
        copy = subscriber.receive().property("user_property")
        with StreamClient(tmp_path / "data") as reader:
            eventually(lambda: reader.stream("orders").partitions[0].end == 1)
            rows = reader.rows("orders", partition=0, start=0, end=1)
            with rows, pa.ipc.open_stream(rows) as stream:
                [row] = stream.read_all().to_pylist()

    deliver, publish, append, sync = collector.spans()
    assert (deliver.name, publish.name) == ("deliver", "publish")
    assert (append.name, sync.name) == ("store append", "store sync")
    assert append.trace_id.hex() == sync.trace_id.hex() == TRACE
    assert append.parent_span_id == sync.parent_span_id == publish.span_id
    assert append.start_time_unix_nano <= append.end_time_unix_nano == sync.start_time_unix_nano
    assert sync.start_time_unix_nano <= sync.end_time_unix_nano
    assert publish.trace_id.hex() == deliver.trace_id.hex() == TRACE
    assert publish.parent_span_id.hex() == PARENT
    assert deliver.parent_span_id == publish.span_id
    parent = f"00-{TRACE}-{deliver.span_id.hex()}-01"
    assert copy == [*others, ("traceparent", parent), ("tracestate", "k=v")]
    stored = {entry["key"]: entry["value"] for entry in row["user_properties"]}
    assert stored["traceparent"] == parent
    facts = {entry.key: entry.value.string_value for entry in publish.attributes}
    assert facts["messaging.destination.name"] == "orders/1"
    assert facts["messaging.client.id"] == "publisher"


@pytest.mark.parametrize(
    ("given", "topic"),
    [(None, "orders/1"), (UNSAMPLED, "orders/1"), ("nonsense", "orders/1"), (SAMPLED, "other")],
)
def test_messages_without_a_sampled_trace_and_other_topics_stay_as_they_are(
    collector: Collector, given: str | None, topic: str
) -> None:
    traced = plugin(collector.endpoint, trace="propagate", filter="orders/#")
    with (
        broker(traced) as running,
        Wire(running.port) as subscriber,
        Wire(running.port) as client,
    ):
        subscriber.connect("subscriber")
        subscriber.subscribe(("#", 1))
        client.connect("publisher")
        properties = {"user_property": [("traceparent", given)]} if given else None
        client.publish(topic, b"x", qos=1, props=properties)
        copy = subscriber.receive().property("user_property")

    assert traceparent(copy) == given
    assert collector.spans() == []


class Checks(Plugin):
    """Looks at messages, before they are routed and before each delivery."""

    @hook.publish("orders/#")
    def look(self, message: Message) -> None:
        """Passes all but one."""
        if message.payload == b"broken":
            raise ValueError("cannot be read")

    @hook.deliver("orders/#")
    async def look_again(self, message: Message) -> None:
        """Passes all."""


def test_hooks_that_get_a_traced_message_have_spans(collector: Collector) -> None:
    listener = Listener(address="127.0.0.1:0", anonymous=True)
    settings = Settings(listeners=(listener,), sys_interval_s=0)
    traced = plugin(collector.endpoint, trace="propagate")
    with (
        Broker(settings, plugins=[traced, Checks()]) as running,
        Wire(running.port) as subscriber,
        Wire(running.port) as client,
    ):
        subscriber.connect("subscriber")
        subscriber.subscribe(("#", 1))
        client.connect("publisher")
        given = {"user_property": [("traceparent", SAMPLED)]}
        client.publish("orders/1", b"x", qos=1, props=given)
        subscriber.receive()
        client.publish("orders/1", b"without a trace", qos=1)
        subscriber.receive()
        client.publish("orders/2", b"broken", qos=1, props=given)

    spans = collector.spans()
    name = f"hook {Checks.__module__}.Checks"
    assert [span.name for span in spans] == [
        *("deliver", "publish", f"{name}.look", f"{name}.look_again"),
        *("deliver", "publish", f"{name}.look"),
    ]
    deliver, _, look, look_again, _, _, broken = spans
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    assert look.parent_span_id == look_again.parent_span_id == deliver.span_id
    assert look.end_time_unix_nano >= look.start_time_unix_nano
    facts = {entry.key: entry.value.string_value for entry in look.attributes}
    assert facts["mqttcore.point"] == "publish"
    assert (look.status.code, broken.status.code) == (
        Status.STATUS_CODE_UNSET,
        Status.STATUS_CODE_ERROR,
    )
    assert "cannot be read" in broken.status.message


@pytest.mark.parametrize(
    ("durability", "qos", "names"),
    [
        ("fsync", 1, ["store append", "store sync"]),
        ("fsync", 2, ["store append", "store sync"]),
        ("fsync", 0, []),
        ("os", 1, ["store append"]),
        ("memory", 1, []),
    ],
)
def test_what_an_acknowledgement_waits_for_in_the_store_has_spans(
    collector: Collector, tmp_path: pathlib.Path, durability: str, qos: int, names: list[str]
) -> None:
    traced = plugin(collector.endpoint, trace="propagate")
    with (
        broker(traced, data=str(tmp_path / "data"), durability=durability) as running,
        Wire(running.port) as subscriber,
        Wire(running.port) as client,
    ):
        subscriber.connect("subscriber", props={"session_expiry_interval": 600})
        subscriber.subscribe(("#", 2))
        client.connect("publisher")
        properties = {"user_property": [("traceparent", SAMPLED)]}
        client.publish("orders/1", b"x", qos=qos, props=properties)
        subscriber.receive()

    deliver, publish, *of_store = collector.spans()
    assert (deliver.name, publish.name) == ("deliver", "publish")
    assert [span.name for span in of_store] == names
    assert {span.parent_span_id for span in of_store} <= {publish.span_id}


def test_messages_of_old_clients_begin_a_trace_with_root(collector: Collector) -> None:
    traced = plugin(collector.endpoint, trace="root", ratio=1.0)
    with (
        broker(traced) as running,
        Wire(running.port) as subscriber,
        Wire(running.port, version=4) as client,
    ):
        subscriber.connect("subscriber")
        subscriber.subscribe(("#", 1))
        client.connect("publisher")
        client.publish("orders/1", b"x", qos=1)
        copy = subscriber.receive().property("user_property")

    deliver, publish = collector.spans()
    assert publish.parent_span_id == b""
    # The flags also say that the number of the trace is random.
    assert traceparent(copy) == f"00-{deliver.trace_id.hex()}-{deliver.span_id.hex()}-03"


def test_figures_and_lines_of_the_log_arrive(collector: Collector, tmp_path: pathlib.Path) -> None:
    headers = tmp_path / "headers"
    headers.write_text("X-Tenant: plant\n")
    sending = plugin(
        collector.endpoint,
        figures=True,
        log=True,
        interval_s=1,
        headers_file=headers,
        resource=("deployment.environment=test",),
    )
    with broker(sending) as running, Wire(running.port) as client:
        client.connect("one")
        # A packet that only servers send.
        client.send(b"\x20\x02\x00\x00")
        client.expect(DISCONNECT)
        eventually(lambda: bool(collector.bodies("metrics")))

    [resource] = ExportMetricsServiceRequest.FromString(
        collector.bodies("metrics")[-1]
    ).resource_metrics
    assert {
        entry.key: entry.value.string_value for entry in resource.resource.attributes
    }.items() >= {
        "service.name": "mqttcore",
        "deployment.environment": "test",
    }.items()
    metrics = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
    assert metrics["mqttcore.sessions"].HasField("gauge")
    accepted = metrics["mqttcore.connections_accepted"].sum
    assert accepted.is_monotonic
    assert accepted.data_points[0].as_int == 1
    lines = [
        record
        for body in collector.bodies("logs")
        for logs in ExportLogsServiceRequest.FromString(body).resource_logs
        for scope in logs.scope_logs
        for record in scope.log_records
    ]
    [line] = [line for line in lines if "client one" in line.body.string_value]
    facts = {entry.key: entry.value.string_value for entry in line.attributes}
    assert facts["mqttcore.client_id"] == "one"
    assert facts["mqttcore.ip"] == "127.0.0.1"
    assert {tenant for _, tenant, _ in collector.kept} == {"plant"}


def test_a_broker_whose_collector_is_away_serves_and_stops() -> None:
    with (
        broker(plugin("http://127.0.0.1:9", trace="root", ratio=1.0)) as running,
        Wire(running.port) as client,
    ):
        client.connect("one")
        for _ in range(10):
            client.publish("a", b"x", qos=1)


def test_off_has_no_hooks() -> None:
    assert plugin("http://127.0.0.1:4318").hooks == {}


def test_each_figure_is_of_the_kind_that_metrics_have() -> None:
    families = re.split(r'\n    family\("', FAMILIES.read_text())[1:]
    figures: dict[bool, set[str]] = {True: set(), False: set()}
    for family in families:
        kind = re.match(r"\w+\", (\w+)", family)
        assert kind
        found = re.findall(r'(?:One|s\.figure)\("(\w+)"\)|(?:part|less)\("[^"]*", "(\w+)"', family)
        figures[kind[1] == "Gauge"] |= {first or second for first, second in found}

    assert figures[True] <= GAUGES
    assert not GAUGES & figures[False]


def test_headers_are_lines_with_a_colon(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "headers"
    file.write_text("Authorization: Basic a:b\n\nX-A: b\n")
    assert read_headers(file) == {"Authorization": "Basic a:b", "X-A": "b"}
    assert read_headers(None) == {}
    file.write_text("no colon\n")

    with pytest.raises(ValueError, match="name: value"):
        read_headers(file)


def test_resources_need_a_name() -> None:
    with pytest.raises(ValueError, match="name=value"):
        plugin("http://127.0.0.1:4318", resource=("plant",))
