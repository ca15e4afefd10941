"""Payloads of CBOR and MessagePack, and charts of values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.page.conftest import Site, Visit

UNPACKED = """async (text) => {
    const { src } = document.querySelector('script[type=module]');
    const { unpacked } = await import(new URL('binary.js', src));
    const found = unpacked(Uint8Array.from(text.match(/../g) ?? [], (byte) => parseInt(byte, 16)));
    return found ? JSON.stringify(found) : null;
}"""
"""Kind and value of a payload in hexadecimal."""

# Of RFC 8949, appendix A, and of the specification of MessagePack; lists and maps only.
CBOR = {
    "80": [],
    "83010203": [1, 2, 3],
    "8301820203820405": [1, [2, 3], [4, 5]],
    "98190102030405060708090a0b0c0d0e0f101112131415161718181819": list(range(1, 26)),
    "a26161016162820203": {"a": 1, "b": [2, 3]},
    "a201020304": {"1": 2, "3": 4},
    "9f018202039f0405ffff": [1, [2, 3], [4, 5]],
    "bf61610161629f0203ffff": {"a": 1, "b": [2, 3]},
    "84f4f5f6f7": [False, True, None, None],
    "83f90000f97bfff90001": [0, 65504, 5.960464477539063e-08],
    "83f97c00f97e00f9fc00": ["Infinity", "NaN", "-Infinity"],
    "82fa47c35000fbc010666666666666": [100000, -4.1],
    "833903e71bffffffffffffffff3bffffffffffffffff": [
        *(-1000, "18446744073709551615", "-18446744073709551616"),
    ],
    "8262c3bc4401020304": ["ü", "h'01020304'"],
    "81c11a514b67b0": [{"tag 1": 1363896240}],
}
MESSAGE_PACK = {
    "93010203": [1, 2, 3],
    "82a7636f6d70616374c3a6736368656d6100": {"compact": True, "schema": 0},
    "95c0c2c3ff7f": [None, False, True, -1, 127],
    "94ccffcdffffceffffffffcf0000000100000000": [255, 65535, 4294967295, 4294967296],
    "94d080d18000d280000000d3ffffffff00000000": [-128, -32768, -2147483648, -4294967296],
    "92ca41ac0000cb4035800000000000": [21.5, 21.5],
    "92d90161c4020102": ["a", "h'0102'"],
    "93d40501d60500000001c7010502": [
        *({"type 5": "h'01'"}, {"type 5": "h'00000001'"}, {"type 5": "h'02'"}),
    ],
    "de0001a161dc000101": {"a": [1]},
}
NEITHER = ("", "00", "ff", "8fff", "9bffffffffffffffff", "81" * 100 + "80", "8301", "93c1c1c1")


def test_binary_payloads_are_values(page: Page) -> None:
    for kind, vectors in (("CBOR", CBOR), ("MessagePack", MESSAGE_PACK)):
        for text, value in vectors.items():
            found = page.evaluate(UNPACKED, text)
            assert json.loads(found) == {"kind": kind, "value": value}, text
    assert [page.evaluate(UNPACKED, text) for text in NEITHER] == [None] * len(NEITHER)


def test_names_of_hostile_maps_are_only_names(page: Page) -> None:
    # {"__proto__": {"toString": 1}}
    found = page.evaluate(UNPACKED, "a1695f5f70726f746f5f5fa168746f537472696e6701")

    assert found == '{"kind":"CBOR","value":{"__proto__":{"toString":1}}}'


@pytest.mark.parametrize(
    ("payload", "kind"),
    [("a16474656d70f94d60", "CBOR"), ("81a474656d70cb4035800000000000", "MessagePack")],
)
def test_a_retained_message_in_binary_is_shown(
    site: Site, page: Page, payload: str, kind: str
) -> None:
    wire = site.client("gateway")
    wire.publish("plant/1", bytes.fromhex(payload), qos=1, retain=True)
    page.goto(f"{site.address}/#/topics")

    page.get_by_role("cell", name="plant/1").click()

    dialog = page.get_by_role("dialog")
    expect(dialog.locator("pre")).to_have_text('{\n  "temp": 21.5\n}')
    expect(dialog).to_contain_text(f"bytes, {kind}")


def test_values_of_a_topic_are_a_chart(site: Site, visit: Visit) -> None:
    page = visit.log_in(route="topics?tab=live")
    page.get_by_label("Topic filter").fill("plant/#")
    page.get_by_role("button", name="Subscribe").click()
    expect(page.get_by_text("subscribed; 0 shown")).to_be_visible()
    wire = site.client("gateway")
    wire.publish("plant/2", b'{"motor": {"rpm": 7}}', qos=1)
    for temp in (-3, 0, 5):
        body = json.dumps({"temp": temp, "motor": {"rpm": [900, temp]}, "name": "x"})
        wire.publish("plant/1", body.encode(), qos=1)
    expect(page.get_by_text("subscribed; 4 shown")).to_be_visible()

    page.get_by_role("cell", name="plant/1").first.click()

    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".chart canvas")).to_have_count(1)
    expect(dialog.locator("figcaption")).to_have_text("temp3 values 5")
    assert dialog.locator("option").all_text_contents() == ["temp", "motor.rpm[0]", "motor.rpm[1]"]
    dialog.get_by_label("Chart of").select_option("motor.rpm[0]")
    expect(dialog.locator("figcaption")).to_have_text("motor.rpm[0]3 values 900")
    wire.publish("plant/1", b'{"motor": {"rpm": [950]}}', qos=1)
    expect(dialog.locator("figcaption")).to_have_text("motor.rpm[0]4 values 950")


COLOURED = """async canvas => {
    const own = getComputedStyle(document.documentElement).getPropertyValue('--series-1').trim();
    const [red, green, blue] = own.slice(1).match(/../g).map(part => parseInt(part, 16));
    const rows = new Set();
    const copy = new OffscreenCanvas(canvas.width, canvas.height);
    const pixels = copy.getContext('2d', { willReadFrequently: true });
    while (rows.size === 0) {
        await new Promise(requestAnimationFrame);
        pixels.drawImage(canvas, 0, 0);
        const { data } = pixels.getImageData(0, 0, canvas.width, canvas.height);
        for (let at = 0; at < data.length; at += 4) {
            if (data[at] === red && data[at + 1] === green && data[at + 2] === blue) {
                rows.add(Math.floor(at / 4 / canvas.width));
            }
        }
    }
    return [Math.min(...rows), Math.max(...rows), canvas.height];
}"""
"""The first and the last row of a chart with its first colour, once it is drawn, and the number of
rows."""


def test_a_chart_has_a_line_from_the_lowest_to_the_highest_value(site: Site, page: Page) -> None:
    page.goto(f"{site.address}/#/topics?tab=live")
    page.get_by_label("Topic filter").fill("plant/#")
    page.get_by_role("button", name="Subscribe").click()
    expect(page.get_by_text("subscribed; 0 shown")).to_be_visible()
    wire = site.client("gateway")
    # The difference of the second and the third is no finite number.
    for topic, values in (("plant/1", (-3, 21.5)), ("plant/2", (-1.7e308, 1.7e308))):
        for value in values:
            wire.publish(topic, str(value).encode(), qos=1)
    expect(page.get_by_text("subscribed; 4 shown")).to_be_visible()

    page.get_by_role("cell", name="plant/1").first.click()
    first, last, rows = page.locator(".chart canvas").evaluate(COLOURED)

    assert first < 0.25 * rows
    assert last > 0.6 * rows
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    page.get_by_role("cell", name="plant/2").first.click()
    expect(page.locator(".chart figcaption")).to_have_text("Value2 values 1.7e+308")


def test_text_has_no_chart(site: Site, page: Page) -> None:
    page.goto(f"{site.address}/#/topics?tab=live")
    page.get_by_label("Topic filter").fill("plant/#")
    page.get_by_role("button", name="Subscribe").click()
    expect(page.get_by_text("subscribed; 0 shown")).to_be_visible()
    site.client("gateway").publish("plant/1", b'"21.5"', qos=1)

    page.get_by_role("cell", name="plant/1").click()

    expect(page.get_by_role("dialog").locator("pre")).to_have_text('"21.5"')
    expect(page.get_by_role("dialog").locator(".chart")).to_have_count(0)
