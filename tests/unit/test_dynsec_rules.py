"""Rights of dynamic security: the grant beside an oracle that reads the file rule by rule."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqttcore.auth.dynsec_file import state_of
from mqttcore.errors import MqttError
from mqttcore.plugin import Grant, OrderedRules
from mqttcore.testing import allows

from tests.dynsec import acl

Json = dict[str, Any]  # Any: whatever the file has

KINDS = {
    "publish": ["publishClientSend"],
    "receive": ["publishClientReceive"],
    "subscribe": ["subscribeLiteral", "subscribePattern"],
    "unsubscribe": ["unsubscribeLiteral", "unsubscribePattern"],
}
DEFAULTS = {"publish": "publishClientSend", "receive": "publishClientReceive"}

FILTERS = (
    *("#", "a/#", "a/+", "a/b", "+/b", "a", "+", "$SYS/#", "$SYS/a", "a/b/#", "a/+/c", "+/#"),
    *("$CONTROL/#", "$CONTROL/x/v1", "a/%c", "%u/#", "%u/%c", "a//b", "+/+", "$mine/#"),
)
TOPICS = (
    *("a", "a/b", "a/b/c", "b", "$SYS/a", "$mine/a", "$CONTROL/x/v1", "a//b", "a/c1", "joe/x"),
    *("joe/c1", "ann/c1", "%u/x", "$SYS"),
)
ASKED = (*TOPICS, "#", "a/#", "a/+", "+/b", "$SYS/#", "$CONTROL/#", "+/#", "joe/#", "+/+")

# The oracle: levels of texts, compared one by one, as Mosquitto 2.0.11 was seen to compare them.


def fits(rule: str, text: str, *, is_topic: bool) -> bool:
    """Whether a filter matches a topic, or covers a filter."""
    if is_topic and text.startswith("$") and rule[0] in "+#":
        return False
    wanted, found = rule.split("/"), text.split("/")
    for index, level in enumerate(wanted):
        if level == "#":
            return True
        if index >= len(found) or found[index] == "#":
            # what follows must be nothing, and "+/#" covers "#"
            return index < len(found) and index == 0 and wanted[:2] == ["+", "#"]
        if level not in ("+", found[index]):
            return False
    rest = len(wanted) - len(found)
    return rest == 0


def decides(rule: Json, action: str, text: str, names: dict[str, str]) -> bool:
    """Whether an ACL is about this; one whose name would change its shape is not considered."""
    topic = rule["topic"].replace("%u", names["user"]).replace("%c", names["client"])
    if rule["acltype"].endswith("Literal"):
        return bool(topic == text)
    is_topic = action in DEFAULTS
    if fits(topic, text, is_topic=is_topic):
        return True
    # "a/#" is about "a" itself, too
    return topic.endswith("/#") and fits(topic[:-2], text, is_topic=is_topic)


def ordered(entries: list[Json], name: str) -> list[Json]:
    """By priority, then by name."""
    return sorted(entries, key=lambda one: (-one.get("priority", -1), one[name]))


def roles_of(file: Json, user: str | None) -> Iterator[Json]:
    """The roles of a client in their order."""
    roles = {role["rolename"]: role for role in file["roles"]}
    if user is None:
        chosen = [one for one in file["groups"] if one["groupname"] == file.get("anonymousGroup")]
        entries = [chosen[0]["roles"]] if chosen else []
    else:
        (client,) = (one for one in file["clients"] if one["username"] == user)
        memberships = [
            {**member, "group": group, "groupname": group["groupname"]}
            for group in file["groups"]
            for member in group["clients"]
            if member["username"] == user
        ]
        entries = [client["roles"]]
        entries += [one["group"]["roles"] for one in ordered(memberships, "groupname")]
    for list_of_roles in entries:
        for entry in ordered(list_of_roles, "rolename"):
            yield roles[entry["rolename"]]


def oracle(file: Json, action: str, text: str, user: str | None, client: str) -> bool:
    """Whether Mosquitto allows this."""
    if action == "publish" and (text == "$SYS" or text.startswith("$SYS/")):
        return False
    for role in roles_of(file, user):
        for kind in KINDS[action]:
            acls = [one for one in role["acls"] if one["acltype"] == kind]
            for rule in sorted(acls, key=lambda one: -one["priority"]):
                if decides(rule, action, text, {"user": user or "", "client": client}):
                    return bool(rule["allow"])
    is_default = file["defaultACLAccess"][DEFAULTS.get(action, action)]
    return bool(is_default) and not text.startswith("$CONTROL")


PRIORITIES = st.integers(-2, 2)
MARKS = ("%u", "%c")


@st.composite
def files(draw: st.DrawFn) -> Json:
    """Files with up to three roles, two groups and two clients."""
    names = ["r1", "r2", "r3"]
    acls = st.lists(
        st.builds(
            lambda kind, topic, allow, priority: acl(kind, topic, allow=allow, priority=priority),
            st.sampled_from([kind for kinds in KINDS.values() for kind in kinds]),
            st.sampled_from(FILTERS),
            st.booleans(),
            PRIORITIES,
        ),
        max_size=6,
        unique_by=lambda one: (one["acltype"], one["topic"]),
    )

    def entries(key: str, values: list[str]) -> list[Json]:
        chosen = draw(st.lists(st.sampled_from(values), unique=True))
        return [
            {key: one, "priority": draw(PRIORITIES)} if draw(st.booleans()) else {key: one}
            for one in chosen
        ]

    groups = [
        {
            "groupname": group,
            "roles": entries("rolename", names),
            "clients": entries("username", ["joe", "ann"]),
        }
        for group in ("g1", "g2")
    ]
    file = {
        "defaultACLAccess": {
            kind: draw(st.booleans())
            for kind in ("publishClientSend", "publishClientReceive", "subscribe", "unsubscribe")
        },
        "roles": [{"rolename": name, "acls": draw(acls)} for name in names],
        "clients": [
            {"username": name, "roles": entries("rolename", names)} for name in ("joe", "ann")
        ],
        "groups": groups,
    }
    if draw(st.booleans()):
        file["anonymousGroup"] = draw(st.sampled_from(["g1", "g2"]))
    return file


@settings(max_examples=150, deadline=None)
@given(file=files(), user=st.sampled_from(["joe", "ann"]), client=st.sampled_from(["c1", "b"]))
def test_rights_are_those_of_the_oracle(file: Json, user: str, client: str) -> None:
    grant = state_of(json.dumps(file), "test").grant_for(user=user, client_id=client)

    for action in KINDS:
        for text in TOPICS if action in DEFAULTS else ASKED:
            if action == "publish" and text.startswith("$CONTROL"):
                continue  # closed without a plugin that answers; `test_dynamic_security` has it
            found = allows(grant, action, text)  # type: ignore[arg-type] # mypy joins no literals
            assert found == oracle(file, action, text, user, client), (action, text)


@settings(max_examples=50, deadline=None)
@given(file=files())
def test_clients_without_user_name_have_the_rights_of_the_anonymous_group(file: Json) -> None:
    for role in file["roles"]:  # without a user name `%u` is no text that could be compared
        role["acls"] = [one for one in role["acls"] if "%u" not in one["topic"]]
    grant = state_of(json.dumps(file), "test").grant_for(user=None, client_id="c1")

    for action in KINDS:
        for text in TOPICS:
            if action == "publish" and text.startswith("$CONTROL"):
                continue
            found = allows(grant, action, text)  # type: ignore[arg-type] # as above
            assert found == oracle(file, action, text, None, "c1"), (action, text)


SEEN = {
    "#": "# a/# a/+ a/b +/b a + $SYS/# $SYS/a a/b/c a/b/# a/+/c +/# / /a a//b +/+",
    "+/#": "# a/# a/+ a/b +/b a + $SYS/# $SYS/a a/b/c a/b/# a/+/c +/# / /a a//b +/+",
    "a/#": "a/# a/+ a/b a a/b/c a/b/# a/+/c a//b",
    "a/+": "a/+ a/b",
    "a/b": "a/b",
    "+/b": "a/b +/b",
    "a/+/c": "a/b/c a/+/c",
    "+": "a +",
    "a": "a",
    "$SYS/#": "$SYS/# $SYS/a",
    "$SYS/a": "$SYS/a",
    "a/b/#": "a/b a/b/c a/b/#",
    "+/+": "a/+ a/b +/b $SYS/a / /a +/+",
    "/": "/",
    "a//b": "a//b",
}
"""Of each `subscribePattern`, the filters that Mosquitto 2.0.11 lets a client subscribe to."""


@pytest.mark.parametrize("rule", SEEN)
def test_a_pattern_covers_what_it_covers_in_mosquitto(rule: str) -> None:
    grant = Grant(ordered=OrderedRules(subscribe=[("allow", rule)]))

    covered = [one for one in SEEN["#"].split() if allows(grant, "subscribe", one)]

    assert covered == SEEN[rule].split()


@pytest.mark.parametrize("name", ["+", "#", "a/b", ""])
def test_a_name_that_would_change_a_rule_gives_no_rights_and_takes_none_too_few(name: str) -> None:
    kinds = ("publishClientSend", "subscribeLiteral", "subscribePattern")
    file = {
        "roles": [
            {"rolename": "may", "acls": [acl(kind, "in/%c/x") for kind in kinds]},
            {"rolename": "not", "acls": [acl(kind, "no/%c/x", allow=False) for kind in kinds]},
            {"rolename": "all", "acls": [acl(kind, "no/#") for kind in kinds]},
        ],
        "clients": [
            {
                "username": "joe",
                "roles": [
                    {"rolename": "may", "priority": 2},
                    {"rolename": "not", "priority": 1},
                    {"rolename": "all"},
                ],
            }
        ],
    }

    grant = state_of(json.dumps(file), "test").grant_for(user="joe", client_id=name)

    for topic in ("in/a/x", "in/a/b/x", "no/a/x", "no/a/b/x"):
        assert not allows(grant, "publish", topic)
        assert not allows(grant, "subscribe", topic)
    assert not allows(grant, "subscribe", "in/+/x")


def first_answer(roles: list[Json], acls: dict[str, list[Json]], action: str, topic: str) -> bool:
    """What the first of these roles says that says anything."""
    file = {
        "roles": [{"rolename": name, "acls": rules} for name, rules in acls.items()],
        "clients": [{"username": "joe", "roles": roles}],
    }
    grant = state_of(json.dumps(file), "test").grant_for(user="joe", client_id="c1")
    return allows(grant, action, topic)  # type: ignore[arg-type] # as above


def test_of_two_roles_with_one_priority_the_first_in_the_alphabet_counts() -> None:
    yes, no = [acl("publishClientSend", "t")], [acl("publishClientSend", "t", allow=False)]
    for roles in (["a", "b"], ["b", "a"]):
        listed = [{"rolename": name} for name in roles]
        assert first_answer(listed, {"a": yes, "b": no}, "publish", "t")
        assert not first_answer(listed, {"a": no, "b": yes}, "publish", "t")


@pytest.mark.parametrize("allow", [True, False])
@pytest.mark.parametrize("action", ["subscribe", "unsubscribe"])
def test_literal_filters_of_a_role_come_before_its_patterns(action: str, *, allow: bool) -> None:
    rules = [
        acl(f"{action}Pattern", "t/#", allow=not allow, priority=9),
        acl(f"{action}Literal", "t/a", allow=allow, priority=-9),
    ]

    assert first_answer([{"rolename": "r"}], {"r": rules}, action, "t/a") == allow
    assert first_answer([{"rolename": "r"}], {"r": rules}, action, "t/b") != allow


@pytest.mark.parametrize(
    ("rules", "fault"),
    [
        ({"publish": [("may", "a")]}, "a rule of publish is 'may': one of allow, deny"),
        ({"unsubscribe": [("allow", "a#")]}, "MQTT-4.7.1-1"),
    ],
)
def test_wrong_ordered_rules_are_refused(rules: dict[str, Any], fault: str) -> None:
    with pytest.raises((ValueError, MqttError), match=fault):
        OrderedRules(**rules)


@pytest.mark.parametrize("others", [{"publish": ["a"]}, {"subscribe": ["a"]}, {"access_list": []}])
def test_ordered_rules_replace_all_others(others: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="ordered replaces publish, subscribe and access_list"):
        Grant(ordered=OrderedRules(), **others)


def test_deny_of_the_grant_beats_ordered_rules() -> None:
    grant = Grant(ordered=OrderedRules(publish=[("allow", "#")]), deny=["a"])

    assert allows(grant, "publish", "b")
    assert not allows(grant, "publish", "a")
