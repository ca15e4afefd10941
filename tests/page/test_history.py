"""Charts of what happened before the page was opened."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.eventually import eventually

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


def test_charts_begin_before_the_page_was_opened(site: Site, page: Page) -> None:
    site.client("truck7")
    expect(page.locator(".tile").first).to_contain_text("1 sessions")
    expect(page.locator(".state")).to_have_text(re.compile(r"up ([4-9]|\d\d) s"))

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
