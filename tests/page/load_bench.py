"""`python -m tests.page.load_bench [TOPICS [RATE]]`: live messages of many topics in the page.

A broker has 100,000 retained messages. A browser opens the tree of topics, then subscribes to all
topics while another process publishes 10,000 messages a second to them, and scrolls the lists.
Prints frames a second, the longest frame, the heap of scripts and the private memory of the page's
process; the exit status is 1 below 30 frames a second or above 200 MB. A browser without a display
has at most 60 frames a second.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from mqttcore import Broker, Settings
from mqttcore.config import HttpListener, Listener
from playwright.sync_api import expect, sync_playwright

from tests.eventually import eventually
from tests.page.conftest import (
    CHROMIUM,
    FLAGS,
    SECRETS,
    Site,
    free_address,
    key_file,
    serve_sources,
)
from tests.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import CDPSession, Page

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
    let [frames, last, longest] = [0, begin, 0];
    const step = (now) => {
        frames += 1;
        longest = Math.max(longest, now - last);
        last = now;
        box.scrollTop = (box.scrollTop + 40) % (box.scrollHeight - box.clientHeight);
        if (now - begin < 1000 * seconds) requestAnimationFrame(step);
        else resolve([1000 * frames / (now - begin), longest]);
    };
    requestAnimationFrame(step);
})"""


class Figures(NamedTuple):
    """What a page does and has."""

    frames: float
    longest_ms: float
    heap: int
    memory: int


def private_bytes(devtools: CDPSession) -> int:
    """Memory of the largest process of pages that no other process has."""
    found = devtools.send("SystemInfo.getProcessInfo")["processInfo"]
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


def measure(page: Page, devtools: CDPSession) -> Figures:
    """Scrolls the list that is shown."""
    frames, longest = page.evaluate(FRAMES, SECONDS)
    heap = page.evaluate("performance.memory.usedJSHeapSize")
    return Figures(frames, longest, heap, private_bytes(devtools))


def look(site: Site, topics: int, rate: int) -> dict[str, Figures]:
    """The figures of each screen."""
    found = {}
    flags = [*FLAGS, "--enable-precise-memory-info"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        devtools = browser.new_browser_cdp_session()
        context = browser.new_context()
        serve_sources(context)
        page = context.new_page()
        page.goto(f"{site.address}/#/topics?tab=tree")
        page.get_by_label("Key").fill(SECRETS["operator"][0])
        page.get_by_role("button", name="Log in").click()
        for level in ("load", "0"):
            page.get_by_role("table").get_by_text(level, exact=True).click()
        expect(page.get_by_role("table").get_by_role("row").nth(20)).to_be_visible()
        found["tree"] = measure(page, devtools)
        page.goto(f"{site.address}/#/topics?tab=live")
        page.get_by_label("Topic filter").fill("#")
        before = received(site)
        page.get_by_role("button", name="Subscribe").click()
        eventually(lambda: received(site) > before + topics)
        expect(page.get_by_text("subscribed; 1,000 shown")).to_be_visible(timeout=60_000)
        with publisher(site.broker.port, topics, rate):
            before = received(site)
            eventually(lambda: received(site) > before + rate)
            before = received(site)
            found["live"] = measure(page, devtools)
            print(f"{(received(site) - before) / SECONDS:.0f} messages a second to the page")
        browser.close()
    return found


def received(site: Site) -> int:
    """Messages that the broker has sent."""
    return int(site.broker.stats()["messages_sent"])


def main() -> int:
    """Runs it; returns the exit status."""
    topics = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    rate = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
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
            retain(broker.port, topics)
            found = look(Site(broker, pathlib.Path(home)), topics, rate)
    for name, figures in found.items():
        print(
            f"{name}: {figures.frames:.0f} frames a second, longest {figures.longest_ms:.0f} ms,"
            f" heap {figures.heap / 1e6:.0f} MB, private memory {figures.memory / 1e6:.0f} MB"
        )
    too_slow = min(figures.frames for figures in found.values()) < GOAL_FRAMES
    return int(too_slow or max(figures.memory for figures in found.values()) > GOAL_BYTES)


if __name__ == "__main__":
    sys.exit(main())
