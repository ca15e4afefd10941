"""The lists of clients, and what is done with one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page, Route

    from tests.page.conftest import Site, Visit

HOSTILE = "<img src=x onerror=alert(1)>\u202egnp."
SHOWN = "<img src=x onerror=alert(1)>\\u202egnp."


def test_clients_are_listed_filtered_and_opened(site: Site, page: Page) -> None:
    for name in ("truck1", "truck2", "gate"):
        site.client(name)
    page.get_by_role("link", name="Clients", exact=True).click()
    rows = page.get_by_role("table", name="Clients").get_by_role("row")
    expect(rows).to_have_count(4)

    page.get_by_label("part of the identifier").fill("truck")
    page.get_by_label("part of the identifier").press("Enter")
    expect(rows).to_have_count(3)
    assert page.url.endswith("#/clients?q=truck")
    rows.nth(2).click()

    expect(page.get_by_role("heading", name="truck2")).to_be_visible()
    expect(page.get_by_text("5.0")).to_be_visible()


def test_the_list_follows_clients_that_come_and_go(site: Site, page: Page) -> None:
    page.goto(f"{site.address}/#/clients")
    expect(page.get_by_text("No client has a session.")).to_be_visible()

    site.client("late")

    expect(page.get_by_role("cell", name="late", exact=True)).to_be_visible()


def test_the_bytes_a_second_of_a_client_are_shown(site: Site, page: Page) -> None:
    wire = site.client("truck7")
    page.goto(f"{site.address}/#/clients/truck7")
    facts = page.get_by_role("main")
    expect(facts).to_contain_text("listener main")
    expect(facts.get_by_text("Bytes a second")).to_be_visible()

    def is_counted() -> bool:
        wire.publish("plant", bytes(100_000))
        return "iB" in (facts.locator("dt:text-is('Bytes a second') + dd").text_content() or "")

    eventually(is_counted)
    expect(facts.locator("dt:text-is('Bytes') + dd")).to_contain_text("iB from it")


def test_a_client_is_disconnected(site: Site, page: Page) -> None:
    wire = site.client("truck7")
    page.goto(f"{site.address}/#/clients/truck7")

    page.get_by_role("button", name="Disconnect").click()
    page.get_by_role("dialog").get_by_role("button", name="Disconnect").click()

    expect(page.get_by_role("status").filter(has_text="disconnected")).to_be_visible()
    assert wire.receive_until_close()[-1].reason == 0x98
    # Its session has ended with the connection.
    expect(page.get_by_text("No client has a session.")).to_be_visible()


@pytest.mark.timeout(600)
def test_only_rows_in_sight_are_in_the_document(visit: Visit) -> None:
    """100,000 clients, page by page, in a list of constant size."""
    total, asked = 100_000, 0

    def answer(route: Route) -> None:
        nonlocal asked
        asked = int(route.request.url.partition("after=")[2] or 0)
        items = [client(number) for number in range(asked, asked + 1_000)]
        after = str(asked + 1_000) if asked + 1_000 < total else None
        body = {"items": items, "next": after, "as_of_ms": 0, "partial": []}
        route.fulfill(body=json.dumps(body), content_type="application/json")

    visit.page.route("**/api/v1/clients?*", answer)
    page = visit.log_in(route="clients")
    rows = page.locator(".space .row")
    expect(rows.first).to_be_visible()
    box = page.locator(".rows")
    last = page.get_by_role("cell", name="client-99999", exact=True)

    def comes(begin: int) -> Callable[[], bool]:
        def is_asked() -> bool:
            box.evaluate("box => { box.scrollTop = box.scrollHeight }")
            return asked >= begin and (begin < total - 1_000 or last.count() == 1)

        return is_asked

    # Each page has patience of its own: a busy machine is slow, but goes on.
    for begin in range(0, total, 1_000):
        eventually(comes(begin))
    assert rows.count() < 80
    assert page.evaluate("performance.memory.usedJSHeapSize") < 200 << 20


def client(number: int) -> dict[str, object]:
    return {
        "client_id": f"client-{number:05}",
        "username": None,
        "connected": True,
        "connected_at_ms": 1,
        "listener": "main",
        "address": "10.0.0.7",
        "port": 1,
        "version": "5.0",
        "keep_alive_s": 60,
        "clean_start": True,
        "session_expiry_s": 0,
        "subscriptions": 0,
        "queue": {"messages": 0, "bytes": 0, "on_disk": 0, "max_messages": 1, "max_bytes": 1},
        "inflight": {"out": 0, "in": 0, "max": 1},
        "backlog_bytes": 0,
        "rates": None,
        "latency": None,
        "waits_for": None,
        "held_back_by": [],
        "will": None,
        "transport": "tcp",
        "tls": None,
        "last_packet_ms": 1,
        "durability": "memory",
    }


def test_names_of_strangers_stay_text(site: Site, page: Page) -> None:
    wire = site.client(HOSTILE, username=HOSTILE)
    wire.subscribe((f"a/{HOSTILE}", 1))
    page.goto(f"{site.address}/#/clients")

    page.get_by_role("cell", name=SHOWN, exact=True).first.click()

    expect(page.get_by_role("heading")).to_contain_text(SHOWN)
    page.get_by_role("tab", name="Subscriptions").click()
    expect(page.get_by_role("cell", name="a/<img src=x")).to_be_visible()
    assert page.locator("img").count() == 0
