"""The subscription directory, as Python sees it."""

import doctest
import threading
from array import array

import pytest
from mqttcore import Directory, TopicFilterError, TopicNameError


def clients(directory: Directory, topic: str, publisher: int | None = None) -> list[int]:
    return sorted(match.client for match in directory.match(topic, publisher=publisher))


def test_the_example_of_the_docstring_runs() -> None:
    examples = doctest.DocTestFinder().find(Directory, "Directory", globs={})

    results = [doctest.DocTestRunner().run(example) for example in examples]

    assert sum(result.attempted for result in results) >= 6
    assert sum(result.failed for result in results) == 0


def test_the_subscriptions_of_a_client_are_merged() -> None:
    directory = Directory()
    assert directory.subscribe(1, "a/+", qos=1, subscription_id=5)
    assert directory.subscribe(1, "a/b", qos=2, retain_as_published=True, subscription_id=6)
    assert not directory.subscribe(1, "a/b", qos=0, retain_as_published=True, subscription_id=6)

    (match,) = directory.match("a/b")

    assert (match.client, match.qos, match.retain_as_published) == (1, 1, True)
    assert (sorted(match.subscription_ids), match.shared) == ([5, 6], False)
    assert repr(match) == "Match(client=1, qos=1)"


def test_no_local_leaves_out_the_publisher() -> None:
    directory = Directory()
    directory.subscribe(1, "#")
    directory.subscribe(2, "#", no_local=True)

    assert clients(directory, "a") == [1, 2]
    assert clients(directory, "a", publisher=2) == [1]
    assert clients(directory, "a", publisher=3) == [1, 2]


def test_an_unsubscribed_filter_no_longer_matches() -> None:
    directory = Directory()
    directory.subscribe(1, "a/b")

    assert not directory.unsubscribe(1, "a/b/c")
    assert not directory.unsubscribe(2, "a/b")
    assert directory.unsubscribe(1, "a/b")

    assert directory.match("a/b") == []
    assert len(directory) == 0


def test_a_shared_group_takes_turns() -> None:
    directory = Directory()
    directory.subscribe_many([0, 1, 2], ["$share/group/a"] * 3)

    picked = [match.client for _ in range(30) for match in directory.match("a")]

    assert sorted(picked) == sorted([0, 1, 2] * 10)
    assert directory.match("a")[0].shared
    assert directory.stats()["shared_groups"] == 1


def test_a_client_that_left_gets_nothing_and_leaves_nothing() -> None:
    directory = Directory()
    directory.subscribe_many(1, ["a", "b/+", "$share/g/c"])

    assert directory.leave(1)
    assert not directory.leave(1)

    assert directory.match("a") == []
    stats = directory.stats()
    assert (stats["clients"], stats["subscriptions"], stats["filters"]) == (0, 0, 0)


def test_many_subscriptions_come_as_lists_or_buffers() -> None:
    filters = ["a/1", "a/2", "a/+"]
    by_list, by_buffer = Directory(), Directory()

    assert by_list.subscribe_many([1, 2, 2**64 - 1], filters, qos=[0, 1, 2]) == 3
    assert by_buffer.subscribe_many(array("Q", [1, 2, 2**64 - 1]), filters, qos=b"\0\1\2") == 3
    assert by_buffer.subscribe_many(2, filters) == 2

    found = sorted((match.client, match.qos) for match in by_list.match("a/2"))
    assert found == [(2, 1), (2**64 - 1, 2)]
    assert len(by_buffer) == 5


def test_many_topics_come_back_as_lists_and_as_columns() -> None:
    directory = Directory()
    directory.subscribe_many([1, 2], ["a/+", "a/2"], qos=[1, 2])
    topics = ["a/1", "none", "a/2"] * 1000

    found = directory.match_many(topics)

    assert len(found) == 3000
    assert sorted(match.client for match in found[-1]) == [1, 2]
    assert list(found.offsets[:5]) == [0, 1, 1, 3, 4]
    rows = list(zip(found.clients[:3], found.qos[:3], strict=True))
    assert (rows[0], sorted(rows[1:])) == ((1, 1), [(1, 1), (2, 2)])
    assert [len(found[index]) for index in range(3)] == [1, 0, 2]
    assert memoryview(found.clients).nbytes == 8 * found.offsets[-1]
    with pytest.raises(IndexError):
        found[3000]
    with pytest.raises(IndexError):
        found[-3001]


def test_no_topics_have_no_matches() -> None:
    found = Directory().match_many([])

    assert (len(found), list(found.offsets), list(found.clients)) == (0, [0], [])


def test_threads_share_a_directory() -> None:
    directory = Directory()
    directory.subscribe(0, "fleet/#")
    missed: list[str] = []

    def churn(client: int) -> None:
        for number in range(300):
            own = f"fleet/{client}/{number}"
            directory.subscribe(client, own)
            if clients(directory, own) != [0, client]:
                missed.append(own)
            directory.unsubscribe(client, own)

    threads = [threading.Thread(target=churn, args=(client,)) for client in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert missed == []
    assert len(directory) == 1


def test_a_filter_or_topic_that_is_none_is_refused_with_its_row() -> None:
    directory = Directory()

    with pytest.raises(TopicFilterError, match=r"filters\[1\]: .*MQTT-4\.7\.1-1"):
        directory.subscribe_many(1, ["a", "a#"])
    with pytest.raises(TopicNameError, match=r"topics\[2\]: .*MQTT-4\.7\.0-1"):
        directory.match_many(["a", "b", "+"])
    with pytest.raises(TopicFilterError, match=r"MQTT-4\.8\.2-1"):
        directory.subscribe(1, "$share//a")

    assert len(directory) == 0


def test_wrong_arguments_are_refused() -> None:
    directory = Directory()

    with pytest.raises(ValueError, match="QoS"):
        directory.subscribe(1, "a", qos=3)
    with pytest.raises(ValueError, match="QoS"):
        directory.subscribe_many(1, ["a"], qos=3)
    with pytest.raises(ValueError, match="clients has 1 rows and filters has 2"):
        directory.subscribe_many([1], ["a", "b"])
    with pytest.raises(ValueError, match="buffer of 64-bit"):
        directory.subscribe_many(array("d", [1.0]), ["a"])
    with pytest.raises(OverflowError):
        directory.subscribe(-1, "a")
    with pytest.raises(ValueError, match="strategy"):
        Directory(strategy="best")  # type: ignore[arg-type]
