"""The file of dynamic security: what is refused, with its line, and how it is replaced."""

import json
import pathlib
import stat

import pytest
from mqttcore.auth.dynsec_file import DEFAULTS, StateFile, state_of, text_of
from mqttcore.errors import DynsecFileError

from tests.dynsec import PBKDF2, initial

GOOD = """{
  "defaultACLAccess": {"publishClientSend": false},
  "roles": [
    {"rolename": "r",
     "acls": [{"acltype": "publishClientSend", "topic": "a/#", "allow": true}]}],
  "clients": [
    {"username": "joe",
     "roles": [{"rolename": "r", "priority": 2}]}],
  "groups": [
    {"groupname": "g", "clients": [{"username": "joe"}],
     "roles": []}]
}
"""
BAD = {
    '"roles": [\n': (3, "roles must be a list", '"roles": 7, "x": ['),
    '"rolename": "r",\n': (4, "rolename is missing or empty", '"rolename": "",'),
    '"publishClientSend", "t': (5, "acltype is 'x': one of", '"x", "t'),
    '"a/#"': (5, "topic is no topic filter", '"a/#/b"'),
    '"topic": "a/#"': (5, "topic is missing or empty", '"other": "a"'),
    '"allow": true': (5, "allow must be true or false", '"allow": 1'),
    '"topic": "a/#",': (5, "without $share/GROUP/", '"topic": "$share/g/a",'),
    '"username": "joe",\n': (7, "password, salt and iterations", '"username": "joe", "salt": "x",'),
    '{"rolename": "r", "priority": 2}': (8, "there is no rolename 'zz'", '{"rolename": "zz"}'),
    '"priority": 2': (8, "priority must be an integer", '"priority": "high"'),
    "2}": (8, "priority is out of range", f"{2**31}" + "}"),
    '"roles": [{"rolename": "r",': (
        8,
        "unknown key 'role'",
        '"role": 1, "roles": [{"rolename": "r",',
    ),
    '{"groupname": "g", ': (10, "groupname is missing", '{"groupname": null, '),
    '[{"username": "joe"}],': (10, "there is no username 'ann'", '[{"username": "ann"}],'),
    '{"username": "joe"}]': (10, "is there twice", '{"username": "joe"}, {"username": "joe"}]'),
    '"roles": []}]\n': (11, "an object is expected", '"roles": [7]}]'),
    '  "groups"': (9, "there is no groupname 'zz'", '  "anonymousGroup": "zz", "groups"'),
    '"publishClientSend": false': (2, "unknown key 'other'", '"other": false'),
    '"groups": [': (9, "no JSON", '"groups" ['),
}


def test_a_file_of_mosquitto_is_read() -> None:
    state = state_of(json.dumps(initial()), "test")

    password = state.clients["admin"].password
    assert password is not None
    assert (password.hash, password.iterations) == (PBKDF2["password"], 101)
    assert state.clients["admin"].texts.name == "Dynsec admin user"
    assert state.roles["admin"].acls[0].topic == "$CONTROL/dynamic-security/#"


def test_a_file_without_anything_has_the_defaults_of_mosquitto() -> None:
    state = state_of("{}", "test")

    assert (state.defaults, state.clients) == (DEFAULTS, {})


@pytest.mark.parametrize("place", BAD)
def test_a_fault_is_refused_with_its_line(place: str) -> None:
    line, fault, text = BAD[place]
    assert GOOD.count(place) == 1
    state_of(GOOD, "test")

    with pytest.raises(DynsecFileError) as caught:
        state_of(GOOD.replace(place, text + "\n" * place.count("\n")), "dynsec.json")

    found = str(caught.value).splitlines()
    assert any(one.startswith(f"dynsec.json:{line}: ") and fault in one for one in found), found


@pytest.mark.parametrize(
    "text",
    ["", "[]", "7", "null", '{"roles": [], "Roles": []}', '{"roles": NaN}', "[" * 100_000],
)
def test_a_text_that_is_no_such_file_is_refused(text: str) -> None:
    with pytest.raises(DynsecFileError, match=r"^f(:1)?: "):
        state_of(text, "f")


def test_a_text_that_cannot_be_written_again_is_refused() -> None:
    with pytest.raises(DynsecFileError, match="f:1: textname is no UTF-8"):
        state_of('{"clients": [{"username": "joe", "textname": "\\ud800"}]}', "f")


def test_a_file_that_is_not_there_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(DynsecFileError, match=r"none.json: cannot be read"):
        StateFile(tmp_path / "none.json").read()


def test_a_file_is_replaced_and_private(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "dynsec.json"
    path.write_text(GOOD)
    path.chmod(0o644)
    file = StateFile(path)
    state = file.read()

    file.write(state)
    file.write(state)

    assert state_of(path.read_text(), "test") == state
    assert path.read_text() == text_of(state)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [found.name for found in tmp_path.iterdir()] == ["dynsec.json"]


def test_a_file_that_somebody_else_has_changed_is_not_replaced(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "dynsec.json"
    path.write_text(GOOD)
    file = StateFile(path)
    state = file.read()
    path.write_text("{}\n")

    with pytest.raises(DynsecFileError, match="was changed outside: reload the broker first"):
        file.write(state)

    assert path.read_text() == "{}\n"
