"""`mqttcore plugins`: lists plugins, writes a new one, checks one.

    mqttcore plugins list                  # what may stand in `use`; nothing of it runs for that
    mqttcore plugins new door_rules        # a plugin, its test and a configuration
    mqttcore plugins check door_rules -c door_rules.toml
    mqttcore plugins reload mqttcore.auth.password_file  # of a running broker: reads its files

`check` starts the plugin without a broker and asks its hooks about clients that nobody wants. A
plugin that talks to a database talks to it then, too. Exit status: 0 all is well, 1 it is not, 2
the arguments are wrong.
"""

import argparse
import ast
import contextlib
import keyword
import pathlib
import sys
from collections.abc import Iterator, Sequence
from importlib import resources
from importlib.metadata import entry_points

from mqttcore import config
from mqttcore.cli.api import Api, add_command, asking, path_of
from mqttcore.cli.failure import NOT_DONE, OK
from mqttcore.cli.terminal import json_text, printable
from mqttcore.config import PluginUse, Settings
from mqttcore.errors import ConfigError, MqttError
from mqttcore.plugin.loading import BUILT_IN, ENTRY_POINTS, error_text, find_class
from mqttcore.testing.plugin_check import Fault, Line, check_plugin

TEMPLATES = {
    "plugin.py": "{name}.py",
    "test_plugin.py": "test_{name}.py",
    "plugin.toml": "{name}.toml",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one of the commands; returns the exit status."""
    options = parser().parse_args(arguments)
    # as `python -m` does: plugins in the working directory are found
    sys.path.insert(0, str(pathlib.Path.cwd()))
    try:
        if options.command == "list":
            return list_plugins(options.config, is_json=options.json)
        if options.command == "new":
            return write_plugin(options.name, options.into, is_json=options.json)
        if options.command == "reload":
            return asking("plugins", options, reload)
        return check(options.use, options.config, is_json=options.json)
    except BrokenPipeError:
        raise
    except (MqttError, ValueError, OSError) as error:
        lines = f"mqttcore plugins: {error}".splitlines()  # a configuration may have many faults
        print(*map(printable, lines), sep="\n", file=sys.stderr)
        return NOT_DONE


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = argparse.ArgumentParser(
        prog="mqttcore plugins", description="Lists, creates, checks and reloads plugins."
    )
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    found = commands.add_parser("list", help="print the names for `use` of [[plugins]]")
    found.add_argument(
        "-c", "--config", metavar="FILE", help="mark the plugins that this file uses"
    )
    new = commands.add_parser("new", help="write a plugin, its test and a configuration")
    new.add_argument("name", metavar="NAME", help="name of the module, such as door_rules")
    new.add_argument(
        "--into",
        type=pathlib.Path,
        default=pathlib.Path(),
        metavar="FOLDER",
        help="folder of the new files (default: the working directory)",
    )
    one = commands.add_parser("check", help="start a plugin and ask its hooks, without a broker")
    one.add_argument(
        "use", metavar="USE", help="plugin, as in the configuration: module or module:Class"
    )
    one.add_argument("-c", "--config", metavar="FILE", help="take [plugins.config] from this file")
    for each in (found, new, one):
        each.add_argument("--json", action="store_true", help="print JSON")
    words = "have a plugin of a running broker read its files again; others stay as they are"
    again = add_command(commands, "reload", words)
    again.add_argument("name", metavar="NAME", help="plugin, such as mqttcore.auth.password_file")
    return made


def list_plugins(file: str | None, *, is_json: bool) -> int:
    """Prints the built-in plugins and those that other packages have, by name."""
    used = {use.use for use in settings_of(file).plugins}
    found = [*built_in(), *installed()]
    if is_json:
        items = [
            {"use": name, "origin": origin, "purpose": purpose, "used": name in used}
            for name, origin, purpose in found
        ]
        print(json_text({"items": items}))
        return OK
    for name, origin, purpose in found:
        mark = "*" if name in used else " "
        print(printable(f"{mark} {name:32}{origin:24}{purpose}".rstrip()))
    print('\nA plugin runs only if the configuration names it: [[plugins]] use = "NAME"')
    return 0


def built_in() -> Iterator[tuple[str, str, str]]:
    """The built-in plugins; none of them is imported."""
    for name in BUILT_IN:
        text = resources.files("mqttcore").joinpath(f"auth/{name}.py").read_text(encoding="utf-8")
        purpose = ast.get_docstring(ast.parse(text)) or ""
        yield f"mqttcore.auth.{name}", "built in", purpose.splitlines()[0]


def installed() -> Iterator[tuple[str, str, str]]:
    """The plugins of other packages; none of them is imported."""
    for found in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        package = found.dist.name if found.dist is not None else "unknown package"
        yield found.name, package, found.value


def settings_of(file: str | None) -> Settings:
    """The configuration, or the defaults."""
    return Settings() if file is None else config.load(pathlib.Path(file))


def write_plugin(name: str, folder: pathlib.Path, *, is_json: bool) -> int:
    """Writes the files of a new plugin; none of them may be there already.

    Raises:
        ValueError: `name` cannot be the name of a module.
        FileExistsError: a file is there.
    """
    if not name.isidentifier() or not name.isascii() or keyword.iskeyword(name) or name[0] == "_":
        raise ValueError(f"{name!r} is not the name of a module: letters, digits and _")
    files = {folder / target.format(name=name): source for source, target in TEMPLATES.items()}
    for path in files:
        if path.exists():
            raise FileExistsError(f"{path} is there already")
    folder.mkdir(parents=True, exist_ok=True)
    for path, source in files.items():
        template = resources.files("mqttcore").joinpath(f"data/new_plugin/{source}.txt")
        text = template.read_text(encoding="utf-8")
        made = text.replace("@name@", name).replace("@Class@", class_name(name))
        with path.open("x", encoding="utf-8") as file:
            file.write(made)
    if is_json:
        print(json_text({"files": list(map(str, files))}))
        return OK
    print(*(f"wrote {path}" for path in files), sep="\n")
    print(f"next: python -m pytest {folder / f'test_{name}.py'}")
    print(f"then: mqttcore plugins check {name} -c {folder / f'{name}.toml'}")
    return 0


def reload(api: Api, options: argparse.Namespace) -> int:
    """Has a plugin read its files again; returns the exit status."""
    done = api.call("POST", path_of("plugins", options.name, "reload"))
    if options.json:
        print(json_text(done))
        return OK
    users = done["changed_users"]
    whose = "everybody" if users is None else f"{users} users"
    print(f"its files are read again; the rights of {whose} may have changed")
    return OK


def class_name(name: str) -> str:
    """The name of a class for the name of a module."""
    return "".join(part.capitalize() for part in name.split("_"))


def check(name: str, file: str | None, *, is_json: bool) -> int:
    """Checks one plugin with each configuration that the file has for it.

    With ``is_json``, what the plugin itself prints goes to standard error.
    """
    uses = [use for use in settings_of(file).plugins if use.use == name]
    if file is not None and not uses:
        raise ConfigError([f"{file}: no [[plugins]] has use = {name!r}"])
    found: list[Line] = []
    with contextlib.redirect_stdout(sys.stderr if is_json else sys.stdout):
        for line in checked(name, uses or [PluginUse(use=name)]):
            found.append(line)
            if not is_json:
                print(line)
    faults = [line.what for line in found if isinstance(line, Fault)]
    if is_json:
        passed = [line.what for line in found if not isinstance(line, Fault)]
        print(json_text({"use": name, "passed": passed, "faults": faults}))
    else:
        print(f"{len(faults)} faults" if faults else "no faults")
    return NOT_DONE if faults else OK


def checked(name: str, uses: Sequence[PluginUse]) -> Iterator[Line]:
    """The findings about a plugin."""
    try:
        kind = find_class(name)
    except Exception as error:  # a module that is imported may raise anything
        yield Fault(f"it cannot be loaded: {error_text(error)}")
        return
    for use in uses:
        yield from check_plugin(kind, use.table.entry)
