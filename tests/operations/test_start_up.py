"""What the short commands load: modules are counted, not milliseconds."""

from __future__ import annotations

import subprocess
import sys

import pytest
from mqttcore import plugin

HEAVY = {
    *("mqttcore._core", "mqttcore._schema", "mqttcore.broker", "mqttcore.config"),
    *("mqttcore.plugin", "asyncio", "dataclasses", "email", "http.client", "inspect"),
    *("logging", "pyarrow", "ssl", "tomllib", "typing_extensions", "importlib.metadata"),
}

PUB_MODULES = 95
"""The most modules of `mqttcore pub`: 85 in Python 3.11, those of the interpreter included."""

PROGRAM = """
import sys
from mqttcore.cli import main
sys.argv = ["mqttcore", *{arguments!r}]
try:
    main()
except SystemExit:
    pass
print(*sys.modules, file=sys.stderr)
"""


def printed(program: str) -> set[str]:
    """The words that a Python program prints."""
    done = subprocess.run(  # noqa: S603 -- our own program
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def loaded(*arguments: str) -> set[str]:
    """The modules that a command has loaded when it ends."""
    program = PROGRAM.format(arguments=arguments)
    done = subprocess.run(  # noqa: S603 -- our own program
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("healthcheck", "--help"),
        ("healthcheck", "--url", "http://127.0.0.1:1"),
        ("healthcheck", "--data", "/nonexistent"),
    ],
)
def test_a_short_command_loads_no_heavy_module(arguments: tuple[str, ...]) -> None:
    found = loaded(*arguments)

    assert found & HEAVY == set()
    assert len({name for name in found if name.startswith("mqttcore")}) <= 4


def test_pub_loads_no_server() -> None:
    """One message is to take less than 90 ms."""
    found = loaded("pub", "-p", "1", "-t", "a", "-m", "x", "--quiet")

    server = {"mqttcore.broker", "mqttcore.config", "mqttcore.plugin", "mqttcore._schema"}
    slow = {
        *("asyncio", "dataclasses", "email", "encodings.idna", "http.client", "inspect"),
        *("json", "logging", "shutil", "ssl", "urllib.parse"),
    }
    assert found & (server | slow) == set()
    assert len({name for name in found if name.startswith("mqttcore")}) <= 13
    assert len(found) <= PUB_MODULES, sorted(found)


def test_a_plain_start_loads_nothing_that_it_does_not_need() -> None:
    program = (
        "import sys\n"
        "from mqttcore import _serve_options, logs, server\n"
        "options = _serve_options.read_options(['--listen', '127.0.0.1:0'])\n"
        "logs.configure('info', server.Settings().log)\n"
        "with server.Broker(server.origin_of(options)) as broker:\n"
        "    server.banner(broker, has_file=False)\n"
        "    print(*sys.modules)\n"
    )

    found = printed(program)
    slow = {
        *("argparse", "asyncio", "dataclasses", "datetime", "gettext", "inspect", "json"),
        *("logging", "selectors", "shutil", "socket"),
    }
    plugins = {f"mqttcore.plugin.{name}" for name in ("answers", "base", "chain", "hooks", "host")}
    unused = {"mqttcore.control", "mqttcore.config.effective", "mqttcore.streams.info"}
    assert found & (slow | plugins | unused) == set()


def test_a_start_with_a_built_in_plugin_reads_no_entry_points() -> None:
    program = (
        "import sys\n"
        "from mqttcore import Broker, Settings\n"
        "from mqttcore.config import Listener, PluginUse\n"
        "plugins = (PluginUse(use='mqttcore.auth.anonymous'),)\n"
        "with Broker(Settings(listeners=(Listener(address='127.0.0.1:0'),), plugins=plugins)):\n"
        "    print(*sys.modules)\n"
    )

    found = printed(program)
    assert "mqttcore.auth.anonymous" in found
    assert found & {"importlib.metadata", "email", "zipfile"} == set()


@pytest.mark.parametrize("module", ["mqttcore", "mqttcore.cli"])
def test_the_command_is_a_module_too(module: str) -> None:
    done = subprocess.run(  # noqa: S603 -- our own program
        [sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True
    )

    assert done.stdout.startswith("mqttcore 0.")


def test_each_name_for_plugins_is_there_when_it_is_used() -> None:
    assert {name: getattr(plugin, name).__name__ for name in plugin.__all__} == {
        name: "DisconnectClient" if name == "Disconnect" else name for name in plugin.__all__
    }
    assert set(plugin.__all__) <= set(dir(plugin))
    assert not hasattr(plugin, "nothing")


def test_each_name_of_the_package_is_there_when_it_is_used() -> None:
    program = (
        "import mqttcore\n"
        "assert 'mqttcore._core' not in __import__('sys').modules\n"
        "assert set(mqttcore.__all__) <= set(dir(mqttcore))\n"
        "print(*(getattr(mqttcore, name) is not None for name in mqttcore.__all__))\n"
        "assert mqttcore.config.Settings is mqttcore.Settings\n"
        "assert not hasattr(mqttcore, 'nothing')\n"
    )

    done = subprocess.run(  # noqa: S603 -- our own program
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert (done.stderr, set(done.stdout.split())) == ("", {"True"})
