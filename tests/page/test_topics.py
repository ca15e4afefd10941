"""Retained messages, live messages over WebSocket, publishing, subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.page.conftest import Site, Visit

HOSTILE = "<img src=x onerror=alert(1)>"


def test_a_retained_message_is_shown_and_removed(site: Site, page: Page) -> None:
    wire = site.client("gateway")
    wire.publish("plant/1/temp", b'{"temp": 21.5}', qos=1, retain=True)
    page.goto(f"{site.address}/#/topics")

    page.get_by_role("cell", name="plant/1/temp").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("pre")).to_have_text('{\n  "temp": 21.5\n}')
    dialog.get_by_role("button", name="Remove").click()

    expect(page.get_by_text("The retained message is removed.")).to_be_visible()
    expect(page.get_by_text("No retained message.")).to_be_visible()


def test_many_retained_messages_are_removed_by_their_number(site: Site, page: Page) -> None:
    wire = site.client("gateway")
    for number in range(10):
        wire.publish(f"old/{number}", b"x", qos=1, retain=True)
    wire.publish("kept", b"x", qos=1, retain=True)
    page.goto(f"{site.address}/#/topics?filter=old/%23")
    rows = page.get_by_role("table", name="Retained messages").get_by_role("row")
    expect(rows).to_have_count(11)

    page.get_by_role("button", name="Remove all of these").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Remove 10")).to_be_disabled()
    dialog.get_by_label("Type 10 to go on").fill("10")
    dialog.get_by_role("button", name="Remove 10").click()

    expect(page.get_by_text("10 retained messages are removed.")).to_be_visible()
    page.goto(f"{site.address}/#/topics")
    expect(rows).to_have_count(2)


def test_topics_are_a_tree_that_is_opened_level_by_level(site: Site, page: Page) -> None:
    wire = site.client("gateway")
    for topic in ("plant/1/temp", "plant/1", f"plant/2/{HOSTILE}", "road"):
        wire.publish(topic, topic.encode(), qos=1, retain=True)
    site.client("truck7").subscribe(("plant/1/#", 1))
    page.goto(f"{site.address}/#/topics?tab=tree")
    table = page.get_by_role("table", name="Topics")
    rows = table.get_by_role("row")
    expect(rows).to_have_count(3)
    expect(rows.nth(1)).to_have_text("▸ plant30")
    expect(rows.nth(2)).to_have_text("roadroadShow10")

    rows.nth(1).click()
    expect(rows).to_have_count(5)
    expect(rows.nth(2)).to_have_text("▸ 1plant/1Show21")
    rows.nth(3).click()
    expect(table.get_by_text(HOSTILE, exact=True)).to_be_visible()
    assert page.locator("img").count() == 0

    rows.nth(2).get_by_role("button", name="Show").click()
    expect(page.get_by_role("dialog").locator("pre")).to_have_text("plant/1")
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    rows.nth(2).click()
    table.get_by_text("temp", exact=True).click()
    expect(page.get_by_role("dialog").locator("pre")).to_have_text("plant/1/temp")
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    rows.nth(1).click()
    expect(rows).to_have_count(3)


def test_the_tree_shows_how_values_begin(site: Site, page: Page) -> None:
    wire = site.client("gateway")
    values = {"a": b'{"t": 21.5}', "b": HOSTILE.encode() * 3, "c": b"\xff\x00\x01"}
    for topic, value in values.items():
        wire.publish(topic, value, qos=1, retain=True)
    page.goto(f"{site.address}/#/topics?tab=tree")
    rows = page.get_by_role("table", name="Topics").get_by_role("row")

    expect(rows.nth(1)).to_contain_text('{ "t": 21.5 }')
    expect(rows.nth(2)).to_contain_text(f"{HOSTILE}{HOSTILE[:10]}")
    expect(rows.nth(2)).to_contain_text("…")
    expect(rows.nth(3)).to_contain_text("3 bytes")
    assert page.locator("img").count() == 0
    wire.publish("a", b"on", qos=1, retain=True)
    page.get_by_role("button", name="Refresh").click()
    expect(rows.nth(1)).to_contain_text("on")


def test_payloads_are_for_keys_with_that_scope(site: Site, visit: Visit) -> None:
    site.client("gateway").publish("plant/1/temp", b"secret", qos=1, retain=True)
    page = visit.log_in("viewer", "topics")

    page.get_by_role("cell", name="plant/1/temp").click()

    expect(page.get_by_role("dialog").get_by_text("scope payload")).to_be_visible()
    expect(page.get_by_role("dialog").get_by_role("button", name="Remove")).to_have_count(0)
    expect(page.get_by_role("tab", name="Publish")).to_have_count(0)
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    page.get_by_role("tab", name="Tree").click()
    expect(page.get_by_role("table", name="Topics")).to_contain_text("plant")
    assert "secret" not in page.content()


def test_the_broker_publishes_for_an_operator(site: Site, page: Page) -> None:
    wire = site.client("truck7")
    wire.subscribe(("plant/#", 1))
    page.goto(f"{site.address}/#/topics?tab=publish")

    page.get_by_label("Topic", exact=True).fill("plant/all/stop")
    page.get_by_label("Payload").fill("now")
    page.get_by_role("main").get_by_role("button", name="Publish").click()

    expect(page.get_by_text("Published; 1 subscription matches.")).to_be_visible()
    assert wire.receive_publish().payload == b"now"


def test_live_messages_come_over_websocket_and_stay_text(site: Site, page: Page) -> None:
    page.goto(f"{site.address}/#/topics?tab=live")
    page.get_by_label("Topic filter").fill("plant/#")
    page.get_by_role("button", name="Subscribe").click()
    expect(page.get_by_text("subscribed; 0 shown")).to_be_visible()
    body = HOSTILE.encode()

    wire = site.client("gateway")
    wire.publish(f"plant/{HOSTILE}", body, qos=1, props={"user_property": [(HOSTILE, HOSTILE)]})
    wire.publish("plant/raw", b"\x00\xff", qos=1)

    expect(page.get_by_role("cell", name="00 ff")).to_be_visible()
    page.get_by_role("cell", name=f"plant/{HOSTILE}").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("pre")).to_have_text(HOSTILE)
    expect(dialog.locator("dt").get_by_text(HOSTILE)).to_be_visible()
    assert page.locator("img").count() == 0
    dialog.get_by_role("button", name="Close").click()

    page.locator("summary").click()
    wire.subscribe(("plant/answer", 0))
    page.get_by_label("Topic", exact=True).fill("plant/answer")
    page.get_by_label("Payload", exact=True).fill("yes")
    page.get_by_role("button", name="Publish").click()
    assert wire.receive_publish().payload == b"yes"
    page.get_by_role("button", name="Leave").click()
    expect(page.get_by_role("button", name="Subscribe")).to_be_visible()


def test_the_receivers_of_a_topic_are_found_from_the_search_field(site: Site, page: Page) -> None:
    site.client("truck7").subscribe(("plant/+/temp", 1))
    site.client("other").subscribe(("elsewhere", 1))

    page.keyboard.press("/")
    page.keyboard.type("plant/1/temp")
    page.keyboard.press("Enter")

    expect(page.get_by_text("1 client gets this topic")).to_be_visible()
    page.get_by_role("cell", name="truck7").click()
    expect(page.get_by_role("heading", name="truck7")).to_be_visible()
    expect(page.get_by_role("cell", name="plant/+/temp")).to_be_visible()


def test_members_of_a_shared_subscription_are_shown_with_their_queues(
    site: Site, page: Page
) -> None:
    away = site.client("away", props={"session_expiry_interval": 3600})
    away.subscribe(("$share/workers/jobs/+", 1), ("away", 1))
    away.disconnect()
    site.client("busy").subscribe(("$share/workers/jobs/+", 1))
    site.client("gateway").publish("away", b"x", qos=1)
    page.goto(f"{site.address}/#/subscriptions?topic=jobs/1")

    page.get_by_role("link", name="members of $share/workers/jobs/+").click()

    rows = page.get_by_role("table", name="Subscriptions").get_by_role("row")
    expect(rows).to_have_count(3)
    expect(rows.filter(has_text="busy")).to_contain_text("connected")
    expect(rows.filter(has_text="busy")).not_to_contain_text("offline")
    expect(rows.filter(has_text="away")).to_contain_text("offline1")


def test_a_subscription_is_ended(site: Site, page: Page) -> None:
    wire = site.client("truck7")
    wire.subscribe(("plant/#", 1))
    page.goto(f"{site.address}/#/clients/truck7?tab=subscriptions")

    page.get_by_role("button", name="End", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="End it").click()

    expect(page.get_by_text("It has no subscriptions.")).to_be_visible()
    site.client("gateway").publish("plant/x", b"x", qos=1)
    wire.ping()


def test_the_queue_of_a_client_is_shown_with_payloads(site: Site, page: Page) -> None:
    away = site.client("away", props={"session_expiry_interval": 3600})
    away.subscribe(("plant/#", 1))
    away.disconnect()
    site.client("gateway").publish("plant/x", HOSTILE.encode(), qos=1)
    page.goto(f"{site.address}/#/clients/away?tab=queue")

    page.get_by_role("button", name="Show").click()

    expect(page.get_by_role("dialog").locator("pre")).to_have_text(HOSTILE)
