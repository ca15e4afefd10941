"""`python -m tests.page.load_bench [TOPICS [RATE]] [--profile FILE]`: live messages of many topics.

A broker has 100,000 retained messages. A browser opens the tree of topics, then subscribes to all
topics while another process publishes 10,000 messages a second to them, and scrolls the lists.
Prints frames a second, the longest frame, the heap of scripts, the private memory of the page's
process and the CPU time of a message, which other programs change less than the frames; the exit
status is 1 below 30 frames a second or above 200 MB. A browser without a display has at most 60
frames a second. `--profile` writes a profile of the scripts while messages come, for the panel
Performance of the browser's developer tools; it makes them slower.
"""

from __future__ import annotations

import argparse
import base64
import json
import mimetypes
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from mqttcore import Broker, Settings
from mqttcore.config import HttpListener, Listener
from playwright.sync_api import sync_playwright

from tests.eventually import eventually
from tests.page.conftest import (
    CHROMIUM,
    FLAGS,
    SECRETS,
    Site,
    free_address,
    key_file,
    source_of,
)
from tests.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import CDPSession

SECONDS = 15
GOAL_FRAMES = 30
GOAL_BYTES = 200_000_000
PUBLISHER = """
import socket, sys, time
port, topics, rate = map(int, sys.argv[1:])
link = socket.create_connection(("127.0.0.1", port))
link.sendall(bytes.fromhex("101300044d5154540502003c000006") + b"loader")
link.recv(64)
PARTS = 50
sent, begun = 0, time.monotonic()
def packet(number):
    topic = b"load/%d/%d/temp" % (number % 100, number % topics)
    body = b'{"temp": %d.5, "unit": "C", "number": %d}' % (number % 90, number)
    rest = len(topic).to_bytes(2, "big") + topic + b"\\0" + body
    return b"\\x30" + bytes([len(rest)]) + rest
while True:
    link.sendall(b"".join(packet(sent + at) for at in range(rate // PARTS)))
    sent += rate // PARTS
    time.sleep(max(0, begun + sent / rate - time.monotonic()))
"""
FRAMES = """seconds => new Promise((resolve) => {
    const box = document.querySelector('.rows');
    const begin = performance.now();
    let [frames, last, longest, isOn] = [0, begin, 0, true];
    const step = (now) => {
        frames += 1;
        longest = Math.max(longest, now - last);
        last = now;
        box.scrollTop = (box.scrollTop + 40) % (box.scrollHeight - box.clientHeight);
        if (isOn) requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
    // A page without frames ends, too.
    setTimeout(() => {
        isOn = false;
        const now = performance.now();
        const took = (now - begin) / 1000;
        resolve([took, frames / took, Math.max(longest, now - last)]);
    }, 1000 * seconds);
})"""


SUBMIT = """(selector, values) => {
    const form = document.querySelector(selector);
    if (!form) return false;
    for (const [name, value] of Object.entries(values)) form.elements[name].value = value;
    form.requestSubmit();
    return true;
}"""
OPEN = """name => {
    const found = [...document.querySelectorAll('.space .name')];
    const one = found.find((one) => one.textContent === name);
    one?.click();
    return Boolean(one);
}"""


class Figures(NamedTuple):
    """What a page does and has."""

    seconds: float
    frames: float
    longest_ms: float
    heap: int
    memory: int
    messages: int
    """That the broker sent meanwhile."""
    process_s: float
    main_s: float
    scripts_s: float
    """CPU time of the page's process, of its main thread, and of scripts there."""

    def __str__(self) -> str:
        times = (self.process_s, self.main_s, self.scripts_s)
        process, main, scripts = (100 * time / self.seconds for time in times)
        text = (
            f"{self.frames:.0f} frames a second, longest {self.longest_ms:.0f} ms,"
            f" heap {self.heap / 1e6:.0f} MB, private memory {self.memory / 1e6:.0f} MB,"
            f" {process:.0f} % of a core (main thread {main:.0f}, scripts {scripts:.0f})"
        )
        if self.messages < 1000:
            return text
        process, main, scripts = (1e6 * time / self.messages for time in times)
        return (
            f"{text}; {self.messages / self.seconds:.0f} messages a second, {process:.1f} µs of CPU"
            f" each (main thread {main:.1f}, scripts {scripts:.1f})"
        )


class Tab:
    """A page in a profile of its own, to which Playwright does not attach.

    To a page of Playwright, the browser reports each frame of a WebSocket: that takes more time
    than the page itself, and answers wait behind the reports.
    """

    def __init__(self, devtools: CDPSession) -> None:
        self._devtools = devtools
        self._answers: dict[int, dict[str, Any]] = {}
        self._asked: list[dict[str, Any]] = []
        self._count = 0
        devtools.on("Target.receivedMessageFromTarget", self._take)
        profile = devtools.send("Target.createBrowserContext")["browserContextId"]
        wanted = {"url": "about:blank", "browserContextId": profile, "width": 1280, "height": 800}
        target = devtools.send("Target.createTarget", wanted)["targetId"]
        attached = devtools.send("Target.attachToTarget", {"targetId": target, "flatten": False})
        self._session = attached["sessionId"]
        self.call("Performance.enable", timeDomain="threadTicks")
        if "MQTTCORE_PAGE_FILES" in os.environ:
            self.call("Fetch.enable", patterns=[{"urlPattern": "*/page/????????????????/*"}])

    def _take(self, event: dict[str, Any]) -> None:
        message = json.loads(event["message"])
        if "id" in message:
            self._answers[message["id"]] = message
        elif message["method"] == "Fetch.requestPaused":
            self._asked.append(message["params"])

    def _send(self, method: str, parameters: dict[str, Any]) -> int:
        self._count += 1
        text = json.dumps({"id": self._count, "method": method, "params": parameters})
        wanted = {"sessionId": self._session, "message": text}
        self._devtools.send("Target.sendMessageToTarget", wanted)
        return self._count

    def _serve(self, request: dict[str, Any]) -> None:
        """Answers with a file of the working tree."""
        file = source_of(request["request"]["url"])
        kind = {"name": "Content-Type", "value": mimetypes.guess_type(file)[0]}
        body = base64.b64encode(file.read_bytes()).decode()
        answer = {"responseCode": 200, "responseHeaders": [kind], "body": body}
        self._send("Fetch.fulfillRequest", {"requestId": request["requestId"], **answer})

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Calls a method of the protocol of the developer tools."""
        number = self._send(method, parameters)
        while number not in self._answers:
            self._devtools.send("Browser.getVersion")  # takes events, too
            while self._asked:
                self._serve(self._asked.pop())
            time.sleep(0.01)
        answer = self._answers.pop(number)
        assert "result" in answer, f"{method}: {answer}"
        result: dict[str, Any] = answer["result"]
        return result

    def run(self, function: str, *arguments: object) -> Any:  # noqa: ANN401 - of the function
        """Calls a function of JavaScript."""
        text = f"({function})(...{json.dumps(arguments)})"
        wanted = {"expression": text, "awaitPromise": True, "returnByValue": True}
        answer = self.call("Runtime.evaluate", **wanted)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, function: str, *arguments: object) -> None:
        """Calls a function until it returns true."""
        eventually(lambda: self.run(function, *arguments), within_s=120, told=lambda: function)

    def spent(self) -> list[float]:
        """CPU seconds of the page's process, of its main thread, and of scripts there."""
        metrics = self.call("Performance.getMetrics")["metrics"]
        values = {one["name"]: one["value"] for one in metrics}
        return [values[name] for name in ("ProcessTime", "TaskDuration", "ScriptDuration")]

    @contextmanager
    def profile(self, file: pathlib.Path | None) -> Iterator[None]:
        """Writes a profile of the page's scripts to `file`, if there is one."""
        if file is None:
            yield
            return
        self.call("Profiler.enable")
        self.call("Profiler.start")
        yield
        file.write_text(json.dumps(self.call("Profiler.stop")["profile"]))

    def private_bytes(self) -> int:
        """Memory of the largest process of pages that no other process has."""
        found = self._devtools.send("SystemInfo.getProcessInfo")["processInfo"]
        pages = [process["id"] for process in found if process["type"] == "renderer"]
        sizes = []
        for page in pages:
            text = pathlib.Path(f"/proc/{page}/smaps_rollup").read_text()
            rows = [line.split() for line in text.splitlines() if line.startswith("Private")]
            sizes.append(1024 * sum(int(row[1]) for row in rows))
        return max(sizes)


def retain(port: int, topics: int) -> None:
    """Publishes a retained message to each topic."""
    with Wire(port) as wire:
        wire.connect("filler")
        for number in range(topics):
            wire.publish(f"load/{number % 100}/{number}/temp", b'{"temp": 1}', retain=True)
        wire.publish("load/last", b"x", qos=1, retain=True)


@contextmanager
def publisher(port: int, topics: int, rate: int) -> Iterator[None]:
    """Another process that publishes."""
    command = [sys.executable, "-c", PUBLISHER, str(port), str(topics), str(rate)]
    with subprocess.Popen(command) as process:  # noqa: S603 - own
        try:
            yield
        finally:
            process.kill()


def measure(site: Site, tab: Tab) -> Figures:
    """Scrolls the list that is shown."""
    messages, before = received(site), tab.spent()
    seconds, frames, longest = tab.run(FRAMES, SECONDS)
    messages, after = received(site) - messages, tab.spent()
    heap = tab.run("() => performance.memory.usedJSHeapSize")
    times = (end - begin for begin, end in zip(before, after, strict=True))
    return Figures(seconds, frames, longest, heap, tab.private_bytes(), messages, *times)


def look(site: Site, arguments: argparse.Namespace) -> dict[str, Figures]:
    """The figures of each screen."""
    topics, rate = arguments.topics, arguments.rate
    found = {}
    flags = [*FLAGS, "--enable-precise-memory-info"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        tab = Tab(browser.new_browser_cdp_session())
        tab.call("Page.navigate", url=f"{site.address}/#/topics?tab=tree")
        tab.until(SUBMIT, ".login form", {"key": SECRETS["operator"][0]})
        for level in ("load", "0"):
            tab.until(OPEN, level)
        tab.until("() => document.querySelectorAll('.space .row').length > 20")
        found["tree"] = measure(site, tab)
        tab.run("() => { location.hash = '#/topics?tab=live'; }")
        before = received(site)
        tab.until(SUBMIT, "main form:has([name=listener] option)", {"filter": "#"})
        eventually(lambda: received(site) > before + topics, within_s=120)
        tab.until("() => document.body.textContent.includes('subscribed; 1,000 shown')")
        with publisher(site.broker.port, topics, rate):
            before = received(site)
            eventually(lambda: received(site) > before + rate)
            with tab.profile(arguments.profile):
                found["live"] = measure(site, tab)
        browser.close()
    return found


def received(site: Site) -> int:
    """Messages that the broker has sent."""
    return int(site.broker.stats()["messages_sent"])


def main() -> int:
    """Runs it; returns the exit status."""
    parser = argparse.ArgumentParser(description="live messages of many topics in the page")
    parser.add_argument("topics", type=int, nargs="?", default=100_000)
    parser.add_argument("rate", type=int, nargs="?", default=10_000, help="messages a second")
    parser.add_argument("--profile", type=pathlib.Path, help="file for a profile of the scripts")
    arguments = parser.parse_args()
    place, live = free_address(), free_address()
    with tempfile.TemporaryDirectory() as home:
        keys = pathlib.Path(home) / "keys.toml"
        key_file(keys)
        settings = Settings(
            listeners=(
                Listener(address="127.0.0.1:0", anonymous=True),
                Listener(
                    address=live,
                    anonymous=True,
                    transport="websocket",
                    origins=(f"http://{place}",),
                ),
            ),
            http=HttpListener(address=place, keys_file=keys),
            data=os.path.join(home, "data"),
            durability="memory",
        )
        with Broker(settings) as broker:
            retain(broker.port, arguments.topics)
            found = look(Site(broker, pathlib.Path(home)), arguments)
    for name, figures in found.items():
        print(f"{name}: {figures}")
    too_slow = min(figures.frames for figures in found.values()) < GOAL_FRAMES
    return int(too_slow or max(figures.memory for figures in found.values()) > GOAL_BYTES)


if __name__ == "__main__":
    sys.exit(main())
