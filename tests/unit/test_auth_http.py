"""`mqttcore.auth.http`: what is asked, whom an answer admits, and what hostile services achieve."""

from __future__ import annotations

import asyncio
import logging
import pathlib
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from mqttcore.auth.backend import BackendError
from mqttcore.auth.http import BODY_BYTES_MAX, Http
from mqttcore.errors import OverloadedError
from mqttcore.plugin import Allow, Ask, Deny, Login
from mqttcore.plugin.marks import Action
from mqttcore.testing import AsyncHarness, allows, async_harness

from tests.http_service import Answer, HttpService, Request, http_service, raw, reply, silence
from tests.tls import Files

ANN = Login(client_id="c1", username="ann", password=b"red", peer=("192.0.2.7", 5))
SECRET = "token-that-nobody-sees"  # noqa: S105 - of this test
ALLOW = {"result": "allow"}


@asynccontextmanager
async def asked(
    answer: Answer, **config: object
) -> AsyncIterator[tuple[AsyncHarness[Http], HttpService]]:
    """The plugin, and a service that answers it."""
    async with http_service(answer) as service:
        given = {key: service.url(str(url)) for key, url in config.items() if key.endswith("url")}
        async with async_harness(Http, {"url": service.url(), **config, **given}) as plugin:
            yield plugin, service


def login(answer: Answer, who: Login = ANN, **config: object) -> Allow | Deny | None:
    """The plugin's answer about one client."""

    async def ask() -> Allow | Deny | None:
        async with asked(answer, **config) as (plugin, _):
            return await plugin.authenticate(who)

    return asyncio.run(ask())


def sent(answer: Answer, **config: object) -> HttpService:
    """The service, after one login."""

    async def ask() -> HttpService:
        async with asked(answer, **config) as (plugin, service):
            await plugin.authenticate(ANN)
            return service

    return asyncio.run(ask())


def test_emqx_is_asked_in_json_and_its_rules_are_the_configurations() -> None:
    service = sent(reply(200, ALLOW), publish=["a/%u/%c"])

    assert service.requests[0].json == {
        "username": "ann",
        "password": "red",
        "clientid": "c1",
        "peerhost": "192.0.2.7",
    }
    answer = login(reply(200, ALLOW), publish=["a/%u/%c"])
    assert isinstance(answer, Allow)
    assert answer.grant.publish == ("a/ann/c1",)


def test_go_auth_is_asked_with_a_form() -> None:
    service = sent(reply(200), style="go-auth", params="form")

    assert service.requests[0].headers["content-type"] == "application/x-www-form-urlencoded"
    assert service.requests[0].form == {"username": "ann", "password": "red", "clientid": "c1"}


def test_nothing_in_a_name_changes_the_shape_of_a_form() -> None:
    odd = Login(client_id="c&x=1", username="ann&clientid=2\r\nX: 1", password=b"p&password=q")

    async def ask() -> HttpService:
        async with asked(reply(200), style="go-auth", params="form") as (plugin, service):
            await plugin.authenticate(odd)
            return service

    assert asyncio.run(ask()).requests[0].form == {
        "username": "ann&clientid=2\r\nX: 1",
        "password": "p&password=q",
        "clientid": "c&x=1",
    }


@pytest.mark.parametrize(
    ("answer", "config", "expected"),
    [
        (reply(204), {}, "allow"),
        (reply(200, {"result": "deny"}), {}, "bad_credentials"),
        (reply(200, {"result": "ignore"}), {}, "next"),
        (reply(401), {}, "bad_credentials"),
        (reply(403, ALLOW), {}, "bad_credentials"),
        (reply(404, ALLOW), {}, "server_unavailable"),
        (reply(500, ALLOW), {}, "server_unavailable"),
        (reply(404), {"style": "go-auth"}, "bad_credentials"),
        (reply(429), {}, "server_unavailable"),
        (reply(429), {"style": "go-auth"}, "server_unavailable"),
        (reply(500), {"style": "go-auth"}, "server_unavailable"),
        (reply(200, b"ok"), {"style": "go-auth", "response": "text"}, "allow"),
        (reply(200, b"no"), {"style": "go-auth", "response": "text"}, "bad_credentials"),
        (reply(200, {"ok": True}), {"style": "go-auth", "response": "json"}, "allow"),
        (reply(200, {"ok": False}), {"style": "go-auth", "response": "json"}, "bad_credentials"),
        (reply(200, {"ok": 1}), {"style": "go-auth", "response": "json"}, "server_unavailable"),
    ],
)
def test_an_answer_decides(answer: Answer, config: dict[str, Any], expected: str) -> None:
    found = login(answer, **config)

    is_allowed = isinstance(found, Allow)
    assert (found.reason if isinstance(found, Deny) else "allow" if is_allowed else "next") == (
        expected
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"allow",
        b"[]",
        b"null",
        b'"allow"',
        b"{}",
        b'{"result": true}',
        b'{"result": ["allow"]}',
        b'{"result": "ALLOW"}',
        b'{"result": "allow"',
        b'{"result": "allow", "is_superuser": "false"}',
        b'{"result": "allow", "expire_at": "never"}',
        b'{"result": "allow", "expire_at": NaN}',
        b'{"result": "allow", "expire_at": -1}',
        b'{"result": "deny", "user": "x", "result": "allow"}',
        b'{"result": "allow", "acl": {}}',
        b'{"result": "allow", "acl": [{"permission": "allow", "action": "all"}]}',
        b"\xff\xfe",
        b"[" * 50_000,
        b'{"result": "allow", "x": "' + b"x" * BODY_BYTES_MAX + b'"}',
    ],
    ids=range(20),
)
def test_an_answer_that_makes_no_sense_refuses_the_client_only(
    body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    answer = login(reply(200, body))

    assert answer == Deny("server_unavailable", "the server's answer makes no sense")
    assert "client 'c1': refused: " in caplog.text


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (silence, "no answer in time"),
        (raw(b""), "ServerDisconnectedError"),
        (raw(b"SSH-2.0-OpenSSH_9\r\n"), "ClientResponseError"),
        (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{}"), "ClientPayloadError"),
        (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", closes=False), "no answer in time"),
        (raw(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000, closes=False), "ClientResponseError"),
    ],
    ids=range(6),
)
def test_a_hostile_service_is_a_failure(answer: Answer, what: str) -> None:
    started = time.monotonic()

    with pytest.raises(BackendError, match=what):
        login(answer, timeout_s=0.5)

    assert time.monotonic() - started < 5


@pytest.mark.parametrize("style", ["emqx", "go-auth"])
@pytest.mark.parametrize("status", [408, 503])
def test_a_service_that_cannot_answer_now_is_a_failure(status: int, style: str) -> None:
    with pytest.raises(BackendError, match=f"status {status}"):
        login(reply(status), style=style)


def test_a_redirect_is_not_followed() -> None:
    async def ask() -> tuple[object, int]:
        async with http_service(reply(200, ALLOW)) as elsewhere:
            moved = reply(307, b"", f"Location: {elsewhere.url()}")
            async with asked(moved) as (plugin, _):
                return await plugin.authenticate(ANN), elsewhere.connections

    answer, connections = asyncio.run(ask())
    assert isinstance(answer, Deny)
    assert answer.reason == "server_unavailable"
    assert connections == 0


def test_a_service_that_is_not_there_is_a_failure_until_it_answers() -> None:
    async def ask() -> None:
        async with asked(raw(b"")) as (plugin, service):
            with pytest.raises(BackendError):
                await plugin.authenticate(ANN)
            assert len(await plugin.health()) == 1
            service.answer = reply(200, ALLOW)
            assert isinstance(await plugin.authenticate(ANN), Allow)
            assert await plugin.health() == []

    asyncio.run(ask())


def test_a_connection_that_was_closed_meanwhile_is_opened_again() -> None:
    async def ask() -> None:
        async with asked(reply(200, ALLOW)) as (plugin, service):
            await plugin.authenticate(ANN)
            first = service.answer
            answers = iter([raw(b""), first])

            async def once(request: Request, writer: asyncio.StreamWriter) -> None:
                await next(answers)(request, writer)

            service.answer = once
            assert isinstance(await plugin.authenticate(ANN), Allow)

    asyncio.run(ask())


def test_connections_are_bounded_and_waiting_is_overload() -> None:
    async def ask() -> None:
        config = {"connections": 2, "timeout_s": 0.5}
        async with asked(silence, **config) as (plugin, service):
            answers = await asyncio.gather(
                *[plugin.authenticate(ANN) for _ in range(6)], return_exceptions=True
            )
            assert service.connections <= 4
            kinds = {type(answer) for answer in answers}
            assert kinds == {BackendError, OverloadedError} or kinds == {BackendError}

    asyncio.run(ask())


@pytest.mark.parametrize("password", [None, b"", b"\xff"])
def test_a_login_without_a_password_is_refused_without_a_question(password: bytes | None) -> None:
    who = Login(client_id="c1", username="ann", password=password)

    assert login(reply(200, ALLOW), who) == Deny("bad_credentials")


def test_a_client_without_user_name_is_the_next_plugins() -> None:
    assert login(reply(200, ALLOW), Login(client_id="c1")) is None


def test_a_superuser_may_do_everything_but_what_is_denied() -> None:
    answer = login(reply(200, {**ALLOW, "is_superuser": True}), deny=["secret/#"])

    assert isinstance(answer, Allow)
    assert allows(answer.grant, "publish", "a")
    assert not allows(answer.grant, "publish", "secret/a")


def test_the_service_says_what_a_client_may_do_and_until_when() -> None:
    acl = [
        {"permission": "deny", "action": "all", "topic": "a/secret"},
        {"permission": "allow", "action": "publish", "topic": "a/${username}/#"},
        {"permission": "allow", "action": "all", "topic": "a/#"},
        {"permission": "deny", "action": "all", "topic": "#"},
    ]
    answer = login(reply(200, {**ALLOW, "acl": acl, "expire_at": 2_000_000_000}))

    assert isinstance(answer, Allow)
    assert answer.grant.expires_at == datetime(2033, 5, 18, 3, 33, 20, tzinfo=UTC)
    assert answer.grant.access_list is not None
    assert ("write", "a/ann/#") in answer.grant.access_list
    places = {rule: getattr(rule, "place", None) for _, rule in answer.grant.access_list}
    assert places == {
        "a/secret": "acl of the answer, rule 1",
        "a/ann/#": "acl of the answer, rule 2",
        "a/#": "acl of the answer, rule 3",
        "#": "acl of the answer, rule 4",
    }
    assert not allows(answer.grant, "publish", "a/secret")
    assert allows(answer.grant, "receive", "a/x")
    assert not allows(answer.grant, "receive", "b")


def test_an_acl_beside_rules_of_the_configuration_is_refused() -> None:
    answer = login(reply(200, {**ALLOW, "acl": []}), publish=["a"])

    assert isinstance(answer, Deny)


def decision(answer: Answer, action: Action, **config: object) -> tuple[object, HttpService]:
    """The answer about a topic, and the service that was asked."""

    async def ask() -> tuple[object, HttpService]:
        async with asked(answer, acl_url="/acl", **config) as (plugin, service):
            return await plugin.authorize(Ask(ANN, action=action, topic="a/b")), service

    return asyncio.run(ask())


@pytest.mark.parametrize("action", get_args(Action))
def test_emqx_decides_about_topics(action: Action) -> None:
    answer, service = decision(reply(200, ALLOW), action)

    assert answer is True
    assert service.requests[0].path == "/acl"
    assert service.requests[0].json["action"] == action
    assert decision(reply(200, {"result": "ignore"}), action)[0] is None
    assert decision(reply(200, {"result": "deny"}), action)[0] is False
    assert decision(reply(500), action)[0] is False
    with pytest.raises(BackendError):
        decision(raw(b""), action)


def test_a_subscriber_of_go_auth_has_to_be_allowed_to_read() -> None:
    async def no_reading(request: Request, writer: asyncio.StreamWriter) -> None:
        await reply(403 if request.json["acc"] == 1 else 200)(request, writer)

    assert decision(no_reading, "publish", style="go-auth")[0] is True
    assert decision(no_reading, "subscribe", style="go-auth")[0] is False
    assert decision(reply(200), "subscribe", style="go-auth")[0] is True


def test_without_acl_url_no_topic_is_asked_about() -> None:
    async def ask() -> None:
        async with asked(reply(200, ALLOW)) as (plugin, service):
            assert await plugin.authorize(Ask(ANN, action="publish", topic="a")) is None
            assert service.requests == []

    asyncio.run(ask())


def test_headers_come_from_a_file_and_never_show(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "token"
    path.write_text(f"Bearer {SECRET}\n")
    header = {"name": "Authorization", "value_file": str(path)}
    caplog.set_level(logging.DEBUG)

    service = sent(reply(200, ALLOW), headers=[header])
    login(reply(200, b"?"), headers=[header])
    with pytest.raises(BackendError) as failure:
        login(raw(b"?"), headers=[header])

    assert service.requests[0].headers["authorization"] == f"Bearer {SECRET}"
    assert SECRET not in caplog.text + repr(failure.value)
    assert "red" not in caplog.text.split()


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"url": "http://accounts.example.com/"}, "without TLS"),
        ({"url": "ftp://localhost/"}, "https://"),
        ({"url": "https://a:b@localhost/"}, "use headers"),
        ({"url": "https://localhost/", "response": "text"}, "go-auth"),
        ({"url": "https://localhost/", "headers": [{"name": "X: y", "value": "1"}]}, "no header"),
        (
            {"url": "https://localhost/", "headers": [{"name": "X", "value": "1\r\nY: 2"}]},
            "may not have",
        ),
        ({"url": "https://localhost/", "headers": [{"name": "X"}]}, "no value"),
        ({"url": "https://localhost/", "ca": "/nowhere.pem"}, "ca: /nowhere.pem"),
    ],
)
def test_keys_that_make_no_sense_are_refused(config: dict[str, object], what: str) -> None:
    with pytest.raises(Exception, match=what):
        async_harness(Http, config)


def test_a_certificate_of_somebody_else_is_a_failure(tmp_path: pathlib.Path) -> None:
    (tmp_path / "good").mkdir()
    (tmp_path / "bad").mkdir()
    good, bad = Files.make(tmp_path / "good"), Files.make(tmp_path / "bad")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(good.path("server.pem"), good.path("server.key"))

    async def ask(files: Files) -> object:
        async with http_service(reply(200, ALLOW), context=context) as service:
            config = {"url": service.url(scheme="https"), "ca": str(files.path("ca.pem"))}
            async with async_harness(Http, config) as plugin:
                return await plugin.authenticate(ANN)

    assert isinstance(asyncio.run(ask(good)), Allow)
    with pytest.raises(BackendError, match="TLS: CERTIFICATE_VERIFY_FAILED"):
        asyncio.run(ask(bad))
