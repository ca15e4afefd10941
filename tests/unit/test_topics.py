"""Topic names, filters and the directory, as Python sees them."""

import pytest
from mqttcore import Directory, TopicFilter, TopicFilterError, TopicName, TopicNameError


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


def test_the_directory_merges_what_one_subscriber_asked_for() -> None:
    directory = Directory()
    one, two = directory.join(1), directory.join(2)
    assert not one.subscribe("a/+", qos=1, subscription_id=5)
    assert not one.subscribe("a/b", qos=2, retain_as_published=True)
    assert one.subscribe("a/b", qos=0)
    two.subscribe("#", no_local=True)

    first, second = sorted(directory.matches("a/b"), key=lambda match: match.handle)

    assert (first.handle, first.qos, first.subscription_ids, first.shared) == (1, 1, [5], False)
    assert (second.handle, second.qos) == (2, 0)
    assert [match.handle for match in directory.matches("a/b", publisher=two)] == [1]
    assert one.unsubscribe("a/+")
    assert not one.unsubscribe("a/+")


def test_a_shared_group_takes_turns() -> None:
    directory = Directory()
    members = [directory.join(handle) for handle in range(3)]
    for member in members:
        member.subscribe("$share/group/a")

    picked = [match.handle for _ in range(30) for match in directory.matches("a")]

    assert sorted(picked) == sorted([0, 1, 2] * 10)
    assert directory.stats()["shared_groups"] == 1


def test_a_subscriber_that_left_gets_nothing() -> None:
    directory = Directory()
    one = directory.join(1)
    one.subscribe("a")

    one.leave()
    one.leave()

    assert directory.matches("a") == []
    with pytest.raises(ValueError, match="left"):
        one.subscribe("b")
    while directory.clean(100):
        pass
    assert directory.stats()["subscriptions"] == 0


def test_wrong_arguments_are_refused() -> None:
    one = Directory().join(1)

    with pytest.raises(TopicFilterError, match=r"MQTT-4\.8\.2-1"):
        one.subscribe("$share//a")
    with pytest.raises(ValueError, match="QoS"):
        one.subscribe("a", qos=3)
    with pytest.raises(ValueError, match="strategy"):
        Directory(strategy="best")  # type: ignore[arg-type]
