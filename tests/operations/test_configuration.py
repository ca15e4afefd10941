"""The configuration over the HTTP API: where each key comes from, check and reload."""

from __future__ import annotations

import http.client
import json
import pathlib
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from mqttcore import Broker, Settings, _core
from mqttcore._core import hash_password
from mqttcore.config import HttpListener, Listener, Origin, load
from mqttcore.risks import find_risks

from tests.eventually import eventually
from tests.operations.api import Api

pytestmark = pytest.mark.skipif(not _core.has_streams, reason="this build has no HTTP endpoint")

TEXT = """\
data = "data"
shards = 1
sys_interval_s = 0
[http]
[limits]
connections = 100
[[listeners]]
name = "main"
address = "127.0.0.1:0"
anonymous = true
"""


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "mqttcore.toml"
    path.write_text(TEXT)
    return path


@pytest.fixture
def api(file: pathlib.Path) -> Iterator[Api]:
    environment = {"MQTTCORE__LIMITS__CONNECT_PACKET_BYTES": "4096"}
    with Broker(Origin(path=file, environment=environment, log_level="warning")):
        yield Api(file.parent / "data")


def config(api: Api) -> dict[str, tuple[Any, str]]:
    status, answer = api.ask("GET", "/config")
    assert status == 200, answer
    return {item["key"]: (item["value"], item["source"]) for item in answer["items"]}


def test_each_key_has_a_value_and_a_source(api: Api, file: pathlib.Path) -> None:
    found = config(api)

    assert found["limits.connections"] == (100, f"{file}:6:15")
    assert found["limits.connect_packet_bytes"] == (
        4_096,
        "MQTTCORE__LIMITS__CONNECT_PACKET_BYTES",
    )
    assert found["log_level"] == ("warning", "--log-level")
    assert found["listeners[0].name"] == ("main", f"{file}:8:8")
    assert found["listeners[0].max_connections"] == (0, "default")
    assert found["http.token_file"] == (None, "default")


def test_a_reload_takes_the_file_into_force_as_sighup_does(api: Api, file: pathlib.Path) -> None:
    file.write_text(TEXT.replace("100", "50").replace("shards = 1", "shards = 2"))

    answer = api.ask("POST", "/reload")

    assert answer == (200, {"changed": ["limits.connections"], "needs_restart": ["shards"]})
    assert config(api)["limits.connections"][0] == 50
    [line] = (api.folder / "audit").glob("*")
    assert [json.loads(text)["action"] for text in line.read_text().splitlines()] == [
        "POST /reload"
    ]


def test_a_wrong_file_changes_nothing(api: Api, file: pathlib.Path) -> None:
    file.write_text(TEXT.replace("100", "-1"))

    status, problem = api.ask("POST", "/reload")

    assert status == 409
    assert f"{file}:6:15: limits.connections" in problem["detail"]
    assert config(api)["limits.connections"][0] == 100


def test_a_configuration_is_checked_and_nothing_changes(api: Api, file: pathlib.Path) -> None:
    unchanged: dict[str, list[str]] = {
        "errors": [],
        "warnings": [],
        "changed": [],
        "needs_restart": [],
    }
    assert api.ask("POST", "/config/check", {}) == (200, unchanged)
    status, answer = api.ask("POST", "/config/check", {"text": 'shards = "x"\nlimit = 3\n'})

    assert status == 200
    places = [(error["file"], error["line"], error["column"]) for error in answer["errors"]]
    assert places == [(str(file), 1, 10), (str(file), 2, 1)]
    assert answer["errors"][0]["text"].startswith("shards: ")
    assert config(api)["shards"][0] == 1


def test_a_check_says_what_a_reload_would_change(api: Api, file: pathlib.Path) -> None:
    text = TEXT.replace("100", "50").replace("shards = 1", "shards = 2")
    text += '[[listeners]]\nname = "second"\naddress = "127.0.0.1:0"\nanonymous = true\n'
    expected = {
        "changed": ["limits.connections"],
        "needs_restart": ["shards", "listener second: new"],
    }

    status, answer = api.ask("POST", "/config/check", {"text": text})

    assert (status, answer) == (200, {"errors": [], "warnings": [], **expected})
    assert config(api)["limits.connections"][0] == 100
    file.write_text(text)
    assert api.ask("POST", "/reload") == (200, expected)


def test_an_error_without_a_place_has_a_text_alone(api: Api) -> None:
    text = TEXT.replace(
        "anonymous = true", 'anonymous = true\ntls = { certificate = "a", key = "b" }'
    )

    _, answer = api.ask("POST", "/config/check", {"text": text})

    [error] = answer["errors"]
    assert (error["file"], error["line"], error["column"]) == (None, None, None)
    assert "certificate" in error["text"]


def warnings(api: Api) -> list[dict[str, str]]:
    status, answer = api.ask("GET", "/overview")
    assert status == 200, answer
    return list(answer["warnings"])


def test_the_risks_that_doctor_prints_are_warnings_of_a_running_broker(
    api: Api, file: pathlib.Path
) -> None:
    def found() -> set[str]:
        return {f"{item['code']}: {item['text']}: {item['fix']}" for item in warnings(api)}

    file.write_text(TEXT.replace("127.0.0.1:0", "0.0.0.0:0") + "insecure = true\n")

    assert api.ask("POST", "/reload")[0] == 200
    eventually(lambda: any(text.startswith("listener: ") for text in found()))
    # Figures of a disk may have changed since.
    lasting = {"listener", "limits", "process"}
    risks = [risk for risk in find_risks(load(file)) if risk.subject in lasting]
    printed = {f"{risk.subject}: {risk.what}: {risk.remedy}" for risk in risks}

    assert sum("listener main: clients without a login" in text for text in printed) == 1
    assert sum("listener main: passwords and messages are not" in text for text in printed) == 1
    assert printed <= found()

    file.write_text(TEXT)
    api.ask("POST", "/reload")
    eventually(lambda: not any(text.startswith("listener: ") for text in found()))


def test_only_admin_sees_in_which_folder_a_file_at_risk_is(tmp_path: pathlib.Path) -> None:
    passwords = tmp_path / "passwords"
    passwords.write_text(f"ann:{hash_password(b'secret', salt=bytes(16))}\n")
    passwords.chmod(0o644)
    file = tmp_path / "mqttcore.toml"
    plugin = """
[[plugins]]
use = "mqttcore.auth.password_file"
[plugins.config]
path = "passwords"
publish = ["#"]
"""
    endpoint = '[http]\naddress = "127.0.0.1:0"\nkeys_file = "keys.toml"\n'
    file.write_text(TEXT.replace("[http]\n", endpoint) + plugin)
    what = "plugin mqttcore.auth.password_file: path: any user may read {} (mode 0644)"

    with Broker(Origin(path=file, environment={}, log_level="warning")) as broker:
        api = Api(tmp_path / "data")

        def seen_with(*scopes: str) -> list[str]:
            key = {"name": " ".join(scopes), "scopes": scopes}
            _, made = api.ask("POST", "/keys", key)
            answer = ask_with(broker, made["secret"], "/api/v1/overview")
            return [one["text"] for one in answer["warnings"] if one["code"] == "files"]

        eventually(lambda: any(one["code"] == "files" for one in warnings(api)))

        assert seen_with("view", "admin") == [what.format(passwords)]
        assert seen_with("view", "payload", "operate") == [what.format("passwords")]


def ask_with(broker: Broker, secret: str, path: str) -> Any:  # noqa: ANN401 - JSON
    assert broker.http_address is not None
    with closing(http.client.HTTPConnection(*broker.http_address, timeout=30)) as connection:
        connection.request("GET", path, headers={"Authorization": f"Bearer {secret}"})
        answer = connection.getresponse()
        assert answer.status == 200
        return json.load(answer)


def test_settings_of_a_program_are_not_read_again(tmp_path: pathlib.Path) -> None:
    listener = Listener(address="127.0.0.1:0", name="main", anonymous=True)
    folder = tmp_path / "data"
    settings = Settings(listeners=(listener,), http=HttpListener(), data=str(folder))
    with Broker(settings):
        api = Api(folder)

        assert config(api)["listeners[0].name"] == ("main", "default")
        status, problem = api.ask("POST", "/reload")

    assert status == 409
    assert "has to reload them" in problem["detail"]


def test_a_backup_is_a_job(api: Api, tmp_path: pathlib.Path) -> None:
    to = tmp_path / "copy"
    status, job = api.ask("POST", "/store/backup", {"to": str(to)})
    assert (status, job["state"], job["target"]) == (202, "running", str(to))

    eventually(lambda: api.ask("GET", f"/jobs/{job['id']}")[1]["state"] == "done")

    _, done = api.ask("GET", f"/jobs/{job['id']}")
    assert done["done"] == done["total"] > 0
    assert (done["rate"], done["eta_s"]) == (None, None)
    assert done["ended_ms"] >= done["started_ms"]
    with Broker(Settings(listeners=(Listener(address="127.0.0.1:0"),), data=str(to))) as copy:
        assert copy.clients() == []


def test_a_checkpoint_is_a_job(api: Api) -> None:
    def checkpoints() -> int:
        return int(api.ask("GET", "/store")[1]["figures"]["checkpoints"])

    before = checkpoints()
    status, job = api.ask("POST", "/store/checkpoint")
    assert (status, job["kind"], job["target"]) == (202, "checkpoint", None)

    eventually(lambda: api.ask("GET", f"/jobs/{job['id']}")[1]["state"] == "done")

    assert checkpoints() == before + 1


def test_a_backup_that_fails_says_why(api: Api, tmp_path: pathlib.Path) -> None:
    to = tmp_path / "taken"
    to.mkdir()
    (to / "file").write_text("")

    _, job = api.ask("POST", "/store/backup", {"to": str(to)})
    eventually(lambda: api.ask("GET", f"/jobs/{job['id']}")[1]["state"] == "failed")

    assert str(to) in api.ask("GET", f"/jobs/{job['id']}")[1]["error"]
    assert api.ask("POST", "/store/backup", {"to": "relative"})[0] == 400
    assert api.ask("GET", "/jobs/99")[0] == 404
