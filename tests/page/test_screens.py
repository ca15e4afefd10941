"""Each screen in each theme, and on a small screen: no error, nothing wider than the screen.

With `MQTTCORE_SCREENSHOTS=FOLDER`, each is kept as a picture.
"""

from __future__ import annotations

import os
import pathlib
import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.page.conftest import SECRETS
from tests.wire import Will

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.page.conftest import Site, Visitor

FOLDER = os.environ.get("MQTTCORE_SCREENSHOTS")
SCREENS = {
    "overview": ("", "Overview", "20 sessions"),
    "clients": ("clients", "Clients", "pump-10"),
    "client": ("clients/pump-7", "pump-7", "Keep Alive"),
    "client-queue": ("clients/away?tab=queue", "away", "plant/11/temp"),
    "client-events": ("clients/pump-7?tab=events", "pump-7", "plant/7/set"),
    "topics": ("topics", "Topics", "plant/11/temp"),
    "tree": ("topics?tab=tree", "Topics", "plant"),
    "live": ("topics?tab=live", "Topics", "User of MQTT"),
    "publish": ("topics?tab=publish", "Topics", "The broker itself publishes"),
    "subscriptions": ("subscriptions", "Subscriptions", "plant/alarm"),
    "streams": ("flow", "Streams", "readings"),
    "access": ("access", "Access", "May it"),
    "bans": ("access?tab=bans", "Access", "floods"),
    "renew": ("access?tab=renew", "Access", "Whose rights"),
    "explain": ("explain", "Explain", "Bytes of the payload"),
    "events": ("explain?tab=after", "Explain", "plant/alarm"),
    "traces": ("traces", "Traces", "client pump-*"),
    "system": ("system", "System", "websockets"),
    "plugins": ("system?tab=plugins", "System", "mqttcore.auth.users"),
    "log": ("system?tab=log", "System", "disconnected"),
    "store": ("system?tab=store", "System", "log bytes"),
    "configuration": ("system?tab=configuration", "System", "Value"),
    "keys": ("system?tab=keys", "System", "operator"),
    "audit": ("system?tab=audit", "System", "the program"),
}
"""The route, the heading and a text of each screen."""
VIEWS = {
    "light": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 740}, "color_scheme": "light"},
}


WIDE = """() => [...document.querySelectorAll('.bar *, main, main *')]
    .filter(one => !one.closest('.scroll, .tabs'))
    .filter(one => one.getBoundingClientRect().right > innerWidth + 1)
    .map(one => one.outerHTML.slice(0, 120))"""
"""The elements that end to the right of the screen."""


def fill(site: Site) -> None:
    """Clients, queues and messages, so that there is something to see."""
    away = site.client("away", clean=True, props={"session_expiry_interval": 3600})
    away.subscribe(("plant/#", 1))
    away.disconnect()
    for number in range(1, 19):
        will = Will(topic="plant/gone", payload=b"gone")
        client = site.client(f"pump-{number}", username=f"line{number % 3}", will=will)
        client.subscribe((f"plant/{number}/set", 1), ("plant/alarm", 0))
    site.broker.ban(client_id="floods", reason="more than 1,000 messages a second")
    gateway = site.client("gateway")
    for number in range(60):
        body = b'{"temp": 21.5, "unit": "C"}'
        gateway.publish(f"plant/{number % 12}/temp", body, qos=1, retain=number < 12)


def load_until(site: Site, page: Page) -> None:
    """Publishes while the charts of a picture get some length."""
    gateway = site.client("load")
    for number in range(100_000):
        gateway.publish(f"plant/{number % 12}/set", b"on")
        if re.search(r"up ([2-9]\d s|\d min)", page.locator(".state").text_content() or ""):
            break
    gateway.disconnect()


def start_trace(site: Site, page: Page) -> str:
    """A trace with some packets, so that the screen of traces has something to show; its number."""
    trace: str = page.evaluate(
        """key => fetch('/api/v1/traces', {
            method: 'POST',
            headers: {Authorization: `Bearer ${key}`, 'Content-Type': 'application/json'},
            body: JSON.stringify({name: 'slow pumps', where: {client_id: 'pump-*'}}),
        }).then(answer => answer.json()).then(trace => trace.id)""",
        SECRETS["operator"][0],
    )
    pump = site.client("pump-19", username="line1")
    pump.subscribe(("plant/19/set", 1), ("plant/alarm", 0))
    for number in range(8):
        pump.publish("plant/19/temp", b"21.5", qos=1, packet_id=number + 1)
    pump.disconnect()
    return trace


def picture(page: Page, view: str, name: str) -> None:
    if FOLDER:
        page.screenshot(path=pathlib.Path(FOLDER) / f"{name}-{view}.png")


def select_some(page: Page, view: str) -> None:
    """Selects clients, and shows what can be done with them."""
    for name in ("pump-1", "pump-10", "pump-12"):
        page.get_by_role("checkbox", name=f"Select {name}", exact=True).check()
    picture(page, view, "clients-selected")
    page.get_by_role("button", name="Disconnect", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text("pump-12")
    picture(page, view, "clients-disconnect")
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()


@pytest.mark.parametrize("view", VIEWS)
def test_each_screen_fits_and_makes_no_error(site: Site, visitor: Visitor, view: str) -> None:
    fill(site)
    page = visitor(**VIEWS[view]).log_in()
    # Charts need some samples to have a line.
    expect(page.locator(".tile").nth(1)).to_contain_text("/s")
    if FOLDER:
        load_until(site, page)

    packets = (f"traces?id={start_trace(site, page)}", "Traces", "plant/19/temp")
    if view == "phone":
        packets = (packets[0], "Traces", "SUBACK")  # the fields are not shown there
    for name, (route, title, text) in {**SCREENS, "packets": packets}.items():
        page.goto(f"{site.address}/#/{route}")
        expect(page.get_by_role("heading", level=1)).to_contain_text(title)
        expect(page.get_by_role("alert")).to_have_count(0)
        expect(page.get_by_role("main").get_by_text(text).first).to_be_visible()
        if name == "tree":
            for level in ("plant", "7"):
                page.get_by_role("table").get_by_text(level, exact=True).click()
            expect(page.get_by_text('"temp": 21.5').first).to_be_visible()
        if name == "explain":
            page.get_by_label("Topic", exact=True).fill("plant/7/set")
            page.get_by_role("button", name="Explain").click()
            expect(page.get_by_role("table", name="Receivers")).to_contain_text("pump-7")
        picture(page, view, name)
        if name == "clients":
            select_some(page, view)
        wide = page.evaluate(WIDE)
        assert wide == [], f"{name} is wider than the screen"
