"""Changes between payloads, and payloads of Sparkplug B."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from tests.page.conftest import Site
    from tests.wire import Wire

HOSTILE = "<img src=x onerror=alert(1)>"

DECODED = """async ([topic, text]) => {
    const { src } = document.querySelector('script[type=module]');
    const { payload } = await import(new URL('format.js', src));
    const data = Uint8Array.from(text.match(/../g) ?? [], (byte) => parseInt(byte, 16));
    const begin = performance.now();
    const { kind, value, metrics } = payload(data, topic);
    const types = metrics?.map((one) => one.type);
    return { kind, value: JSON.stringify(value), types, ms: performance.now() - begin };
}"""
"""What the page finds in the payload of a topic."""


def number(value: int) -> bytes:
    """A number of protobuf."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(at: int, value: int | bytes) -> bytes:
    """A field of protobuf: a number or bytes."""
    if isinstance(value, int):
        return number(at << 3) + number(value)
    return number(at << 3 | 2) + number(len(value)) + value


def double(at: int, value: float) -> bytes:
    """A field of protobuf with a double."""
    return number(at << 3 | 1) + struct.pack("<d", value)


def metric(*fields: bytes) -> bytes:
    return field(2, b"".join(fields))


BIRTH = b"".join(
    (
        field(1, 1_700_000_000_000),
        metric(field(1, b"Motor/Speed"), field(2, 7), field(4, 10), double(13, 21.5)),
        metric(field(1, b"Level"), field(2, 8), field(4, 1), field(10, 0xFFFF_FFFE)),
        metric(field(1, HOSTILE.encode()), field(4, 12), field(15, HOSTILE.encode())),
        field(3, 0),
    )
)
DATA = b"".join(
    (
        field(1, 1_700_000_001_000),
        metric(field(2, 7), double(13, 22.25)),
        metric(field(2, 8), field(10, 0xFFFF_FFFD)),
        metric(field(2, 9), field(4, 11), field(14, 1)),
        field(3, 1),
    )
)
PLACE = "spBv1.0/plant/{}/gateway/pump"


def dialog_of(page: Page, name: str) -> Locator:
    page.get_by_role("cell", name=name, exact=True).first.click()
    return page.get_by_role("dialog")


def subscribed(site: Site, page: Page, topic: str) -> Wire:
    """Live messages of a topic; a client that publishes."""
    page.goto(f"{site.address}/#/topics?tab=live")
    page.get_by_label("Topic filter").fill(topic)
    page.get_by_role("button", name="Subscribe").click()
    expect(page.get_by_text("subscribed; 0 shown")).to_be_visible()
    return site.client("gateway")


def test_changes_of_json_are_its_fields(site: Site, page: Page) -> None:
    wire = subscribed(site, page, "plant/#")
    for body in (
        {"temp": 21, "motor": {"rpm": [900, 901]}, "old": HOSTILE, "same": 1},
        {"temp": 22, "motor": {"rpm": [900, 950]}, "new": True, "same": 1},
    ):
        wire.publish("plant/1", json.dumps(body).encode(), qos=1)
        wire.publish("plant/2", b"other", qos=1)
    expect(page.get_by_text("subscribed; 4 shown")).to_be_visible()

    dialog = dialog_of(page, "plant/1")
    dialog.get_by_role("tab", name="Changes").click()

    assert dialog.locator("pre div").all_text_contents() == [
        "~ temp: 21 → 22",
        "~ motor.rpm[1]: 901 → 950",
        "+ new: true",
        f'- old: "{HOSTILE}"',
    ]
    assert page.locator("img").count() == 0


def test_changes_of_text_are_its_lines_and_of_bytes_are_marked(site: Site, page: Page) -> None:
    wire = subscribed(site, page, "plant/#")
    for text, raw in (("a\nb\nc\nd", b"\x00\xffab"), ("a\nB\nc\nd\ne", b"\x00\xfeabc")):
        wire.publish("plant/text", text.encode(), qos=1)
        wire.publish("plant/raw", raw, qos=1)
    expect(page.get_by_text("subscribed; 4 shown")).to_be_visible()

    dialog = dialog_of(page, "plant/text")
    dialog.get_by_role("tab", name="Changes").click()
    lines = dialog.locator("pre div")
    assert lines.all_text_contents() == ["  a", "- b", "+ B", "  c", "  d", "+ e"]
    dialog.get_by_role("button", name="Close").click()

    dialog = dialog_of(page, "plant/raw")
    dialog.get_by_role("tab", name="Changes").click()
    expect(dialog).to_contain_text("1 bytes more than before.")
    assert dialog.locator("mark").all_text_contents() == ["fe", "63", ".", "c"]
    dialog.get_by_role("tab", name="Bytes").click()
    expect(dialog.locator("pre")).to_contain_text("0000  00 fe 61 62 63")
    expect(dialog.locator("mark")).to_have_count(0)


def test_a_retained_message_is_read_again_and_compared(site: Site, page: Page) -> None:
    wire = site.client("gateway")
    wire.publish("plant/1", b'{"on": false}', qos=1, retain=True)
    page.goto(f"{site.address}/#/topics")
    dialog = dialog_of(page, "plant/1")
    expect(dialog.locator("pre")).to_contain_text("false")
    expect(dialog.get_by_role("tab", name="Changes")).to_have_count(0)

    wire.publish("plant/1", b'{"on": true}', qos=1, retain=True)
    dialog.get_by_role("button", name="Read again").click()

    expect(dialog.locator("pre")).to_contain_text("true")
    dialog.get_by_role("tab", name="Changes").click()
    expect(dialog.locator("pre div")).to_have_text(["~ on: false → true"])


def test_a_long_text_in_which_all_lines_differ_is_compared(site: Site, page: Page) -> None:
    wire = subscribed(site, page, "plant/#")
    for word in "ab":
        wire.publish("plant/1", b"\n".join(b"%s%d" % (word.encode(), i) for i in range(9_000)))
    expect(page.get_by_text("subscribed; 2 shown")).to_be_visible()

    dialog = dialog_of(page, "plant/1")
    dialog.get_by_role("tab", name="Changes").click()

    expect(dialog.locator("pre")).to_contain_text("- a0")
    expect(dialog.locator("pre")).to_contain_text("lines more")
    expect(dialog.locator("pre div")).to_have_count(500)


def test_sparkplug_has_its_names_from_the_birth(site: Site, page: Page) -> None:
    wire = subscribed(site, page, "spBv1.0/#")
    wire.publish(PLACE.format("DDATA"), DATA, qos=1)
    expect(page.get_by_text("subscribed; 1 shown")).to_be_visible()
    dialog = dialog_of(page, PLACE.format("DDATA"))
    rows = dialog.get_by_role("table", name="Metrics").get_by_role("row")
    expect(rows.nth(1)).to_contain_text("alias 722.25")
    dialog.get_by_role("button", name="Close").click()

    wire.publish(PLACE.format("DBIRTH"), BIRTH, qos=1)
    wire.publish(PLACE.format("DDATA"), DATA, qos=1)
    expect(page.get_by_text("subscribed; 3 shown")).to_be_visible()

    dialog = dialog_of(page, PLACE.format("DDATA"))
    expect(dialog).to_contain_text("bytes, Sparkplug B")
    expect(rows.nth(1)).to_have_text("Motor/SpeedDouble22.25")
    expect(rows.nth(2)).to_have_text("LevelInt8-3")
    expect(rows.nth(3)).to_have_text("alias 9Booleantrue")
    expect(dialog.locator("figcaption")).to_contain_text("Motor/Speed")
    dialog.get_by_role("button", name="Close").click()
    dialog = dialog_of(page, PLACE.format("DBIRTH"))
    expect(rows.nth(3)).to_have_text(f"{HOSTILE}String{HOSTILE}")
    assert page.locator("img").count() == 0


def decoded(page: Page, data: bytes, topic: str = PLACE.format("DDATA")) -> dict[str, object]:
    found: dict[str, object] = page.evaluate(DECODED, [topic, data.hex()])
    return found


@pytest.mark.parametrize(
    ("fields", "kind", "value"),
    [
        ((field(4, 3), field(10, 0xFFFF_FFFF)), "Int32", -1),
        ((field(4, 7), field(10, 0xFFFF_FFFF)), "UInt32", 4_294_967_295),
        ((field(4, 4), field(11, (1 << 64) - 2)), "Int64", -2),
        ((field(4, 8), field(11, (1 << 64) - 1)), "UInt64", "18446744073709551615"),
        ((field(4, 9), number(12 << 3 | 5) + struct.pack("<f", 21.1)), "Float", 21.1),
        ((field(4, 10), double(13, float("nan"))), "Double", "NaN"),
        ((field(4, 9), number(12 << 3 | 5) + struct.pack("<f", float("inf"))), "Float", "Infinity"),
        ((field(4, 11), field(14, 0)), "Boolean", False),
        ((field(4, 13), field(11, 1_700_000_000_000)), "DateTime", "2023-11-14T22:13:20.000Z"),
        ((field(4, 13), field(11, 1 << 63)), "DateTime", str(1 << 63)),
        ((field(4, 17), field(16, b"\x01\x02")), "Bytes", "h'0102'"),
        ((field(4, 12), field(7, 1)), "String", None),
        (
            (
                field(4, 16),
                field(
                    17,
                    field(2, b"x")
                    + field(3, 1)
                    + field(4, field(1, field(1, 0xFF)) + field(1, field(6, b"y"))),
                ),
            ),
            "DataSet",
            {"columns": ["x"], "rows": [[-1, "y"]]},
        ),
        (
            (field(4, 19), field(18, metric(field(1, b"in"), field(4, 3), field(10, 5)))),
            "Template",
            {"in": 5},
        ),
    ],
)
def test_each_type_of_sparkplug_is_a_value(
    page: Page, fields: tuple[bytes, ...], kind: str, value: object
) -> None:
    found = decoded(page, metric(field(1, b"__proto__"), *fields))

    assert (found["kind"], found["types"]) == ("Sparkplug B", [kind])
    assert json.loads(str(found["value"])) == {"__proto__": value}


NESTED = metric(field(1, b"x"))
for _ in range(1000):
    NESTED = metric(field(1, b"x"), field(18, NESTED))


@pytest.mark.parametrize(
    "data",
    [
        field(2, b"x")[:-1],
        b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7fabc",
        b"\x08" + b"\xff" * 60_000,
        b"\xff" * 60_000,
        b"\x0b\x0c",
        NESTED,
        metric(field(1, b"\xff\xfe")),
        metric(field(1, 5)),
        metric(field(10, b"text")),
        metric(field(13, b"1234567")),
    ],
    ids=(
        "cut",
        "length",
        "varint",
        "key",
        "groups",
        "nested",
        "utf-8",
        "number",
        "bytes",
        "double",
    ),
)
def test_hostile_payloads_on_topics_of_sparkplug_are_bytes(page: Page, data: bytes) -> None:
    found = decoded(page, data)

    assert found["kind"] in ("hexadecimal", "text")
    assert isinstance(found["ms"], float | int)
    assert found["ms"] < 2000


def test_many_metrics_are_shown_in_part(site: Site, page: Page) -> None:
    wire = subscribed(site, page, "spBv1.0/#")
    wire.publish(PLACE.format("DDATA"), metric(field(2, 1), field(10, 1)) * 20_000, qos=1)

    dialog = dialog_of(page, PLACE.format("DDATA"))

    expect(dialog.get_by_role("row")).to_have_count(501)
    expect(dialog).to_contain_text("The first 500.")


def test_other_topics_and_deep_json_stay_what_they_are(page: Page) -> None:
    assert decoded(page, BIRTH, "plant/1")["kind"] != "Sparkplug B"
    assert decoded(page, b'{"online": true}', "spBv1.0/STATE/host")["kind"] == "JSON"
    deep = decoded(page, b"[" * 20_000 + b"]" * 20_000, "plant/1")
    assert (deep["kind"], deep["value"]) == ("text", None)
    assert decoded(page, b"[" * 5_000 + b"]" * 5_000, "plant/1")["kind"] == "text"
