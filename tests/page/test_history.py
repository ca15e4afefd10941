"""Charts of what happened before the page was opened."""

from __future__ import annotations

import pathlib
import re
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.eventually import eventually
from tests.operations.api import Api

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.page.conftest import Site

OLDER = """async () => {
    const { src } = document.querySelector('script[type=module]');
    const { samples } = await import(new URL('figures.js', src));
    const opened = performance.timeOrigin / 1000;
    return samples.filter(one => one.t < opened && one.connected === 1).length;
}"""
"""The number of samples with one client from before the page was opened."""


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


def test_charts_of_days_are_the_broker_s_history(page: Page) -> None:
    for name, query in (("24 h", "from=-86400"), ("7 d", "from=-604800")):
        with page.expect_response(re.compile("/api/v1/history")) as answer:
            page.get_by_role("button", name=name).click()

        assert query in answer.value.url
        assert answer.value.json()["step_s"] == 60
        expect(page.get_by_role("button", name=name)).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".chart canvas")).to_have_count(4)
    expect(page.get_by_role("alert")).to_have_count(0)
