"""Topic names and filters, as Python sees them."""

import pytest
from mqttcore import TopicFilter, TopicFilterError, TopicName, TopicNameError


def test_a_filter_matches_covers_and_overlaps() -> None:
    fleet = TopicFilter("fleet/+/#")

    assert fleet.matches("fleet/7/alarm")
    assert not fleet.matches("fleet")
    assert not TopicFilter("#").matches("$SYS/broker")
    assert fleet.covers(TopicFilter("fleet/7/alarm"))
    assert not fleet.covers(TopicFilter("#"))
    assert fleet.overlaps(TopicFilter("+/7/+"))
    assert fleet.has_wildcard
    assert not TopicFilter("a").has_wildcard


def test_filters_and_names_are_values() -> None:
    assert TopicFilter("a/+") == TopicFilter("a/+")
    assert TopicFilter("a/+") != TopicFilter("a/#")
    assert {TopicName("a"), TopicName("a")} == {TopicName("a")}
    assert (str(TopicFilter("a/+")), repr(TopicName("a/b"))) == ("a/+", 'TopicName("a/b")')
    assert TopicName("/a//b").levels == ["", "a", "", "b"]


@pytest.mark.parametrize("text", ["", "a#", "a/#/b", "a+", "+a/b", "\x00"])
def test_a_text_that_is_no_filter_is_refused(text: str) -> None:
    with pytest.raises(TopicFilterError, match=r"MQTT-4\.7"):
        TopicFilter(text)


@pytest.mark.parametrize("text", ["", "a/+", "#", "\x00"])
def test_a_text_that_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(TopicNameError, match=r"MQTT-4\.7"):
        TopicName(text)
    with pytest.raises(TopicNameError):
        TopicFilter("a").matches(text)
