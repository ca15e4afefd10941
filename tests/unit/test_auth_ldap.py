"""`mqttcore.auth.ldap` without a directory: filters, BER, and what hostile servers achieve."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import ssl
import time
from collections.abc import AsyncIterator, Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqttcore.auth.backend import BackendError
from mqttcore.auth.ldap import Ldap
from mqttcore.auth.ldap_client import ANSWER_BYTES_MAX
from mqttcore.auth.ldap_wire import (
    BIND_ANSWER,
    DONE,
    ENTRY,
    ENUMERATED,
    OCTETS,
    SEQUENCE,
    SET,
    Filter,
    LdapWireError,
    elements,
    entry_of,
    integer,
    message_of,
    result_of,
    tlv,
)
from mqttcore.plugin import Allow, Deny, Login
from mqttcore.testing import async_harness

from tests.tls import Files

NAMES = {"%u": "ann", "%c": "c1"}
ANN = Login(client_id="c1", username="ann", password=b"red")
Answer = Callable[[int, int], bytes]
"""What a server says to a request with this number and kind."""
BIND, SEARCH = 0x60, 0x63


def octets(text: str) -> bytes:
    """Text in BER."""
    return tlv(OCTETS, text.encode())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(uid=%u)", tlv(0xA3, octets("uid"), octets("ann"))),
        ("(uid>=1)", tlv(0xA5, octets("uid"), octets("1"))),
        ("(uid=*)", tlv(0x87, b"uid")),
        ("(cn=a*%u*z)", tlv(0xA4, octets("cn"), tlv(SEQUENCE, b"\x80\1a\x81\3ann\x82\1z"))),
        ("(cn=*%u)", tlv(0xA4, octets("cn"), tlv(SEQUENCE, b"\x82\3ann"))),
        (r"(cn=\2a%c\28)", tlv(0xA3, octets("cn"), octets("*c1("))),
        ("(!(a=1))", tlv(0xA2, tlv(0xA3, octets("a"), octets("1")))),
        (
            "(&(a=1)(|(b=2)(c=3)))",
            tlv(
                0xA0,
                tlv(0xA3, octets("a"), octets("1")),
                tlv(0xA1, tlv(0xA3, octets("b"), octets("2")), tlv(0xA3, octets("c"), octets("3"))),
            ),
        ),
    ],
)
def test_a_filter_is_encoded(text: str, expected: bytes) -> None:
    assert Filter(text).encode(NAMES) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "uid=%u",
        "(uid=%u",
        "(uid=%u))",
        "(=x)",
        "(&)",
        "(!(a=1)(b=2))",
        "(a b=1)",
        r"(a=\zz)",
        "(a=1)(b=2)",
        "(a>=1*)",
        "(a:=1)",
        "(" * 100,
        "(!" * 100 + "(a=1)" + ")" * 100,
    ],
)
def test_a_malformed_filter_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Filter(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(uid=%u)", {"uid"}),
        ("(&(objectClass=a)(|(uid=%u)(mail=%u))(host=%c))", {"uid", "mail"}),
        ("(&(uid=%u)(!(locked=%u)))", {"uid"}),
        ("(&(cn=*%u)(mail=%u@x)(sn>=%u)(a=u))", set()),
    ],
)
def test_attributes_that_are_compared_with_the_name_alone_have_it(
    text: str, expected: set[str]
) -> None:
    assert Filter(text).attributes_of_user() == expected


@pytest.mark.parametrize(("attribute", "is_allowed"), [("uid", True), ("Team", False)])
def test_the_attribute_of_the_configuration_has_the_name(attribute: str, is_allowed: bool) -> None:
    found = login(
        directory(), directory("cn=ann"), filter="(mail=%u@x)", username_attribute=attribute
    )

    assert isinstance(found, Allow) is is_allowed


@given(st.text(max_size=300))
def test_no_name_changes_the_shape_of_a_filter(name: str) -> None:
    try:
        data = name.encode()
    except UnicodeEncodeError:
        return
    found = Filter("(&(a=1)(uid=%u))").encode({"%u": name, "%c": name})

    inner = tlv(0xA3, octets("uid"), tlv(OCTETS, data))
    assert found == tlv(0xA0, tlv(0xA3, octets("a"), octets("1")), inner)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_answer_are_refused_or_read(data: bytes) -> None:
    for read in (message_of, result_of, entry_of, lambda found: list(elements(found))):
        with contextlib.suppress(LdapWireError):
            read(data)


def test_an_answer_of_many_small_elements_does_not_hold_the_event_loop() -> None:
    data = tlv(SEQUENCE) * (ANSWER_BYTES_MAX // 2)

    started = time.process_time()
    assert len(list(elements(data))) == ANSWER_BYTES_MAX // 2
    assert time.process_time() - started < 0.8  # with a copy for each element, it takes seconds


def message(number: int, kind: int, *parts: bytes) -> bytes:
    """A message of a server."""
    return tlv(SEQUENCE, integer(number), tlv(kind, *parts))


def result(code: int) -> tuple[bytes, bytes, bytes]:
    """The parts of a result."""
    return integer(code, ENUMERATED), octets(""), octets("a text of the server")


def directory(*names: str, code: int = 0, bind: int = 0, uid: str = "ann") -> Answer:
    """A server whose every search finds these entries, and whose every bind ends so."""

    def answer(number: int, kind: int) -> bytes:
        if kind == BIND:
            return message(number, BIND_ANSWER, *result(bind))
        team = tlv(SEQUENCE, octets("Team"), tlv(SET, octets("red")))
        both = tlv(SEQUENCE, octets("many"), tlv(SET, octets("a"), octets("b")))
        ids = tlv(SEQUENCE, octets("UID"), tlv(SET, octets("id-1"), octets(uid)))
        entries = [
            message(number, ENTRY, octets(name), tlv(SEQUENCE, team, both, ids)) for name in names
        ]
        return b"".join([*entries, message(number, DONE, *result(code))])

    return answer


@contextlib.asynccontextmanager
async def server(
    answers: Sequence[Answer | None], *, context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that gives one answer after the other, the last one again and again."""
    left = list(answers)
    got: list[bytes] = []
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
            while not writer.is_closing():
                head = await reader.readexactly(2)
                content = await reader.readexactly(head[1])
                number, kind, _ = message_of(content)
                got.append(content)
                answer = left.pop(0) if len(left) > 1 else left[0]
                if answer is None:
                    await asyncio.Event().wait()
                elif kind in (BIND, SEARCH):
                    writer.write(answer(number, kind))
        writer.transport.abort()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    scheme = "ldap" if context is None else "ldaps"
    try:
        yield f"{scheme}://localhost:{listening.sockets[0].getsockname()[1]}", got
    finally:
        listening.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def login(*answers: Answer | None, who: Login = ANN, **config: object) -> Allow | Deny | None:
    """The plugin's answer; the first answer of the server is the one at the start."""

    async def ask() -> Allow | Deny | None:
        async with (
            server(answers) as (url, _),
            async_harness(Ldap, {"url": url, "base": "o=x", **config}) as plugin,
        ):
            return await plugin.authenticate(who)

    return asyncio.run(ask())


def test_a_user_is_searched_and_bound() -> None:
    answer = login(
        directory("cn=ann"), publish=["%{team}/%u"], subscribe=["%{many}/#", "%{none}/#"]
    )

    assert isinstance(answer, Allow)
    assert answer.grant.publish == ("red/ann",)
    assert answer.grant.subscribe == ()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (directory("cn=ann", bind=49), Deny("bad_credentials")),
        (directory("cn=ann", uid="Ann"), None),
        (directory(), None),
        (directory("cn=a", "cn=b"), "server_unavailable"),
        (directory("cn=a", "cn=b", code=4), "server_unavailable"),
        (directory(""), "server_unavailable"),
        (directory("cn=ann", bind=53), "server_unavailable"),
        (directory("cn=ann", bind=10), "server_unavailable"),
        (directory("cn=ann", bind=14), "server_unavailable"),
        (directory(code=1), "server_unavailable"),
        (directory(code=10), "server_unavailable"),
    ],
    ids=range(11),
)
def test_a_result_decides(answer: Answer, expected: object) -> None:
    found = login(directory(), answer)

    is_plain = expected is None or isinstance(expected, Deny)
    assert (found if is_plain or not isinstance(found, Deny) else found.reason) == expected


@pytest.mark.parametrize("password", [None, b""])
def test_a_login_without_a_password_never_reaches_the_server(password: bytes | None) -> None:
    who = Login(client_id="c1", username="ann", password=password)

    async def ask() -> None:
        async with (
            server([directory("cn=ann")]) as (url, got),
            async_harness(Ldap, {"url": url, "base": "o=x"}) as plugin,
        ):
            before = len(got)
            assert await plugin.authenticate(who) == Deny("bad_credentials")
            assert len(got) == before

    asyncio.run(ask())


def notice(name: str = "1.3.6.1.4.1.1466.20036") -> bytes:
    """A message that nobody asked for: the notice of disconnection."""
    return message(0, 0x78, *result(52), tlv(0x8A, name.encode()))


def with_notice(answer: Answer) -> Answer:
    """A server that ends the connection behind its answer."""
    return lambda number, kind: answer(number, kind) + notice()


def test_a_notice_on_an_idle_connection_fails_no_login() -> None:
    found = login(with_notice(directory()), directory("cn=ann"))

    assert isinstance(found, Allow)


def test_a_notice_on_a_new_connection_is_a_failure() -> None:
    with pytest.raises(BackendError, match="it ended the connection"):
        login(with_notice(directory()), lambda *_: notice())


HOSTILE: dict[str, Answer | None] = {
    "silent": None,
    "http": lambda *_: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "indefinite": lambda *_: b"\x30\x80\x02\x01\x01",
    "huge": lambda *_: b"\x30\x84\x7f\xff\xff\xff",
    "endless": lambda number, _: message(number, ENTRY, octets("cn=x"), tlv(SEQUENCE)) * 100_000,
    "another number": lambda number, kind: directory("cn=ann")(number + 1, kind),
    "unasked": lambda _, kind: directory("cn=ann")(0, kind),
    "other notice": lambda *_: notice("1.3.6.1"),
    "other kind": lambda number, _: message(number, 0x78, *result(0)),
    "no result": lambda number, kind: message(number, DONE if kind == SEARCH else BIND_ANSWER),
    "busy": directory("cn=ann", code=51, bind=51),
    "cut off": lambda number, kind: directory("cn=ann")(number, kind)[:-3],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_server_is_a_failure(name: str) -> None:
    started = time.monotonic()

    with pytest.raises(BackendError, match="the server failed"):
        login(directory(), HOSTILE[name], timeout_s=0.5)
    with pytest.raises(BackendError, match="the server failed"):
        login(HOSTILE[name], timeout_s=0.5)

    assert time.monotonic() - started < 10
    assert 100_000 * len(message(1, ENTRY, octets("cn=x"), tlv(SEQUENCE))) > ANSWER_BYTES_MAX


def test_a_bind_that_no_server_answers_is_a_failure() -> None:
    with pytest.raises(BackendError, match="no answer in time"):
        login(directory(), directory("cn=ann"), None, timeout_s=0.5)


def test_a_certificate_of_somebody_else_is_a_failure(tmp_path: pathlib.Path) -> None:
    (tmp_path / "good").mkdir()
    (tmp_path / "bad").mkdir()
    good, bad = Files.make(tmp_path / "good"), Files.make(tmp_path / "bad")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(good.path("server.pem"), good.path("server.key"))

    async def ask(files: Files) -> Allow | Deny | None:
        ca = str(files.path("ca.pem"))
        async with (
            server([directory("cn=ann")], context=context) as (url, _),
            async_harness(Ldap, {"url": url, "base": "o=x", "ca": ca}) as plugin,
        ):
            return await plugin.authenticate(ANN)

    assert isinstance(asyncio.run(ask(good)), Allow)
    with pytest.raises(BackendError, match="TLS: CERTIFICATE_VERIFY_FAILED"):
        asyncio.run(ask(bad))


def test_a_search_account_with_a_wrong_password_stops_the_start() -> None:
    with pytest.raises(BackendError, match="refuses the password of bind_dn"):
        login(directory(bind=49), bind_dn="cn=reader", password="x")  # noqa: S106 - of this test


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"url": "ldap://ldap.example.com"}, "without TLS"),
        ({"url": "ldapi:///run/slapd"}, "not like"),
        ({"url": "ldaps://a:b@localhost"}, "not like"),
        ({"url": "ldaps://localhost/o=x"}, "not like"),
        ({"filter": "(uid=ann)"}, "name the user"),
        ({"filter": "uid=%u"}, "parenthesis"),
        ({"filter": "(mail=%u@x)"}, "set username_attribute"),
        ({"username_attribute": "a b"}, "not an attribute"),
        ({"bind_dn": "cn=reader"}, "must be set together"),
        ({"bind_dn": "", "password": "x"}, "must be set together"),
        ({"password": "x"}, "must be set together"),
        ({"publish": ["%{a b}/x"]}, "not an attribute"),
    ],
)
def test_keys_that_make_no_sense_are_refused(config: dict[str, object], what: str) -> None:
    with pytest.raises(Exception, match=what):
        async_harness(Ldap, {"url": "ldap://localhost", "base": "o=x", **config})
