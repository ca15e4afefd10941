"""Loads plugins by ``use = "..."``: imports the class and validates its configuration."""

import importlib
from collections.abc import Sequence
from types import ModuleType

from mqttcore._schema import Faults, did_you_mean, read_record
from mqttcore.config import PluginUse, Settings
from mqttcore.config.checks import raise_faults
from mqttcore.plugin.base import Plugin
from mqttcore.plugin.bound_hook import UNASKED

ENTRY_POINTS = "mqttcore.plugins"
OWN = "mqttcore.auth."
"""How names of built-in plugins begin; no entry point takes their place."""
BUILT_IN = (
    "anonymous",
    "certificate",
    "dynamic_security",
    "http",
    "jwt",
    "ldap",
    "password_file",
    "redis",
    "scram",
    "sql",
    "users",
)
"""Modules of `mqttcore.auth` with a plugin."""


def load_plugins(settings: Settings) -> list[Plugin]:
    """Makes all plugins of the settings, in their order; starts none.

    Raises:
        ConfigError: with everything that is wrong in any of them.
    """
    faults = Faults()
    made = [load_plugin(use, index, faults) for index, use in enumerate(settings.plugins)]
    raise_faults(faults)
    return [plugin for plugin in made if plugin is not None]


def load_plugin(use: PluginUse, index: int, faults: Faults) -> Plugin | None:
    """Makes one plugin; faults are added to ``faults``."""
    key = f"plugins[{index}]"
    place = use.place
    try:
        kind = find_class(use.use)
    except Exception as error:  # a module that is imported may raise anything
        faults.add(place, f"{key}.use", f"{use.use!r}: {error_text(error)}", hint(use.use))
        return None
    points = {mark.point for mark in kind.hooks.values()}
    if use.on_error == "skip" and not points <= UNASKED:
        faults.add(
            place,
            f"{key}.on_error",
            f"{use.use!r} decides what clients may do: the broker does not start without it",
            'allowed: "stop"',
        )
    config = read_record(kind.Config, use.table.entry, key=f"{key}.config", faults=faults)
    if config is None:
        return None
    try:
        return kind(config)
    except Exception as error:  # the plugin's own code
        faults.add(place, key, f"{use.use!r}: {error_text(error)}")
        return None


def error_text(error: Exception) -> str:
    """The error in one line."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def hint(name: str) -> str:
    """Suggests the name that was probably meant."""
    return did_you_mean(name, [f"mqttcore.auth.{plugin}" for plugin in BUILT_IN])


def find_class(name: str) -> type[Plugin]:
    """The plugin class behind a name.

    Raises:
        LookupError: there is none, or more than one.
        ImportError: the module cannot be imported.
    """
    if not name.startswith(OWN):
        from importlib.metadata import entry_points  # loads a hundred modules

        for entry_point in entry_points(group=ENTRY_POINTS, name=name):
            return as_plugin(entry_point.load(), name)
    module_name, colon, class_name = name.partition(":")
    module = importlib.import_module(module_name)
    if colon:
        return as_plugin(getattr(module, class_name, None), name)
    return only_class(classes_of(module), name)


def classes_of(module: ModuleType) -> list[type[Plugin]]:
    """The plugin classes that a module defines itself."""
    return [
        member
        for member in vars(module).values()
        if isinstance(member, type)
        and issubclass(member, Plugin)
        and member.__module__ == module.__name__
    ]


def only_class(classes: Sequence[type[Plugin]], name: str) -> type[Plugin]:
    """The one class of a module."""
    if len(classes) == 1:
        return classes[0]
    names = ", ".join(f"{name}:{found.__name__}" for found in classes)
    raise LookupError(f"name one of its plugins: {names}" if names else "defines no plugin")


def as_plugin(found: object, name: str) -> type[Plugin]:
    """Returns ``found`` if it is a plugin class."""
    if isinstance(found, type) and issubclass(found, Plugin):
        return found
    raise LookupError(f"{name} is not a plugin class")
