"""`mqttcore rr`."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tests.cli.conftest import Run
from tests.conftest import RunningBroker
from tests.wire import Packet, Wire

Connect = Callable[..., Wire]


def respond(responder: Wire, *, correlation: Callable[[Packet], bytes]) -> threading.Thread:
    """Answers one request twice: with this correlation data, then with its own."""

    def answer() -> None:
        request = responder.receive_publish()
        topic = str(request.property("response_topic"))
        own = request.property("correlation_data")
        responder.publish(topic, b"first", props={"correlation_data": correlation(request)})
        responder.publish(topic, b"second: " + request.payload, props={"correlation_data": own})

    thread = threading.Thread(target=answer)
    thread.start()
    return thread


def test_the_response_with_the_correlation_data_of_the_request_is_printed(
    run: Run, broker: RunningBroker, client: Connect, topic: str
) -> None:
    responder = client()
    responder.subscribe((topic, 0))
    thread = respond(responder, correlation=lambda _: b"of another request")

    done = run("rr", "-p", broker.port, "-t", topic, "-m", "question", "-W", 30)

    thread.join()
    assert done == (0, "second: question\n", "")


def test_version_3_has_a_response_topic_by_agreement(
    run: Run, broker: RunningBroker, client: Connect, topic: str
) -> None:
    client().publish(f"{topic}/back", b"answer", qos=1, retain=True)

    options = ("-V", "311", "-t", topic, "-e", f"{topic}/back", "-n", "-F", "%t: %p")
    done = run("rr", "-p", broker.port, *options)

    assert done == (0, f"{topic}/back: answer\n", "")


def test_no_response_is_a_timeout(run: Run, broker: RunningBroker, topic: str) -> None:
    done = run("rr", "-p", broker.port, "-t", topic, "-n", "-W", "0.1", "-e", f"{topic}/back")

    assert done == (27, "", f"mqttcore rr: no response on {topic}/back within 0.1 s\n")
