"""The process of `mqttcore serve`: its log, its banner and its signals."""

import contextlib
import gc
import os
import pathlib
import select
import signal
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mqttcore import _core, damage, logs
from mqttcore._log import load as load_log
from mqttcore._log import logger
from mqttcore.auditing import Caller, called_by
from mqttcore.broker import Broker
from mqttcore.config import Listener, Origin, Settings
from mqttcore.errors import ConfigError, MqttError, StoppedError, StoreFailedError

if TYPE_CHECKING:
    from mqttcore._serve_options import Options

log = logger("mqttcore")

EXIT_STORE_FAILED = 74
"""Exit status of an input or output error (sysexits.h)."""

EXIT_BROKER_FAILED = 70
"""Exit status of an internal software error (sysexits.h)."""

SWITCH_INTERVAL_S = 0.0005
"""Seconds that a busy Python thread may delay others: a tenth of Python's default."""


def run(options: "Options") -> int:
    """Runs the broker until a signal ends it; returns the exit status."""
    _core.disable_core_files()  # they would contain the secrets of the configuration
    _core.keep_freed_memory()
    try:
        broker = Broker(origin_of(options))
        settings = broker.settings
        if options.check_config:
            for warning in broker.check():
                print(f"warning: {warning}", file=sys.stderr)
            print(f"{options.config or 'built-in profile'}: valid")
            print(memory(settings))
            return 0
        return serve(broker, options)
    except ConfigError as error:
        print("\n".join(error.faults), file=sys.stderr)
        return 2
    except MqttError as error:
        print(f"mqttcore: {error}{damage.advice(error)}", file=sys.stderr)
        return 1


def origin_of(options: "Options") -> Origin:
    """File, environment and flags."""
    return Origin(
        path=None if options.config is None else pathlib.Path(options.config),
        environment=os.environ,
        listen=options.listen,
        log_level=options.log_level,
        data=options.data,
    )


def serve(broker: Broker, options: "Options") -> int:
    """Starts the broker, prints the banner, and waits for signals."""
    settings = broker.settings
    try:
        logs.configure(settings.log_level, settings.log)
    except OSError as error:
        raise ConfigError([f"log.to: cannot open {settings.log.to}: {error.strerror}"]) from error
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    if options.accept_loss and settings.data:
        damage.accept_loss(pathlib.Path(settings.data))
    signals = Signals()
    broker.start(accept_clock=options.accept_clock)
    # now that clients can connect; the first record may say that no file can be opened
    load_log()
    print(banner(broker, has_file=options.config is not None), flush=True)
    watch(broker, signals)
    gc.freeze()  # what a start loads stays for ever
    gc.enable()
    while (number := signals.wait()) == signal.SIGHUP:
        reload(broker)
    if failure := broker.failure():
        log.critical("stopping, %s: %s", subject(failure), failure)
    else:
        log.info("stopping: %s", signal.Signals(number).name)
        if number == signal.SIGTERM:
            drain(broker, signals)
    signals.release()
    broker.stop()
    if not failure and (failure := broker.failure()):
        log.critical("stopped, but %s: %s", subject(failure), failure)
    if failure is None:
        return 0
    return EXIT_STORE_FAILED if isinstance(failure, StoreFailedError) else EXIT_BROKER_FAILED


def subject(failure: StoppedError) -> str:
    """The part that failed, for the log."""
    is_store = isinstance(failure, StoreFailedError)
    return "the store has failed" if is_store else "the broker has failed"


def banner(broker: Broker, *, has_file: bool) -> str:
    """The banner: listeners, durability, and the warnings of the default profile."""
    settings = broker.settings
    addresses = iter(broker.addresses)
    places = ", ".join(place(listener, addresses) for listener in settings.listeners)
    fate = "" if settings.data else "; all data is lost when the process ends"
    lines = [
        f"mqttcore {_core.__version__}: listening on {places}; durability: {broker.guarantees}"
    ]
    if not has_file:
        lines.append(
            "no configuration file, so the built-in profile: anonymous clients may publish to # and"
            f" subscribe to # and $SYS/#{fate}"
        )
    elif not settings.plugins and not any(entry.access for entry in settings.listeners):
        lines.append("no plugin and no anonymous access: every client is rejected")
    if address := broker.http_address:
        scheme = "https" if settings.http and settings.http.tls else "http"
        lines.append(f"http: {scheme}://{authority(address)}")
    lines.append(memory(settings))
    return "\n".join(lines)


def memory(settings: Settings) -> str:
    """The memory budget, and the source of its size."""
    given = settings.limits.memory_bytes
    budget = _core.memory_budget(given) >> 20
    source = "limits.memory_bytes" if given else "60 % of the memory limit"
    return f"memory: {budget:,} MiB ({source})"


def place(listener: Listener, addresses: Iterator[tuple[str, int]]) -> str:
    """The address of a listener as text; for TCP the next one of ``addresses``."""
    if listener.unix_socket:
        return listener.address
    address = authority(next(addresses))
    if listener.transport == "websocket":
        return f"{'wss' if listener.tls else 'ws'}://{address}{listener.path}"
    return f"mqtts://{address}" if listener.tls else address


def authority(address: tuple[str, int]) -> str:
    """Host and port for a URL."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reload(broker: Broker) -> None:
    """Applies a new configuration completely, or not at all."""
    try:
        with called_by(Caller(who="SIGHUP", how="signal")):
            broker.reload_origin()
    except ConfigError as error:
        log.error("reload failed, the old configuration stays:\n%s", "\n".join(error.faults))
    except MqttError as error:
        log.error("reload failed, the old configuration stays: %s", error)


def drain(broker: Broker, signals: "Signals") -> None:
    """Continues for `drain_s` of [http], so that load balancers notice that the broker stops."""
    http = broker.settings.http
    if http is None or not http.drain_s:
        return
    log.info("/readyz fails; stopping in %g s, or at the next signal", http.drain_s)
    with contextlib.suppress(StoppedError):
        broker.drain()
    signals.wait_within(http.drain_s)


class Signals:
    """The signals for the process, awaited on the main thread."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # the signal number comes through the pipe; the handler only replaces the default action
            signal.signal(number, lambda *_: None)

    def release(self) -> None:
        """Restores the signal handlers: a second signal ends the process at once."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)

    def send(self, number: int) -> None:
        """Makes `wait` return a signal; may be called from any thread."""
        os.write(self._writer, bytes([number]))

    def wait(self) -> int:
        """Blocks until a signal arrives."""
        steering = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        while (number := os.read(self._reader, 1)[0]) not in steering:
            pass
        return number

    def wait_within(self, seconds: float) -> None:
        """Blocks until a signal arrives, at most for ``seconds``."""
        if select.select([self._reader], [], [], seconds)[0]:
            os.read(self._reader, 1)


def watch(broker: Broker, signals: Signals) -> None:
    """Ends the process when its broker fails."""

    def wait() -> None:
        while not (failure := broker.failure(within=3600.0)) and broker.is_running:
            pass
        if failure:
            signals.send(signal.SIGTERM)

    threading.Thread(target=wait, name="mqttcore-watch", daemon=True).start()
