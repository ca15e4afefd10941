"""Explanations, bans, listeners, configuration, keys, backups."""

from __future__ import annotations

import http.client
import json
import re
from contextlib import closing
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.operations.api import Api
from tests.page.conftest import PASSWORD, SECRETS

if TYPE_CHECKING:
    import pathlib

    from playwright.sync_api import Page

    from tests.page.conftest import Site, Visit


def test_a_delivery_is_explained_before_it_happens(site: Site, page: Page) -> None:
    away = site.client("away", props={"session_expiry_interval": 3600})
    away.subscribe(("plant/#", 1))
    away.disconnect()
    site.client("truck7").subscribe(("plant/#", 1))
    page.goto(f"{site.address}/#/explain")

    page.get_by_label("Topic", exact=True).fill("plant/1/temp")
    page.get_by_role("button", name="Explain").click()

    rows = page.get_by_role("table", name="Receivers").get_by_role("row")
    expect(rows.filter(has_text="truck7")).to_contain_text("delivered")
    expect(rows.filter(has_text="away")).to_contain_text("waiting:offline")


def test_what_happened_to_a_client_is_told(site: Site, page: Page) -> None:
    client = site.client("truck7")
    client.subscribe(("plant/#", 1))
    client.disconnect()
    page.goto(f"{site.address}/#/explain?tab=after")

    page.get_by_label("Client", exact=True).fill("truck7")
    page.get_by_role("button", name="List").click()

    table = page.get_by_role("table", name="Recent events")
    for event in ("connected", "subscribed", "disconnected"):
        expect(table.get_by_role("cell", name=event, exact=True)).to_be_visible()


def test_a_trace_is_started_watched_saved_and_removed(site: Site, page: Page) -> None:
    client = site.client("truck7")
    page.goto(f"{site.address}/#/traces")
    expect(page.get_by_text("There is no trace.")).to_be_visible()
    page.get_by_role("button", name="Start a trace").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Client").fill("truck*")
    dialog.get_by_label("Name").fill("slow <b>truck</b>")
    dialog.get_by_label("Payloads").select_option("all")
    dialog.get_by_role("button", name="Start").click()

    row = page.get_by_role("table", name="Traces").get_by_role("row").nth(1)
    expect(row).to_contain_text("slow <b>truck</b>")
    expect(row).to_contain_text("client truck*")
    client.subscribe(("plant/#", 1))
    client.publish("plant/1", b"\xe2\x80\xae hello", qos=1)
    packets = page.get_by_role("table", name="Packets")
    expect(packets).to_contain_text("SUBSCRIBE")
    expect(packets).to_contain_text("plant/1")
    packets.get_by_role("row").filter(has_text="PUBLISH").first.click()
    expect(page.get_by_role("dialog", name="PUBLISH")).to_contain_text("to the client")
    page.get_by_role("dialog").get_by_role("button", name="Close").click()

    for button, ending, begin in (
        ("JSON", "jsonl", b"{"),
        ("Text", "txt", b"20"),
        ("Wireshark", "pcapng", b"\x0a\x0d\x0d\x0a"),
    ):
        with page.expect_download() as saved:
            row.get_by_role("button", name=button).click()
        assert saved.value.suggested_filename == f"slow__b_truck__b_.{ending}"
        assert saved.value.path().read_bytes().startswith(begin)

    row.get_by_role("button", name="Stop").click()
    expect(row).to_contain_text("ended")
    expect(page.get_by_text("packets; the trace has ended")).to_be_visible()
    row.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.get_by_text("There is no trace.")).to_be_visible()
    expect(packets).to_have_count(0)


def test_what_happens_now_and_the_log_are_shown(site: Site, page: Page) -> None:
    expect(page.locator(".state")).to_contain_text("up")
    client = site.client("<i>truck7</i>")
    client.disconnect()

    table = page.get_by_role("table", name="Latest events")
    expect(table.get_by_role("cell", name="disconnected")).to_be_visible()
    expect(table).to_contain_text("<i>truck7</i>")
    expect(table).to_contain_text("the client sent DISCONNECT (0x00)")
    page.goto(f"{site.address}/#/system?tab=log")
    line = page.get_by_role("table", name="Log").get_by_role("row").filter(has_text="truck7")
    expect(line.first).to_contain_text("disconnected: the client sent DISCONNECT")


def test_permissions_are_explained(site: Site, page: Page) -> None:
    site.client("truck7")
    page.goto(f"{site.address}/#/access")

    page.get_by_label("Client", exact=True).fill("truck7")
    page.get_by_label("Topic or filter", exact=True).fill("plant/1")
    page.get_by_role("button", name="Ask").click()

    expect(page.get_by_text("Verdict:")).to_be_visible()
    expect(page.locator(".verdict").first).to_contain_text("ok")


def test_the_rules_of_a_client_are_shown(site: Site, page: Page) -> None:
    site.client("ann", username="ann", password=PASSWORD.encode())
    site.client("truck7")
    page.goto(f"{site.address}/#/clients/ann?tab=permissions")
    expect(page.get_by_text("Of mqttcore.auth.users.Users")).to_be_visible()
    expect(page.get_by_text("There are no rules.")).to_be_visible()

    page.goto(f"{site.address}/#/clients/truck7?tab=permissions")

    rows = page.get_by_role("table", name="Permissions").get_by_role("row")
    expect(rows.filter(has_text="publish")).to_contain_text("#")


def test_a_client_is_banned_and_the_ban_is_lifted(site: Site, page: Page) -> None:
    wire = site.client("truck7")
    page.goto(f"{site.address}/#/clients/truck7")
    page.get_by_role("button", name="Ban").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Value")).to_have_value("truck7")
    dialog.get_by_label("Reason").fill("floods")
    dialog.get_by_role("button", name="Ban").click()

    expect(page.get_by_text("Banned; 1 client was disconnected.")).to_be_visible()
    assert wire.receive_until_close()[-1].reason == 0x98
    page.goto(f"{site.address}/#/access?tab=bans")
    expect(page.get_by_role("cell", name="floods")).to_be_visible()
    page.get_by_role("button", name="Lift").click()

    expect(page.get_by_text("Nobody is banned.")).to_be_visible()
    site.client("truck7")


def test_a_listener_is_paused_and_resumed(site: Site, page: Page) -> None:
    page.goto(f"{site.address}/#/system")
    row = page.get_by_role("row").filter(has_text="main")

    row.get_by_role("button", name="Pause").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(row.get_by_role("cell", name="paused")).to_be_visible()
    page.get_by_role("link", name="Overview", exact=False).click()
    expect(page.get_by_role("region", name="Warnings")).to_contain_text("listeners")
    page.get_by_role("link", name="System").click()
    row.get_by_role("button", name="Resume").click()

    expect(row.get_by_role("cell", name="open")).to_be_visible()
    site.client("truck7")


def test_an_acl_file_is_tried_before_it_is_used(
    site: Site, page: Page, visit: Visit, tmp_path: pathlib.Path
) -> None:
    site.client("truck7").subscribe(("plant/#", 0))
    new = tmp_path / "new"
    new.write_text("topic deny plant/secret\ntopic read #\n")
    page.goto(f"{site.address}/#/access?tab=try")

    page.get_by_label("New ACL file").set_input_files(new)
    page.get_by_role("button", name="Compare").click()

    rows = page.get_by_role("table", name="Changes").get_by_role("row").filter(has_text="truck7")
    expect(rows.filter(has_text="publish")).to_contain_text("nothing")
    expect(rows.filter(has_text="plant/#")).to_contain_text("deny plant/secret, read #")
    page.get_by_label("Its text").fill("topic raed x")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("alert")).to_contain_text("new ACL file:1: unknown access")
    # the browser logs the status
    assert len(visit.errors) == 1
    visit.errors.clear()
    site.client("truck7")


def test_a_listener_shows_how_long_its_certificate_is_valid(site: Site, page: Page) -> None:
    page.goto(f"{site.address}/#/system")

    row = page.get_by_role("row").filter(has_text="secure")
    expect(
        row.get_by_role("cell", name=re.compile(r"^localhost: [45],\d{3} days left$"))
    ).to_be_visible()


def test_a_key_is_made_and_revoked(site: Site, page: Page, visit: Visit) -> None:
    page.goto(f"{site.address}/#/system?tab=keys")
    page.get_by_role("button", name="Make a key").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("grafana")
    dialog.get_by_role("button", name="Make").click()

    secret = dialog.locator("pre").inner_text()
    assert secret.startswith("mq_")
    assert len(secret) == 55
    dialog.get_by_role("button", name="Close").click()
    row = page.get_by_role("row").filter(has_text="grafana")
    row.get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()

    expect(row).to_have_count(0)
    assert secret not in page.content()


def test_the_data_folder_is_backed_up(site: Site, page: Page) -> None:
    to = site.folder / "backup"
    page.goto(f"{site.address}/#/system?tab=store")

    page.get_by_role("button", name="Back up").click()
    page.get_by_role("dialog").get_by_label("To").fill(str(to))
    page.get_by_role("dialog").get_by_role("button", name="Back up").click()

    expect(
        page.get_by_role("table", name="Backups").get_by_role("cell", name="done")
    ).to_be_visible()
    assert any(to.iterdir())


def test_a_running_backup_says_how_far_it_is(visit: Visit) -> None:
    job = {
        "id": 1,
        "kind": "backup",
        "target": "/backup/today",
        "state": "running",
        "done": 1 << 20,
        "total": 4 << 20,
        "rate": 1 << 20,
        "eta_s": 3,
        "started_ms": 1,
        "ended_ms": None,
        "error": None,
    }
    body = json.dumps({"items": [job], "next": None, "as_of_ms": 0, "partial": []})
    visit.page.route(
        "**/api/v1/jobs", lambda route: route.fulfill(body=body, content_type="application/json")
    )

    page = visit.log_in(route="system?tab=store")

    row = page.get_by_role("table", name="Backups").get_by_role("row").nth(1)
    expect(row.get_by_role("progressbar")).to_have_attribute("max", str(4 << 20))
    expect(row).to_contain_text("of 4")
    expect(row).to_contain_text("/s, 3 s left")


def test_a_change_of_the_configuration_is_loaded(site: Site, page: Page) -> None:
    file = site.folder / "mqttcore.toml"
    page.goto(f"{site.address}/#/system?tab=configuration")
    expect(page.get_by_role("cell", name="listeners[1].transport")).to_be_visible()

    file.write_text(file.read_text() + "[limits]\nreceive_maximum = 0\n")
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_role("main").get_by_text("limits.receive_maximum")).to_be_visible()
    file.write_text(file.read_text().replace("receive_maximum = 0", "receive_maximum = 10"))
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_text("A reload changes: limits.receive_maximum.")).to_be_visible()
    page.get_by_role("button", name="Reload").click()
    page.get_by_role("dialog").get_by_role("button", name="Reload").click()

    expect(page.get_by_text("In force: limits.receive_maximum.")).to_be_visible()
    expect(page.get_by_role("cell", name="limits.receive_maximum")).to_be_visible()


def test_who_changed_what_is_reported(site: Site, page: Page) -> None:
    site.broker.ban(client_id="<b>floods</b>", reason="too many")
    page.goto(f"{site.address}/#/clients")
    site.broker.unban(client_id="nobody")
    page.goto(f"{site.address}/#/system?tab=audit")

    rows = page.get_by_role("table", name="Changes").get_by_role("row")
    expect(rows).to_have_count(3)
    expect(rows.nth(1)).to_contain_text("unban")
    expect(rows.nth(1)).to_contain_text("no effect")
    rows.nth(2).get_by_role("button", name="Details").click()
    expect(page.get_by_role("dialog")).to_contain_text("too many")
    expect(page.get_by_role("dialog")).to_contain_text("<b>floods</b>")
    page.get_by_role("dialog").get_by_role("button", name="Close").first.click()
    page.get_by_label("Who").fill("another")
    page.get_by_role("button", name="List").click()
    expect(page.get_by_text("No changes.")).to_be_visible()


def test_keys_move_between_screens(page: Page) -> None:
    for key, title in (
        ("c", "Clients"),
        ("t", "Topics"),
        ("r", "Traces"),
        ("e", "Explain"),
        ("o", "Overview"),
    ):
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page.get_by_role("heading", level=1)).to_have_text(title)

    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_broker_that_stops_is_reported(site: Site, page: Page, visit: Visit) -> None:
    expect(page.locator(".state")).to_contain_text("up")

    site.broker.stop()

    expect(page.locator(".state").filter(has_text="does not answer")).to_be_visible()
    # The browser logs each attempt to connect again.
    assert all("ERR_" in error or "Failed" in error for error in visit.errors)
    page.goto("about:blank")
    visit.errors.clear()


def test_rights_are_asked_for_again(site: Site, page: Page) -> None:
    site.client("truck7")
    page.goto(f"{site.address}/#/access?tab=renew")

    page.get_by_label("Identifier or name").fill("truck7")
    page.get_by_role("button", name="Ask again").click()

    expect(page.get_by_text("The rights of 1 connected clients are asked for")).to_be_visible()
    site.client("truck8")
    page.get_by_label("Whose rights").select_option("all")
    page.get_by_role("button", name="Ask again").click()
    page.get_by_role("dialog").get_by_role("button", name="Ask about all").click()
    expect(page.get_by_text("The rights of 2 connected clients are asked for")).to_be_visible()


def test_the_rights_that_a_plugin_gave_are_asked_for_again(site: Site, page: Page) -> None:
    site.client("truck7")
    site.client("ann", username="ann", password=PASSWORD.encode())
    page.goto(f"{site.address}/#/access?tab=renew")

    page.get_by_label("Whose rights").select_option("plugin")
    page.get_by_label("Identifier or name").fill("mqttcore.auth.users")
    page.get_by_role("button", name="Ask again").click()

    expect(page.get_by_text("The rights of 1 connected clients are asked for")).to_be_visible()


def test_plugins_are_shown_with_what_became_of_their_calls(
    site: Site, page: Page, visit: Visit
) -> None:
    site.client("ann", username="ann", password=PASSWORD.encode())
    page.goto(f"{site.address}/#/system?tab=plugins")

    row = (
        page.get_by_role("table", name="Plugins").get_by_role("row").filter(has_text="Users").first
    )
    expect(row).to_contain_text("1 allowed")
    row.get_by_role("button", name="Reload").click()
    expect(page.get_by_text("reads no files: reload the configuration")).to_be_visible()
    # The browser logs the status.
    assert ["409" in error for error in visit.errors] == [True]
    visit.errors.clear()


def test_denials_come_by_themselves_with_the_rule_and_its_line(site: Site, page: Page) -> None:
    (site.folder / "acl").write_text("user bob\ntopic deny secret/#\ntopic readwrite #\n")
    status, _ = Api(site.folder / "data").ask("POST", "/plugins/mqttcore.auth.password_file/reload")
    assert status == 200
    page.goto(f"{site.address}/#/access?tab=denials")
    expect(page.get_by_text("Nothing that is known")).to_be_visible()

    bob = site.client("bob", username="bob", password=PASSWORD.encode())
    assert bob.publish("secret/1", b"x", qos=1).reason == 0x87

    row = page.get_by_role("table", name="Denials").get_by_role("row").filter(has_text="secret/1")
    expect(row).to_contain_text("denied")
    expect(row).to_contain_text("acl:2")


def test_only_administrators_have_rights_asked_for_again(site: Site, visit: Visit) -> None:
    page = visit.log_in("viewer", "access?tab=renew")

    expect(page.get_by_role("tab", name="Denials")).to_be_visible()
    expect(page.get_by_role("tab", name="Renew rights")).to_have_count(0)
    expect(page.get_by_label("Whose rights")).to_have_count(0)


def test_reports_of_spark_queries_are_shown(site: Site, page: Page) -> None:
    assert site.broker.http_address is not None
    report = {"batch": 7, "rows": 1234, "rows_per_s": 88.4, "lag_messages": 3, "watermark": "x"}
    headers = {
        "Authorization": f"Bearer {SECRETS['publisher'][0]}",
        "Content-Type": "application/json",
    }
    with closing(http.client.HTTPConnection(*site.broker.http_address, timeout=30)) as connection:
        connection.request("PUT", "/v1/spark/factory.gold", json.dumps(report), headers)
        assert connection.getresponse().read() == b"{}"

    page.goto(f"{site.address}/#/flow")

    row = page.get_by_role("table", name="Spark queries").get_by_role("row").nth(1)
    expect(row).to_contain_text("factory.gold")
    expect(row).to_contain_text("1,234")
    expect(row.get_by_role("cell").last).to_have_text("\N{EN DASH}")
