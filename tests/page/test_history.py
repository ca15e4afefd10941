"""Charts of what happened before the page was opened."""

from __future__ import annotations

import pathlib
import re
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.eventually import eventually
from tests.operations.api import Api

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from tests.page.conftest import Site

OLDER = """async () => {
    const { src } = document.querySelector('script[type=module]');
    const { samples } = await import(new URL('figures.js', src));
    const opened = performance.timeOrigin / 1000;
    return samples.filter(one => one.t < opened && one.connected === 1).length;
}"""
"""The number of samples with one client from before the page was opened."""
MEASURED = """async () => {
    const { src } = document.querySelector('script[type=module]');
    const { samples } = await import(new URL('figures.js', src));
    const isMeasured = one => one.p50 > 0 && one.p99 >= one.p50;
    const isLost = one => one.lostOffline > 0 && one.lostOther === 0;
    return samples.filter(one => isMeasured(one) && isLost(one)).length;
}"""
"""The number of samples with times of deliveries, and with drops of one reason."""


def seconds_with_a_client(site: Site) -> int:
    """Seconds of the broker's history in which one client was connected."""
    api = Api(pathlib.Path(site.broker.settings.data or ""))
    status, found = api.ask("GET", "/history?metric=clients_connected&from=-60&step=1")
    assert status == 200
    return int(found["metrics"]["clients_connected"].count(1))


def test_charts_begin_before_the_page_was_opened(site: Site, page: Page) -> None:
    site.client("truck7")
    expect(page.locator(".tile").first).to_contain_text("1 sessions")
    eventually(lambda: seconds_with_a_client(site) >= 3)

    page.reload()

    eventually(lambda: page.evaluate(OLDER) >= 1)


def legend(page: Page, title: str) -> Locator:
    """The last values of a chart."""
    return page.locator(".chart").filter(has=page.get_by_role("img", name=title))


def test_charts_have_times_of_deliveries_and_reasons_of_drops(site: Site, page: Page) -> None:
    reader = site.client("reader")
    reader.subscribe("t")
    publisher = site.client("publisher")
    away = site.client("away", clean=False, props={"session_expiry_interval": 60})
    away.subscribe("t")
    away.disconnect()

    def measured() -> bool:
        # One read in 32 is measured, and a message of QoS 0 is dropped for a client that is away.
        for _ in range(64):
            publisher.publish("t", b"x")
        reader.drain()
        return bool(page.evaluate(MEASURED) >= 1)

    eventually(measured)

    expect(legend(page, "Time to deliver")).to_contain_text(re.compile(r"p50 [\d.]+ (µs|ms)"))
    expect(legend(page, "Dropped a second")).to_contain_text("offline")
    expect(legend(page, "Dropped a second")).to_contain_text("queue full 0")


def test_charts_of_days_are_the_broker_s_history(page: Page) -> None:
    for name, query in (("24 h", "from=-86400"), ("7 d", "from=-604800")):
        with page.expect_response(re.compile("/api/v1/history")) as answer:
            page.get_by_role("button", name=name).click()

        assert query in answer.value.url
        assert answer.value.json()["step_s"] == 60
        expect(page.get_by_role("button", name=name)).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".chart canvas")).to_have_count(6)
    expect(page.get_by_role("alert")).to_have_count(0)
