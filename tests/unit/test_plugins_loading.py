"""`mqttcore.plugin.loading`: from a name to a plugin class."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from mqttcore._schema import Faults, Place
from mqttcore.auth.scram import Scram
from mqttcore.config import PluginUse
from mqttcore.plugin import Plugin
from mqttcore.plugin.loading import error_text, find_class, hint, load_plugin


class First(Plugin):
    """A plugin."""


class Second(Plugin):
    """Another one."""


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module with one plugin of its own, and one that it imports."""
    made = ModuleType("house_plugins")
    own = type("Own", (Plugin,), {"__module__": "house_plugins"})
    vars(made).update(Own=own, Scram=Scram, number=7)
    monkeypatch.setitem(sys.modules, "house_plugins", made)
    return made


def test_a_class_is_found_by_its_module_alone_or_with_its_name(module: ModuleType) -> None:
    assert find_class("house_plugins") is module.Own
    assert find_class("house_plugins:Own") is module.Own
    assert find_class("house_plugins:Scram") is Scram


@pytest.mark.parametrize("name", ["house_plugins:number", "house_plugins:Missing"])
@pytest.mark.usefixtures("module")
def test_what_is_no_plugin_class_is_named(name: str) -> None:
    with pytest.raises(LookupError) as caught:
        find_class(name)
    assert str(caught.value) == f"{name} is not a plugin class"


def test_a_module_with_none_or_several_has_to_be_told_which(module: ModuleType) -> None:
    other = type("Other", (Plugin,), {"__module__": "house_plugins"})
    vars(module)["Other"] = other
    with pytest.raises(LookupError) as caught:
        find_class("house_plugins")
    several = "name one of its plugins: house_plugins:Own, house_plugins:Other"
    assert str(caught.value) == several

    del module.Own, module.Other
    with pytest.raises(LookupError, match=r"^defines no plugin$"):
        find_class("house_plugins")


def test_an_installed_package_may_offer_a_plugin_by_a_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[dict[str, str]] = []
    offered: object = First

    def entry_points(**selected: str) -> list[Any]:
        found.append(selected)
        return [SimpleNamespace(load=lambda: offered)]

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)

    assert find_class("house") is First
    assert found == [{"group": "mqttcore.plugins", "name": "house"}]
    offered = 7
    with pytest.raises(LookupError, match=r"^house is not a plugin class$"):
        find_class("house")


def test_a_fault_without_a_text_is_reported_by_its_type() -> None:
    assert error_text(OSError("no database")) == "OSError: no database"
    assert error_text(TimeoutError()) == "TimeoutError"


@pytest.mark.parametrize("name", ["mqttcore.auth.password_file", "mqttcore.auth.scram"])
def test_a_name_that_was_probably_meant_is_reported(name: str) -> None:
    assert hint(name[:-1]) == f'did you mean "{name}"?'


def test_a_plugin_that_cannot_be_made_is_a_fault_at_its_place(module: ModuleType) -> None:
    def broken(_self: Plugin, _config: object) -> None:
        raise OSError("no database")

    module.Own.__init__ = broken
    faults = Faults()

    assert load_plugin(PluginUse(use="house_plugins", place=Place("f", 3, 7)), 2, faults) is None

    assert faults.lines() == ["f:3:7: plugins[2]: 'house_plugins': OSError: no database"]
