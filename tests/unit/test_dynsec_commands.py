"""Commands of dynamic security answer as Mosquitto does, and change nothing if they are refused."""

import json
from collections.abc import Mapping
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqttcore.auth.dynsec_arguments import PASSWORDS_MAX
from mqttcore.auth.dynsec_commands import COMMANDS, run
from mqttcore.auth.dynsec_file import state_of, text_of
from mqttcore.auth.dynsec_state import AclType, State

from tests.dynsec import acl, initial, recorded

ITERATIONS = 1_000


def state(**more: object) -> State:
    """A state with an admin and more."""
    return state_of(json.dumps(initial(**more)), "test")


def asked(before: State, *commands: object) -> tuple[list[dict[str, object]], State]:
    """The responses to commands of one request, and the state after them."""
    payload = json.dumps({"commands": commands}).encode()
    outcome = run(before, payload, iterations=ITERATIONS)
    responses = json.loads(outcome.answer())["responses"]
    return responses, outcome.state


def test_all_commands_of_mosquitto_are_answered_as_it_answers_them() -> None:
    now = state()
    seen = set()
    for command, answer in recorded():
        payload = f'{{"commands":[{command}]}}'.encode()
        outcome = run(now, payload, iterations=ITERATIONS)
        now = outcome.state
        (found,) = json.loads(outcome.answer())["responses"]
        assert found == answer, command
        seen.add(str(found["command"]).lower())

    assert len(COMMANDS) == 31
    assert COMMANDS.keys() <= seen
    assert state_of(text_of(now), "test") == now


@pytest.mark.parametrize("payload", [b"", b"no", b"\xff", b"[" * 100_000, b'{"commands":[NaN]}'])
def test_a_request_that_is_no_json_is_refused(payload: bytes) -> None:
    outcome = run(state(), payload, iterations=ITERATIONS)

    assert outcome.responses == [{"command": "Unknown command", "error": "Payload not valid JSON"}]


@pytest.mark.parametrize("payload", [b"{}", b"[]", b"7", b'{"commands":{}}', b'{"commands":"x"}'])
def test_a_request_without_commands_is_refused(payload: bytes) -> None:
    outcome = run(state(), payload, iterations=ITERATIONS)

    assert outcome.responses == [
        {"command": "Unknown command", "error": "Invalid/missing commands"}
    ]


BAD: Mapping[str, dict[str, object]] = {
    "Invalid/missing rolename": {"command": "createRole", "rolename": ""},
    "Invalid/missing username": {"command": "createClient", "username": ""},
    "Role name not valid UTF-8": {"command": "createRole", "rolename": "\uffffLO"},
    "Username not valid UTF-8": {"command": "deleteClient", "username": "a\x7f"},
    "Client ID not valid UTF-8": {
        "command": "setClientId",
        "username": "joe",
        "clientid": "\U0001fffe",
    },
    "Invalid/missing client ID": {"command": "setClientId", "username": "nobody", "clientid": 5},
    "Empty password is not allowed": {
        "command": "setClientPassword",
        "username": "nobody",
        "password": "",
    },
    "Invalid/missing acls": {"command": "createRole", "rolename": "r", "acls": "x"},
    "Unknown acltype": {
        "command": "createRole",
        "rolename": "r",
        "acls": [{"acltype": "nope", "topic": "a"}],
    },
    "Invalid/missing topic": {
        "command": "modifyRole",
        "rolename": "admin",
        "acls": [{"acltype": "subscribeLiteral"}],
    },
    "Invalid ACL topic": {
        "command": "createRole",
        "rolename": "r",
        "acls": [acl("publishClientSend", "a/#/b")],
    },
    "Invalid/missing allow": {
        "command": "addRoleACL",
        "rolename": "admin",
        "acltype": "publishClientSend",
        "topic": "a",
        "allow": "yes",
    },
    "Invalid/missing priority": {
        "command": "addClientRole",
        "username": "joe",
        "rolename": "admin",
        "priority": 1e300,
    },
    "Invalid/missing textname": {"command": "modifyClient", "username": "joe", "textname": 5},
    "Invalid/missing password": {"command": "modifyClient", "username": "joe", "password": 5},
    "Password is too long": {
        "command": "setClientPassword",
        "username": "joe",
        "password": "x" * 1_025,
    },
    "Client is already in this role": {
        "command": "addClientRole",
        "username": "admin",
        "rolename": "admin",
    },
    "Group not found": {
        "command": "modifyClient",
        "username": "joe",
        "groups": [{"groupname": "zz"}],
    },
    "Client not found": {
        "command": "createGroup",
        "groupname": "g",
        "clients": [{"username": "zz"}],
    },
}


@pytest.mark.parametrize("error", BAD)
def test_a_command_that_mosquitto_does_in_part_is_refused(error: str) -> None:
    before = state(clients=[{"username": "joe"}])

    (response,), after = asked(before, BAD[error])

    assert response == {"command": BAD[error]["command"], "error": error}
    assert after is before


@pytest.mark.parametrize("topic", ["$share/g/a", "$share", "a/+b", "", "\ud800", "x" * 70_000])
def test_an_acl_about_no_filter_is_refused(topic: str) -> None:
    command = {
        "command": "addRoleACL",
        "rolename": "admin",
        "acltype": "subscribePattern",
        "topic": topic,
    }

    (response,), after = asked(before := state(), command)

    assert "error" in response
    assert after is before


@pytest.mark.parametrize(("word", "is_allowed"), [("allow", True), ("deny", False)])
def test_the_default_that_mosquitto_ctrl_sends_is_understood(
    word: str, *, is_allowed: bool
) -> None:
    acls = [{"acltype": "subscribe", "access": word}]

    _, after = asked(state(), {"command": "setDefaultACLAccess", "acls": acls})

    assert after.defaults["subscribe"] == is_allowed


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        ({"acltype": "subscribe", "access": "maybe"}, "Invalid/missing allow"),
        ({"acltype": "subscribe", "allow": 1}, "Invalid/missing allow"),
        ({"acltype": "subscribeLiteral", "allow": True}, "Unknown acltype"),
        ({"allow": True}, "Invalid/missing acltype"),
        (7, "Missing/invalid actions array"),
    ],
)
def test_a_default_that_makes_no_sense_is_refused(entry: object, error: str) -> None:
    good = {"acltype": "publishClientSend", "allow": True}

    (response,), after = asked(
        before := state(), {"command": "setDefaultACLAccess", "acls": [good, entry]}
    )

    assert response["error"] == error
    assert after is before


@pytest.mark.parametrize("key", ["command", "username", "correlationData", "other"])
def test_a_text_that_is_no_utf8_is_refused(key: str) -> None:
    command = {"command": "createClient", "username": "joe", key: "\ud800"}

    (response,), after = asked(before := state(), command)

    assert response["error"] == "Payload not valid JSON"
    assert after is before


def test_commands_of_one_request_follow_each_other_and_fail_alone() -> None:
    commands = [
        {"command": "createRole", "rolename": "r"},
        {"command": "createRole", "rolename": "r"},
        {"command": "createClient", "username": "joe", "roles": [{"rolename": "r"}]},
        {"command": "getClient", "username": "joe"},
    ]

    outcome = run(state(), json.dumps({"commands": commands}).encode(), iterations=ITERATIONS)

    assert ["error" in one for one in outcome.responses] == [False, True, False, False]
    assert outcome.state.clients["joe"].roles == {"r": -1}
    assert outcome.done == ["createRole rolename='r'", "createClient username='joe'"]


def test_a_deleted_role_and_group_are_nowhere_any_more() -> None:
    before = state(
        clients=[{"username": "joe", "roles": [{"rolename": "r"}]}],
        roles=[{"rolename": "r"}],
        groups=[
            {
                "groupname": "g",
                "roles": [{"rolename": "r"}],
                "clients": [{"username": "joe"}],
            }
        ],
        anonymousGroup="g",
    )

    _, after = asked(before, {"command": "deleteRole", "rolename": "r"})
    assert not after.clients["joe"].roles
    assert not after.groups["g"].roles
    _, after = asked(after, {"command": "deleteGroup", "groupname": "g"})
    assert (after.groups, after.anonymous_group) == ({}, None)
    _, after = asked(before, {"command": "deleteClient", "username": "joe"})
    assert not after.groups["g"].clients


def test_a_request_has_a_bounded_number_of_passwords() -> None:
    commands = [
        {"command": "createClient", "username": f"u{number}", "password": "x"}
        for number in range(PASSWORDS_MAX + 1)
    ]

    responses, after = asked(state(), *commands)

    assert len(after.clients) == PASSWORDS_MAX + 1
    assert responses[-1]["error"] == "More than 100 passwords in one request"


def test_no_password_is_in_a_line_for_the_log_or_a_repr() -> None:
    payload = json.dumps(
        {"commands": [{"command": "createClient", "username": "joe", "password": "secret"}]}
    ).encode()

    outcome = run(state(), payload, iterations=ITERATIONS)

    password = outcome.state.clients["joe"].password
    assert password is not None
    assert outcome.done == ["createClient username='joe'"]
    for secret in ("secret", password.hash, password.salt):
        assert secret not in repr(outcome)


NAMES = st.sampled_from(["a", "b", "é/#", "x" * 300, "", "\0"])
ODD: st.SearchStrategy[object] = st.sampled_from(
    [None, 0, -7, 2**31, 1.5, True, "text", [], {}, [7], "a/#"]
)
PRIORITY = st.integers(-(2**31) + 1, 2**31 - 1)
ENTRIES = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "rolename": NAMES,
            "groupname": NAMES,
            "username": NAMES,
            "priority": PRIORITY | ODD,
            "acltype": st.sampled_from([*get_args(AclType), "subscribe", "x"]),
            "topic": st.sampled_from(["a", "a/#", "a/#/b", "%u/%c", "$share/g/a", "$SYS/#", ""]),
            "allow": st.booleans() | ODD,
        },
    ),
    max_size=3,
)
COMMAND = st.fixed_dictionaries(
    {"command": st.sampled_from([name for name, _ in COMMANDS.values()])},
    optional={
        "username": NAMES,
        "rolename": NAMES,
        "groupname": NAMES,
        "clientid": NAMES | ODD,
        "password": st.sampled_from(["pw", "", 7]),
        "textname": NAMES | ODD,
        "textdescription": NAMES,
        "priority": PRIORITY | ODD,
        "acltype": st.sampled_from([*get_args(AclType), "subscribe", "x"]),
        "topic": st.sampled_from(["a", "a/#", "a/#/b", "%u/%c", "$share/g/a", "$SYS/#", ""]),
        "allow": st.booleans() | ODD,
        "roles": ENTRIES | ODD,
        "groups": ENTRIES | ODD,
        "clients": ENTRIES | ODD,
        "acls": ENTRIES | ODD,
        "count": ODD,
        "offset": ODD,
        "verbose": st.booleans() | ODD,
        "correlationData": NAMES | ODD,
    },
)


@settings(max_examples=200, deadline=None)
@given(commands=st.lists(COMMAND | ODD, max_size=12))
def test_whatever_is_asked_is_answered_and_leaves_a_file_that_can_be_read(
    commands: list[object],
) -> None:
    payload = json.dumps({"commands": commands}).encode()

    outcome = run(state(), payload, iterations=1)

    responses = json.loads(outcome.answer())["responses"]
    assert len(responses) == len(commands)
    assert state_of(text_of(outcome.state), "test") == outcome.state
    for user in outcome.state.clients:
        outcome.state.grant_for(user=user, client_id="c")
    outcome.state.grant_for(user=None, client_id="c")
    outcome.state.changed_users(state())
