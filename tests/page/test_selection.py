"""Many clients of the list: selected, and disconnected, banned or traced together."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from tests.page.conftest import Site, Visit

HOSTILE = "<img src=x onerror=alert(1)>"


def opened(site: Site, page: Page, query: str = "") -> Locator:
    """The rows of the list of clients."""
    page.goto(f"{site.address}/#/clients{query}")
    return page.get_by_role("table", name="Clients").get_by_role("row")


def pick(page: Page, *names: str) -> None:
    for name in names:
        page.get_by_role("checkbox", name=f"Select {name}", exact=True).check()


def test_selected_clients_are_disconnected_and_the_others_are_not(site: Site, page: Page) -> None:
    wires = {name: site.client(name) for name in ("a", "b", "c")}
    rows = opened(site, page)
    expect(rows).to_have_count(4)
    pick(page, "a", "c")
    expect(page.get_by_text("2 selected")).to_be_visible()

    page.get_by_role("button", name="Disconnect", exact=True).click()
    dialog = page.get_by_role("dialog", name="Disconnect 2 clients?")
    assert dialog.get_by_role("listitem").all_text_contents() == ["a", "c"]
    dialog.get_by_role("button", name="Disconnect 2").click()

    expect(page.get_by_text("2 clients are disconnected.")).to_be_visible()
    for name in ("a", "c"):
        assert wires[name].receive_until_close()[-1].reason == 0x98
    expect(rows).to_have_count(2)
    expect(page.get_by_text("selected", exact=False)).to_have_count(0)
    wires["b"].ping()


def forget_refusals(visit: Visit) -> None:
    """The browser logs each answer that refuses; another error stays."""
    assert all("the server responded with a status of 4" in error for error in visit.errors)
    visit.errors.clear()


def test_clients_that_could_not_be_disconnected_are_named_and_stay_selected(
    site: Site, visit: Visit
) -> None:
    page = visit.log_in()
    away = site.client(HOSTILE, props={"session_expiry_interval": 3600})
    away.disconnect()
    gone = site.client("gone")
    opened(site, page)
    page.get_by_role("checkbox", name="Select all 2 shown").check()

    page.get_by_role("button", name="Disconnect", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 of them is not connected")
    dialog.get_by_role("button", name="Disconnect 2").click()

    failures = page.get_by_role("dialog", name="Disconnect: 1 of 2 failed")
    failed = failures.get_by_role("listitem")
    expect(failed).to_have_count(1)
    expect(failed).to_contain_text(HOSTILE)
    expect(failed).to_contain_text(re.compile("is not connected . session=end ends its session"))
    assert gone.receive_until_close()[-1].reason == 0x98
    failures.get_by_role("button", name="Close").click()
    expect(page.get_by_text("1 selected")).to_be_visible()

    page.get_by_role("button", name="Disconnect", exact=True).click()
    page.get_by_label("Also end their sessions").check()
    page.get_by_role("dialog").get_by_role("button", name="Disconnect 1").click()

    expect(page.get_by_text("No client has a session.")).to_be_visible()
    forget_refusals(visit)


def test_selected_clients_are_banned_with_a_reason(site: Site, page: Page) -> None:
    for name in ("a", "b", "c"):
        site.client(name)
    opened(site, page)
    pick(page, "a", "b")

    page.get_by_role("button", name="Ban", exact=True).click()
    dialog = page.get_by_role("dialog", name="Ban 2 clients?")
    dialog.get_by_label("Reason").fill("floods")
    dialog.get_by_role("button", name="Ban 2").click()

    expect(page.get_by_text("2 clients are banned.")).to_be_visible()
    bans = {(ban.value, ban.reason) for ban in site.broker.bans()}
    assert bans == {("a", "floods"), ("b", "floods")}


def test_selected_clients_are_traced_until_the_broker_has_too_many_traces(
    site: Site, visit: Visit
) -> None:
    page = visit.log_in()
    for number in range(17):
        site.client(f"truck{number:02}")
    opened(site, page)
    page.get_by_role("checkbox", name="Select all 17 shown").check()

    page.get_by_role("button", name="Trace", exact=True).click()
    dialog = page.get_by_role("dialog", name="Trace 17 clients?")
    dialog.get_by_label("Payloads").select_option("all")
    dialog.get_by_role("button", name="Trace 17").click()

    failures = page.get_by_role("dialog", name="Trace: 1 of 17 failed")
    expect(failures.get_by_role("listitem")).to_contain_text(re.compile("truck.*16 traces"))
    failures.get_by_role("button", name="Close").click()
    page.goto(f"{site.address}/#/traces")
    traces = page.get_by_role("table", name="Traces")
    expect(traces.get_by_role("row")).to_have_count(17)
    expect(traces).to_contain_text("client truck00")
    forget_refusals(visit)


def test_a_selection_outlasts_scrolling_and_new_clients_and_loses_those_that_leave(
    site: Site, page: Page
) -> None:
    wires = [site.client(f"pump-{number:02}") for number in range(60)]
    opened(site, page)
    pick(page, "pump-00", "pump-01")
    box = page.locator(".rows")
    first = page.get_by_role("checkbox", name="Select pump-00")

    box.evaluate("box => { box.scrollTop = box.scrollHeight }")
    expect(first).to_have_count(0)
    site.client("pump-99")
    wires[1].disconnect()

    expect(page.get_by_text("1 selected")).to_be_visible()
    expect(page.get_by_role("cell", name="pump-99", exact=True)).to_be_visible()
    box.evaluate("box => { box.scrollTop = 0 }")
    expect(first).to_be_checked()
    site.client("pump-01")
    expect(page.get_by_role("cell", name="pump-01", exact=True)).to_be_visible()
    expect(page.get_by_role("checkbox", name="Select pump-01")).not_to_be_checked()


def test_clients_are_selected_with_the_keyboard_and_in_ranges(site: Site, page: Page) -> None:
    for number in range(6):
        site.client(f"pump-{number}")
    expect(opened(site, page, "?q=pump")).to_have_count(7)
    page.get_by_role("rowgroup", name="Clients").focus()

    for key in ("ArrowDown", "Space", "End", "Space", "Home", "Space", "Space"):
        page.keyboard.press(key)
    expect(page.get_by_text("2 selected")).to_be_visible()
    for number in range(6):
        checkbox = page.get_by_role("checkbox", name=f"Select pump-{number}")
        expect(checkbox).to_be_checked(checked=number in (1, 5))

    page.get_by_role("checkbox", name="Select pump-2").click()
    page.get_by_role("checkbox", name="Select pump-4").click(modifiers=["Shift"])
    expect(page.get_by_text("5 selected")).to_be_visible()
    page.get_by_role("button", name="Select none").click()
    expect(page.get_by_text("selected", exact=False)).to_have_count(0)
    page.keyboard.press("Home")
    assert page.url.endswith("#/clients?q=pump")


def test_the_selected_rows_are_saved(site: Site, page: Page) -> None:
    for name in ("a", "b", "=c"):
        site.client(name)
    opened(site, page)
    pick(page, "=c", "b")

    with page.expect_download() as saved:
        page.get_by_role("button", name="Save").click()

    lines = saved.value.path().read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["client_id", '"\'=c"', '"b"']


def test_who_may_not_operate_selects_nothing(site: Site, visit: Visit) -> None:
    site.client("a")
    page = visit.log_in("viewer", "clients")

    expect(page.get_by_role("cell", name="a", exact=True)).to_be_visible()
    expect(page.get_by_role("checkbox")).to_have_count(0)
