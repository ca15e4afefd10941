"""OpenTelemetry: traces, figures and the log over OTLP, with the extra `otel` of this package.

    [[plugins]]
    use = "mqttcore.otel"
    [plugins.config]
    endpoint = "http://127.0.0.1:4318"
    trace = "propagate"
    filter = "orders/#"

With ``trace = "propagate"``, a message of MQTT 5.0 with the user property ``traceparent`` (W3C
Trace Context) continues that trace if it is sampled: the broker adds a span ``publish`` and below
it a span ``deliver``, and every copy of the message, a row of a stream too, has ``deliver`` as its
parent. Publish and deliver hooks of other plugins that get such a message have spans ``hook NAME``.
If its acknowledgement waits for the store, there are spans ``store append``, until the system has
its records, and ``store sync``, until the disk has them.
With ``"root"``, ``ratio`` of the other messages begin a trace, whatever version their publisher
has. Messages outside of ``filter`` do not pass this plugin.

Variables ``OTEL_EXPORTER_OTLP_...``, ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` win
over the configuration. What a collector does not take is dropped: spans and lines beyond 2,048, and
the figures of one interval.
"""

import asyncio
import functools
import logging
import os
import pathlib
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Final, Literal

from mqttcore import _core
from mqttcore._core import Message
from mqttcore._schema import Range
from mqttcore.logs import FIELDS
from mqttcore.plugin.answers import Replace
from mqttcore.plugin.base import HookFunction, Plugin, Stored
from mqttcore.plugin.hooks import hook
from mqttcore.plugin.marks import Mark
from mqttcore.plugin.options import PluginConfig

# isort: split
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanKind, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

GAUGES: Final = frozenset(
    {
        "clients_connected",
        "directory_nodes",
        "directory_retired_bytes",
        "in_flight_in",
        "in_flight_out",
        "kafka_waiting_bytes",
        "memory_budget_bytes",
        "memory_messages_bytes",
        "memory_passwords_bytes",
        "memory_pending_bytes",
        "memory_sessions_bytes",
        "memory_tables_bytes",
        "memory_used_bytes",
        "queued_bytes",
        "queued_messages",
        "queues_nearly_full",
        "retained_bytes",
        "retained_messages",
        "session_messages",
        "sessions",
        "sessions_to_come",
        "shared_subscriptions",
        "store_checkpoint_age_s",
        "store_live_bytes",
        "store_log_bytes",
        "store_pending_rows",
        "store_pressure",
        "store_queues_percent",
        "store_records_not_synced",
        "store_segments",
        "store_waiting_bytes",
        "stream_rows",
        "stream_rows_unsealed",
        "stream_tail_bytes",
        "stream_tier_failing",
        "stream_tier_waiting_files",
        "subscriptions",
        "waiting_bytes",
        "waiting_packets",
        "wildcard_subscriptions",
    }
)
"""Figures that are gauges, as in `/metrics`."""
SCOPE: Final = InstrumentationScope("mqttcore", _core.__version__)
PROPAGATOR: Final = TraceContextTextMapPropagator()
FOREIGN: Final = PROPAGATOR.fields
"""User properties of a trace: ``traceparent`` and ``tracestate``."""
MESSAGES: Final = frozenset({"publish", "deliver"})
"""Points of hooks that get messages of publishers."""
STORING_MAX: Final = 2_048
"""Traced messages whose records are awaited; the oldest ones are forgotten, as those that are
refused."""
TIMEOUT_S: Final = 5
"""Seconds that a collector may take for one request."""
SEVERITIES: Final = {
    logging.DEBUG: SeverityNumber.DEBUG,
    logging.INFO: SeverityNumber.INFO,
    logging.WARNING: SeverityNumber.WARN,
    logging.ERROR: SeverityNumber.ERROR,
    logging.CRITICAL: SeverityNumber.FATAL,
}


class OpenTelemetry(Plugin):
    """Sends traces, figures and the log of the broker to a collector."""

    class Config(PluginConfig):
        """Keys of ``[plugins.config]``."""

        endpoint: str = "http://127.0.0.1:4318"
        """Address of the collector (OTLP over HTTP, protobuf)."""
        headers_file: pathlib.Path | None = None
        """File with headers of the requests, one in each line: ``name: value``; keep it secret."""
        figures: bool = True
        """Whether to send the figures of `Broker.stats`."""
        interval_s: Annotated[float, Range(1, 3_600)] = 15.0
        """Seconds between two reports of figures."""
        log: bool = True
        """Whether to send the lines of the log."""
        trace: Literal["propagate", "root", "off"] = "off"
        """Traced messages: none, those with a trace, or also a share of the others."""
        filter: str = "#"
        """Topic filter of the messages that may be traced."""
        ratio: Annotated[float, Range(0, 1)] = 0.01
        """Share of the messages without a trace that begin one, with ``trace = "root"``."""
        service_name: str = "mqttcore"
        """The attribute ``service.name``."""
        resource: tuple[str, ...] = ()
        """Further attributes of the broker, such as ``deployment.environment=plant``."""

    config: Config

    def __init__(self, config: Config, /) -> None:
        super().__init__(config)
        wanted = {"report": config.figures, "publish": config.trace != "off"}
        marks = {name: mark for name, mark in self.hooks.items() if wanted[name]}
        if "report" in marks:
            marks["report"] = replace(marks["report"], every=config.interval_s)
        if "publish" in marks:
            _core.TopicFilter(config.filter)
            marks["publish"] = replace(marks["publish"], filter=config.filter)
        self.hooks = marks
        self._resource = Resource.create(dict(attributes(config)))
        self._begun_ns = time.time_ns()
        self._storing: OrderedDict[int, Context] = OrderedDict()

    async def start(self) -> None:
        """Opens the exporters; nothing is sent yet."""
        headers = read_headers(self.config.headers_file)
        self._spans = TracerProvider(
            resource=self._resource, sampler=ParentBased(TraceIdRatioBased(self._ratio()))
        )
        spans = OTLPSpanExporter(self._endpoint("traces"), headers=headers, timeout=TIMEOUT_S)
        self._spans.add_span_processor(BatchSpanProcessor(spans))
        self._tracer = self._spans.get_tracer(SCOPE.name, SCOPE.version)
        self._metrics = OTLPMetricExporter(
            self._endpoint("metrics"), headers=headers, timeout=TIMEOUT_S
        )
        self._lines = LoggerProvider(resource=self._resource)
        lines = OTLPLogExporter(self._endpoint("logs"), headers=headers, timeout=TIMEOUT_S)
        self._lines.add_log_record_processor(BatchLogRecordProcessor(lines))
        self._handler = Lines(self._lines)
        if self.config.log:
            logging.getLogger("mqttcore").addHandler(self._handler)

    async def stop(self) -> None:
        """Sends queued spans and lines, if the collector accepts them in time."""
        logging.getLogger("mqttcore").removeHandler(self._handler)
        for part in (self._spans, self._lines, self._metrics):
            await asyncio.to_thread(part.shutdown)

    @hook.publish("#", timeout=1.0)
    def publish(self, message: Message) -> Replace | None:
        """Adds the broker's spans to the trace of a message."""
        properties = message.user_properties
        carrier = {name: value for name, value in properties if name in FOREIGN}
        parent = PROPAGATOR.extract(carrier)
        if self.config.trace == "propagate" and not is_sampled(parent):
            return None
        facts = attributes_of(message)
        span = self._tracer.start_span("publish", parent, kind=SpanKind.CONSUMER, attributes=facts)
        if not span.get_span_context().trace_flags.sampled:
            return None
        within = set_span_in_context(span)
        delivery = self._tracer.start_span(
            "deliver", within, kind=SpanKind.PRODUCER, attributes=facts
        )
        PROPAGATOR.inject(carrier := {}, set_span_in_context(delivery))
        delivery.end()
        span.end()
        kept = [(name, value) for name, value in properties if name not in FOREIGN]
        number = span.get_span_context().span_id if message.qos else None
        if number is not None:
            self._storing[number] = within
            if len(self._storing) > STORING_MAX:
                self._storing.popitem(last=False)  # at once: the thread of the log removes, too
        return Replace(user_properties=[*kept, *carrier.items()], _stored_as=number)

    def _note_stored(self, times: Stored) -> None:
        """Adds the spans of the store to the trace of a message."""
        number, begun_ns, written_ns, synced_ns = times
        within = self._storing.pop(number, None)
        if within is None:
            return
        append = self._tracer.start_span("store append", within, start_time=begun_ns)
        append.end(written_ns)
        if synced_ns is not None:
            sync = self._tracer.start_span("store sync", within, start_time=written_ns)
            sync.end(synced_ns)

    def _observe(self, title: str, mark: Mark, function: HookFunction, /) -> HookFunction:
        """Adds spans of hooks that get traced messages."""
        if self.config.trace == "off" or mark.point not in MESSAGES:
            return function

        @functools.wraps(function)
        def call(message: Message) -> object:
            with self._hook_span(title, mark, message):
                return function(message)

        @functools.wraps(function)
        async def call_async(message: Message) -> object:
            with self._hook_span(title, mark, message):
                return await function(message)

        return call_async if mark.is_async else call

    @contextmanager
    def _hook_span(self, title: str, mark: Mark, message: Message) -> Iterator[None]:
        """The span of a call, if the message has a sampled trace."""
        carrier = {name: value for name, value in message.user_properties if name in FOREIGN}
        parent = PROPAGATOR.extract(carrier) if carrier else None
        if parent is None or not is_sampled(parent):
            yield
            return
        facts = {"mqttcore.hook": title, "mqttcore.point": mark.point, **attributes_of(message)}
        # a fault of the hook is recorded in its span
        with self._tracer.start_as_current_span(f"hook {title}", parent, attributes=facts):
            yield

    @hook.every(15.0, timeout=30.0)
    def report(self) -> None:
        """Sends the figures."""
        if figures := self._read_figures() if self._read_figures else {}:
            now_ns = time.time_ns()
            scope = ScopeMetrics(SCOPE, list(self._metrics_of(figures, now_ns)), "")
            resource = ResourceMetrics(self._resource, [scope], "")
            self._metrics.export(MetricsData([resource]))

    def _metrics_of(self, figures: Mapping[str, int], now_ns: int) -> Iterator[Metric]:
        for name, value in figures.items():
            point = NumberDataPoint({}, self._begun_ns, now_ns, value)
            is_gauge = name in GAUGES
            data = (
                Gauge([point])
                if is_gauge
                else Sum([point], AggregationTemporality.CUMULATIVE, is_monotonic=True)
            )
            yield Metric(f"mqttcore.{name}", None, None, data)

    def _endpoint(self, signal: str) -> str | None:
        """The URL for a signal; None: it is in a variable of the environment."""
        names = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
        if any(os.environ.get(name) for name in names):
            return None
        return f"{self.config.endpoint.rstrip('/')}/v1/{signal}"

    def _ratio(self) -> float:
        return self.config.ratio if self.config.trace == "root" else 0.0


def is_sampled(parent: Context) -> bool:
    """Whether a context has a sampled trace."""
    return get_current_span(parent).get_span_context().trace_flags.sampled


def attributes_of(message: Message) -> dict[str, str | int]:
    """The attributes of the spans of a message."""
    return {
        "messaging.system": "mqtt",
        "messaging.destination.name": message.topic,
        "messaging.client.id": message.client.client_id,
        "messaging.message.body.size": len(message.payload),
        "mqttcore.qos": message.qos,
    }


def attributes(config: OpenTelemetry.Config) -> Iterator[tuple[str, str]]:
    """The attributes of the broker.

    Raises:
        ValueError: one of the configuration has no name.
    """
    if not os.environ.get("OTEL_SERVICE_NAME"):
        yield "service.name", config.service_name
    yield "service.version", _core.__version__
    for entry in config.resource:
        name, equals, value = entry.partition("=")
        if not equals or not name:
            raise ValueError(f"resource: {entry!r} is not as name=value")
        yield name, value


def read_headers(path: pathlib.Path | None) -> dict[str, str]:
    """The headers of a file.

    Raises:
        OSError: it cannot be read.
        ValueError: a line has no colon.
    """
    headers = {}
    for line in path.read_text().splitlines() if path else ():
        name, colon, value = line.partition(":")
        if line.strip() and not colon:
            raise ValueError(f"{path}: a line is not as name: value")
        headers[name.strip()] = value.strip()
    return {name: value for name, value in headers.items() if name}


class Lines(logging.Handler):
    """Sends lines of the log, with the keys of the JSON format."""

    def __init__(self, provider: LoggerProvider) -> None:
        super().__init__()
        self._logger = provider.get_logger(SCOPE.name, SCOPE.version)

    def emit(self, record: logging.LogRecord) -> None:
        """Queues a line."""
        known: Sequence[tuple[str, str]] = getattr(record, FIELDS, ())
        kept = {f"mqttcore.{key}": value for key, value in known if key not in {"text", "level"}}
        text = dict(known).get("text", record.getMessage())
        self._logger.emit(
            LogRecord(
                timestamp=int(record.created * 1e9),
                severity_text=record.levelname,
                severity_number=SEVERITIES.get(record.levelno, SeverityNumber.UNSPECIFIED),
                body=text,
                attributes={"code.logger": record.name, **kept},
            )
        )
