"""Packets as values: the same bytes both ways, and faults that say what to tell the peer."""

import pytest
from mqttcore import PacketError
from mqttcore.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Will,
    decode_packet,
    encode_packet,
    properties,
)

# written by hand from MQTT 5.0, chapter 3
PACKETS: list[tuple[Packet, str]] = [
    (
        Connect(
            client_id="c", username="u", password=b"p", will=Will(topic="w", payload=b"x", qos=1)
        ),
        "10 1b 00 04 4d 51 54 54 05 ce 00 3c 00 00 01 63 00 00 01 77 00 01 78 00 01 75 00 01 70",
    ),
    (ConnAck(properties=properties(receive_maximum=9)), "20 06 00 00 03 21 00 09"),
    (Publish(topic="a", payload=b"hi"), "30 06 00 01 61 00 68 69"),
    (
        Publish(topic="a", qos=2, packet_id=7, dup=True, retain=True),
        "3d 06 00 01 61 00 07 00",
    ),
    (
        Publish(
            topic="",
            properties=properties(topic_alias=3, user_property=[("a", "b"), ("a", "c")]),
        ),
        "30 14 00 00 11 23 00 03 26 00 01 61 00 01 62 26 00 01 61 00 01 63",
    ),
    (PubAck(packet_id=1), "40 02 00 01"),
    (PubRec(packet_id=1, reason=0x97), "50 03 00 01 97"),
    (PubRel(packet_id=1), "62 02 00 01"),
    (PubComp(packet_id=1, reason=0x92), "70 03 00 01 92"),
    (
        Subscribe(
            packet_id=2,
            filters=(Subscription(filter="a/#", qos=1, no_local=True, retain_handling=2),),
            properties=properties(subscription_identifier=300),
        ),
        "82 0c 00 02 03 0b ac 02 00 03 61 2f 23 25",
    ),
    (SubAck(packet_id=2, reasons=(1, 0x87)), "90 05 00 02 00 01 87"),
    (Unsubscribe(packet_id=3, filters=("a", "b")), "a2 09 00 03 00 00 01 61 00 01 62"),
    (UnsubAck(packet_id=3, reasons=(0, 0x11)), "b0 05 00 03 00 00 11"),
    (PingReq(), "c0 00"),
    (PingResp(), "d0 00"),
    (Disconnect(reason=0x04), "e0 01 04"),
    (
        Auth(
            reason=0x18, properties=properties(authentication_method="m", authentication_data=b"d")
        ),
        "f0 0a 18 08 15 00 01 6d 16 00 01 64",
    ),
]


@pytest.mark.parametrize(("packet", "raw"), PACKETS, ids=lambda value: type(value).__name__)
def test_a_packet_and_its_bytes_are_the_same_thing(packet: Packet, raw: str) -> None:
    data = bytes.fromhex(raw)

    assert encode_packet(packet).hex(" ") == raw
    assert decode_packet(data) == (packet, len(data))
    assert decode_packet(data + b"more") == (packet, len(data))
    assert all(decode_packet(data[:end]) is None for end in range(len(data)))


def test_a_version_changes_the_bytes() -> None:
    assert (
        encode_packet(Publish(topic="a", payload=b"hi"), version=4).hex(" ")
        == "30 05 00 01 61 68 69"
    )
    assert encode_packet(Connect(version=3, client_id="c")).hex(" ") == (
        "10 0f 00 06 4d 51 49 73 64 70 03 02 00 3c 00 01 63"
    )
    assert decode_packet(bytes.fromhex("20 02 00 05"), version=4) == (ConnAck(reason=0x87), 4)


@pytest.mark.parametrize(
    ("raw", "version", "reason"),
    [("00 00", 5, 0x81), ("36 00", 5, 0x81), ("f0 00", 4, 0x82), ("30 80 80 80 80 01", 5, 0x81)],
)
def test_a_fault_says_what_to_tell_the_peer(raw: str, version: int, reason: int) -> None:
    with pytest.raises(PacketError) as caught:
        decode_packet(bytes.fromhex(raw), version=version)

    assert caught.value.reason_code in (reason, 0x81)
    assert str(caught.value)


def test_limits_come_before_the_body() -> None:
    with pytest.raises(PacketError) as caught:
        decode_packet(bytes.fromhex("30 ff 01"), packet_bytes=100)

    assert caught.value.reason_code == 0x95


def test_the_first_packet_is_a_connect() -> None:
    with pytest.raises(PacketError):
        decode_packet(b"\xc0\x00", first=True)


@pytest.mark.parametrize(
    "packet",
    [
        Publish(topic="a\x00b"),
        Publish(topic="a", qos=1),
        Publish(topic="a", qos=3, packet_id=1),
        PubAck(packet_id=0),
        PubAck(packet_id=1, reason=0x01),
        PubAck(packet_id=1, reason=0x03),
        Publish(topic="a", properties=properties(no_such_property=1)),
        Publish(topic="a", properties=properties(server_keep_alive=1)),
        Publish(topic="a", properties=properties(topic_alias=0)),
        SubAck(packet_id=1, reasons=()),
        Subscribe(packet_id=1, filters=()),
    ],
    ids=repr,
)
def test_what_the_decoder_refuses_is_not_written(packet: Packet) -> None:
    with pytest.raises((PacketError, ValueError, TypeError)):
        encode_packet(packet)


def test_what_is_no_packet_is_refused() -> None:
    with pytest.raises(ValueError, match="str is not a packet"):
        encode_packet("PINGREQ")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="version is 3, 4 or 5"):
        encode_packet(PingReq(), version=6)


def test_a_password_is_not_in_the_repr_of_a_connect() -> None:
    assert "canary" not in repr(Connect(client_id="c", password=b"canary"))
