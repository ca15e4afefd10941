"""`mqttcore.auth.ldap` with a real OpenLDAP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
from mqttcore.auth.backend import BackendError
from mqttcore.auth.ldap import Ldap
from mqttcore.plugin import Allow, Deny, Login
from mqttcore.testing import async_harness

from tests.services.logins import answers, user
from tests.services.servers import SUFFIX
from tests.services.state import HOST, PASSWORD, Running

PEOPLE = f"ou=people,{SUFFIX}"
HOSTILE = ["*", "a*", "ann)(uid=*", "*)(|(uid=*", "\\2a", "an\\6e", "ann\x01", "x" * 60_000]


@pytest.fixture
def config(service: Callable[[str], Running]) -> Mapping[str, object]:
    """Keys of the plugin."""
    return {
        "url": f"ldap://{HOST}:{service('slapd').port}",
        "base": PEOPLE,
        "bind_dn": f"cn=reader,{SUFFIX}",
        "password": PASSWORD,
        "filter": "(&(objectClass=inetOrgPerson)(uid=%u))",
        "publish": ["%{departmentNumber}/%u/#"],
        "connections": 4,
    }


def test_a_user_comes_in_with_rules_of_the_entry(config: Mapping[str, object]) -> None:
    right, wrong, none, unknown, nameless = answers(
        Ldap, config, user(), user(password=b"blue"), user(password=b""), user("eve"), user(None)
    )

    assert isinstance(right, Allow)
    assert right.grant.publish == ("d0/ann/#",)
    assert wrong == none == Deny("bad_credentials")
    assert unknown is nameless is None


def test_an_attribute_with_two_values_fits_no_rule(config: Mapping[str, object]) -> None:
    answer = answers(Ldap, config, user("bob"))[0]

    assert isinstance(answer, Allow)
    assert answer.grant.publish == ()


def test_an_entry_without_a_password_admits_nobody(config: Mapping[str, object]) -> None:
    assert answers(Ldap, config, user("nopassword"))[0] == Deny("bad_credentials")


def test_two_entries_admit_nobody(config: Mapping[str, object]) -> None:
    answer = answers(Ldap, config, user("twin"))[0]

    assert isinstance(answer, Deny)
    assert answer.reason == "server_unavailable"


def test_names_with_signs_of_filters_are_names(config: Mapping[str, object]) -> None:
    assert answers(Ldap, config, *[user(name) for name in HOSTILE]) == [None] * len(HOSTILE)
    assert isinstance(answers(Ldap, config, user("odd*(x)\\2a"))[0], Allow)


@pytest.mark.parametrize("name", ["ANN", "Ann", "ann ", " ann", "\uff41nn"])
def test_a_name_that_is_not_exactly_the_same_is_nobody(
    config: Mapping[str, object], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """OpenLDAP finds `ann` by each of these names."""
    assert answers(Ldap, config, user(name)) == [None]
    said = f"{name!a}, but has no name that is exactly the same"
    assert any(said in message for message in caplog.messages)


def test_many_logins_share_few_connections(config: Mapping[str, object]) -> None:
    async def ask() -> None:
        async with async_harness(Ldap, {**config, "timeout_s": 10.0}) as plugin:
            found = await asyncio.gather(*[plugin.authenticate(user()) for _ in range(40)])
            assert all(isinstance(answer, Allow) for answer in found)

    asyncio.run(ask())


def test_invalidated_rights_are_those_of_the_entry_now(config: Mapping[str, object]) -> None:
    async def ask() -> tuple[object, ...]:
        async with async_harness(Ldap, config) as plugin:
            known = await plugin.grant(Login(client_id="c1", username="ann"))
            return known, *[
                await plugin.grant(Login(client_id="c1", username=name)) for name in ("gone", "ANN")
            ]

    known, *others = asyncio.run(ask())
    assert isinstance(known, Allow)
    assert others == [None, None]


@pytest.mark.parametrize(
    "changes",
    [{"password": "wrong"}, {"base": f"ou=nowhere,{SUFFIX}"}, {"bind_dn": "no name"}],
    ids=["password", "base", "name"],
)
def test_a_search_that_cannot_work_stops_the_start(
    config: Mapping[str, object], changes: dict[str, object]
) -> None:
    with pytest.raises(BackendError):
        answers(Ldap, {**config, **changes})


def test_a_server_without_tls_stops_the_start(config: Mapping[str, object]) -> None:
    url = str(config["url"]).replace("ldap:", "ldaps:")

    with pytest.raises(BackendError):
        answers(Ldap, {**config, "url": url})
