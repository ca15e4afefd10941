"""Who gets in, and what the page shows whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.page.conftest import PASSWORD

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.page.conftest import Site, Visit


def test_a_key_admits_until_the_log_out(site: Site, visit: Visit) -> None:
    page = visit.log_in()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()

    page.reload()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    page.get_by_role("button", name="Log out").click()

    expect(page.get_by_label("User name")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0
    page.reload()
    expect(page.get_by_label("User name")).to_be_visible()
    assert site.broker.http_address is not None


def test_a_wrong_key_is_reported_and_one_without_view_too(visit: Visit) -> None:
    visit.page.goto(visit.site.address)
    visit.page.get_by_role("button", name="Use a key").click()
    for key, word in (("mq_wrong", "no valid key"), ("mq_publisher", "lacks the scope")):
        visit.page.get_by_label("Key").fill(key)
        visit.page.get_by_role("button", name="Log in").click()
        expect(visit.page.get_by_role("alert")).to_contain_text(word)

    # A browser logs each answer of the kind 4xx itself.
    assert all("Failed to load resource" in error for error in visit.errors)
    visit.errors.clear()


def test_a_user_logs_in_with_the_password_of_mqtt_until_the_log_out(
    site: Site, visit: Visit
) -> None:
    page = visit.page
    page.goto(f"{site.address}/#/clients/truck7")
    site.client("truck7")
    page.get_by_label("User name").fill("ann")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("user name or the password is wrong")

    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="truck7")).to_be_visible()
    (cookie,) = page.context.cookies(f"{site.address}/api/v1/login")
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    assert page.evaluate("sessionStorage.length") == 0
    page.reload()
    page.get_by_role("button", name="Disconnect").click()
    page.get_by_role("dialog").get_by_role("button", name="Disconnect").click()
    expect(page.get_by_role("status").filter(has_text="disconnected")).to_be_visible()

    with page.expect_response(lambda answer: answer.url.endswith("/login")) as ended:
        page.get_by_role("button", name="Log out").click()
    assert ended.value.status == 204
    expect(page.get_by_label("User name")).to_be_visible()
    assert page.context.cookies(f"{site.address}/api/v1/login") == []
    page.reload()
    expect(page.get_by_label("User name")).to_be_visible()
    # A browser logs each answer of 401 itself, some time after it.
    assert all("401 (Unauthorized)" in error for error in visit.errors)
    visit.errors.clear()


def test_a_viewer_sees_no_button_for_what_it_may_not_do(site: Site, visit: Visit) -> None:
    site.client("truck7")
    page = visit.log_in("viewer", "clients/truck7")

    expect(page.get_by_role("heading", name="truck7")).to_be_visible()
    expect(page.get_by_text("Connected since")).to_be_visible()
    expect(page.get_by_role("button", name="Disconnect")).to_have_count(0)
    expect(page.get_by_role("button", name="Ban")).to_have_count(0)


def test_the_files_come_from_the_broker_only_and_the_policy_holds(visit: Visit) -> None:
    page: Page = visit.log_in()

    blocked = page.evaluate(
        """async () => {
            const script = document.createElement('script');
            script.append('window.injected = 1');
            document.body.append(script);
            let html = null;
            try { document.body.insertAdjacentHTML('beforeend', '<b>x</b>'); html = 'taken'; }
            catch (error) { html = error.name; }
            const sent = await fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'blocked');
            return [window.injected, html, sent];
        }"""
    )

    assert blocked == [None, "TypeError", "blocked"]
    # The browser has logged each of them.
    assert len(visit.errors) >= 3
    visit.errors.clear()
