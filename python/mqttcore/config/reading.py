"""Reads the configuration. Precedence: flags, then environment, then TOML file or folder."""

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final, cast

from mqttcore import _core
from mqttcore._log import logger
from mqttcore._record import Record, field
from mqttcore._schema import Entry, Faults, Place, beside, entry_of, read_fields
from mqttcore.config.checks import check_together, place_of, raise_faults
from mqttcore.config.settings import Settings
from mqttcore.config.values import (
    BUILT_IN_ADDRESS,
    WEBSOCKET_PATH,
    WEBSOCKET_SCHEME,
    unix_path,
)

log = logger(__name__)

OLD_NAMES: Final = {"promise": "durability"}
"""Keys of earlier versions, in the file itself, its listeners and its topics."""
ENVIRONMENT_PREFIX = "MQTTCORE__"
NOWHERE: Final = entry_of({}, Place("Settings"))
"""Place of settings that a program made."""
CHECKPOINT = "checkpoint.redb"
"""A file that each data folder of a broker has."""


def load(
    path: pathlib.Path | str | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    listen: Sequence[str] = (),
    log_level: str | None = None,
    data: str | None = None,
) -> Settings:
    """Reads settings: defaults, then the file, then ``environment``, then the flags.

    Without a file they are the built-in profile: `BUILT_IN_ADDRESS`, anonymous clients.

    Args:
        path: The TOML file, or a folder of such files; None: the built-in profile.
        environment: Where ``MQTTCORE__...`` is looked for, as `os.environ`; None: nowhere.
        listen: Addresses, or URLs as ``ws://127.0.0.1:8083/mqtt``, that take the place of the
            file's listeners; the first one's other keys stay.
        log_level: Takes the place of the file's.
        data: Takes the place of the file's.

    Raises:
        ConfigError: with everything that is wrong.
    """
    origin = Origin(
        path=pathlib.Path(path) if path else None,
        environment=environment or {},
        listen=listen,
        log_level=log_level,
        data=data,
    )
    return origin.load().settings


class Loaded(Record):
    """Settings, and the values that they were read from, with their places."""

    settings: Settings
    root: Entry


class Origin(Record):
    """The source of settings, so that they can be read again; the arguments of `load`."""

    path: pathlib.Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    listen: Sequence[str] = ()
    log_level: str | None = None
    data: str | None = None

    def load(self, text: str | None = None) -> Loaded:
        """Reads the settings; ``text`` replaces the contents of the file.

        Raises:
            ConfigError: with everything that is wrong.
        """
        faults = Faults()
        root = self._file(text, faults)
        apply_environment(root, self.environment, faults)
        apply_flags(root, self.listen, {"log_level": self.log_level, "data": self.data})
        settings = read_settings(root, faults)
        raise_faults(faults)
        return Loaded(settings=cast(Settings, settings), root=root)

    def _file(self, text: str | None, faults: Faults) -> Entry:
        if text is not None:
            return read_text(text, self._place_of_text(), faults)
        if self.path is None:
            return built_in_profile()
        is_folder = self.path.is_dir()
        return read_folder(self.path, faults) if is_folder else read_file(self.path, faults)

    def _place_of_text(self) -> pathlib.Path:
        """The place of a text without a file: paths in it are relative to the same folder."""
        if self.path is None:
            return pathlib.Path("request")
        return self.path / "request" if self.path.is_dir() else self.path


def origin_of(settings: Settings | pathlib.Path | str | None) -> Origin | None:
    """The source of settings; None: a program made them."""
    if isinstance(settings, Settings):
        return None
    return Origin(path=pathlib.Path(settings) if settings else None)


def loaded_of(
    settings: Settings | Origin | pathlib.Path | str | None, origin: Origin | None
) -> Loaded:
    """Settings that were read from ``origin``, or made by a program."""
    if origin is not None:
        return origin.load()
    return Loaded(settings=cast(Settings, settings), root=NOWHERE)


def read_settings(root: Entry, faults: Faults) -> Settings | None:
    """Checks the whole configuration; each fault has its place."""
    rename_old_keys(root, faults)
    values = read_fields(Settings, root, key="", faults=faults)
    if values is None:
        return None
    check_together(values, partial(place_of, root), faults)
    values["data"] = data_folder(values.get("data") or "", place_of(root, "data"), faults)
    values["plugins"] = tuple(
        use.replaced(place=place_of(root, f"plugins[{index}].use"))
        for index, use in enumerate(values.get("plugins", ()))
    )
    return None if faults else Settings(**values)


def rename_old_keys(root: Entry, faults: Faults) -> None:
    """Moves values of old keys to the new ones, with one warning for each old key."""
    for old, new in OLD_NAMES.items():
        places = []
        for table in tables(root):
            entry = table.pop(old, None)
            if entry is not None and new in table:
                what = f"is the old name of {new}, which is set, too"
                faults.add(entry.key_place, old, what, f"remove {old}")
            elif entry is not None:
                table[new] = entry
                places.append(str(entry.key_place))
        if places:
            where = ", ".join(places)
            log.warning("%s: %s is the old name of the key %s: rename it", where, old, new)


def tables(root: Entry) -> Iterator[dict[str, Entry]]:
    """The file itself, its listeners and its topics."""
    table = cast(dict[str, Entry], root.value)
    yield table
    for name in ("listeners", "topics"):
        array = table[name].value if name in table else ()
        for entry in array if isinstance(array, list) else ():
            if isinstance(entry.value, dict):
                yield entry.value


def data_folder(text: str, place: Place, faults: Faults) -> str:
    """The data folder, relative to the file that names it, like all paths of the file."""
    folder = beside(place, pathlib.Path(text))
    # it was relative to the folder that the process starts in
    old = pathlib.Path(text).absolute()
    if text and not (folder / CHECKPOINT).exists() and (old / CHECKPOINT).exists():
        what = f"there is no store in {str(folder)!r}, but there is one in {str(old)!r}"
        cure = "data is relative to this file: write the whole path, or move the folder"
        faults.add(place, "data", what, cure)
    return str(folder) if text else ""


def built_in_profile() -> Entry:
    """The built-in profile: loopback, anonymous, in memory (docs/decisions.md, 26)."""
    place = Place("built-in profile")
    listener = {"address": BUILT_IN_ADDRESS, "anonymous": True}
    return entry_of({"listeners": [listener]}, place)


def read_folder(folder: pathlib.Path, faults: Faults) -> Entry:
    """The files ``*.toml`` of a folder, merged in the order of their names (ADR 0109)."""
    root = entry_of({}, Place(str(folder)))
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError as error:
        faults.add(root.place, "", f"cannot be read: {error.strerror}")
        return root
    # editors and package managers leave others: .x.toml.swp, x.toml~, x.toml.dpkg-new
    files = [name for name in names if name.endswith(".toml") and not name.startswith(".")]
    if not files:
        faults.add(root.place, "", "has no file *.toml")
    for name in files:
        root = merged(root, read_file(folder / name, faults))
    return root


def merged(old: Entry, new: Entry) -> Entry:
    """The values of two files: keys of tables together, arrays of tables joined, else the later."""
    if isinstance(old.value, dict) and isinstance(new.value, dict):
        table = dict(old.value)
        for key, entry in new.value.items():
            table[key] = merged(table[key], entry) if key in table else entry
        return old.replaced(value=table)
    if has_tables(old) and has_tables(new):
        return old.replaced(value=[*cast(list[Entry], old.value), *cast(list[Entry], new.value)])
    return new


def has_tables(entry: Entry) -> bool:
    """Whether it is an array of tables, as ``[[listeners]]``."""
    items = entry.value if isinstance(entry.value, list) else ()
    return bool(items) and all(isinstance(item.value, dict) for item in items)


def read_file(path: pathlib.Path, faults: Faults) -> Entry:
    """The file as entries; unreadable parts are left out and reported in ``faults``."""
    place = Place(str(path))
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        faults.add(place, "", f"cannot be read: {error.strerror}")
        return entry_of({}, place)
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        faults.add(Place(str(path), line, 1), "", "is not UTF-8")
        return entry_of({}, place)
    return read_text(text, path, faults)


def read_text(text: str, path: pathlib.Path, faults: Faults) -> Entry:
    """The text of a file as entries; invalid parts are left out and reported in ``faults``."""
    root, errors = _core.parse_toml(text)
    for line, column, what in errors:
        faults.add_syntax(Place(str(path), line, column), what)
    return from_toml(root, str(path))


def from_toml(value: _core.TomlValue, source: str) -> Entry:
    """Values of the TOML reader as entries."""
    inner: object = value.value
    if isinstance(inner, dict):
        inner = {key: from_toml(item, source) for key, item in inner.items()}
    elif isinstance(inner, list):
        inner = [from_toml(item, source) for item in inner]
    return Entry(inner, value.kind, Place(source, *value.place), Place(source, *value.key_place))


def apply_environment(root: Entry, environment: Mapping[str, str], faults: Faults) -> None:
    """Adds scalars of the environment to the tree."""
    for name in sorted(environment):
        if name.startswith(ENVIRONMENT_PREFIX):
            steps = name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
            place = Place(name)
            if not put(root, steps, Entry(environment[name], "text", place, place)):
                faults.add(
                    place,
                    "",
                    "is not a configuration key",
                    "allowed: keys and indexes joined by __",
                )


def put(entry: Entry, steps: Sequence[str], new: Entry) -> bool:
    """Sets the value at a path, and creates tables and arrays; False: the path is not valid."""
    step, rest = steps[0], steps[1:]
    index = int(step) if step.isdigit() else -1
    if isinstance(entry.value, list) and 0 <= index <= len(entry.value):
        if index == len(entry.value):
            entry.value.append(branch(rest, new.place))
        if rest:
            return put(entry.value[index], rest, new)
        entry.value[index] = new
        return True
    if isinstance(entry.value, dict) and step:
        if not rest:
            entry.value[step] = new
            return True
        return put(entry.value.setdefault(step, branch(rest, new.place)), rest, new)
    return False


def branch(rest: Sequence[str], place: Place) -> Entry:
    """An empty table, or an empty array if an index follows."""
    return entry_of([] if rest and rest[0].isdigit() else {}, place)


def apply_flags(root: Entry, listen: Sequence[str], texts: Mapping[str, str | None]) -> None:
    """Adds the flags of the command line to the tree."""
    table = cast(dict[str, Entry], root.value)
    for key, text in texts.items():
        if text is not None:
            place = Place("--" + key.replace("_", "-"))
            table[key] = Entry(text, "text", place, place)
    if listen:
        place = Place("--listen")
        keep = first_listener(table)
        listeners = [
            Entry(listen_keys(text, place, keep), "table", place, place) for text in listen
        ]
        table["listeners"] = Entry(listeners, "array", place, place)


def listen_keys(text: str, place: Place, keep: Mapping[str, Entry]) -> dict[str, Entry]:
    """The keys of a listener for one ``--listen``, with those of ``keep`` that apply to it."""
    if text.startswith(WEBSOCKET_SCHEME):
        address, slash, path = text.removeprefix(WEBSOCKET_SCHEME).partition("/")
        path = slash + path or WEBSOCKET_PATH
        said = {"address": address, "transport": "websocket", "path": path}
        kept = dict(keep)
    else:
        said = {"address": text, "transport": "tcp"}
        kept = {key: entry for key, entry in keep.items() if key not in {"path", "origins"}}
    kept = {
        key: entry
        for key, entry in kept.items()
        if is_kept(key, entry.value, is_unix=unix_path(said["address"]) is not None)
    }
    return kept | {key: Entry(value, "text", place, place) for key, value in said.items()}


def is_kept(key: str, value: object, *, is_unix: bool) -> bool:
    """Whether a key of another listener has a meaning for a Unix socket, or for TCP."""
    if is_unix:
        is_proxied = key == "identity" and str(value).startswith("proxy_")
        return key != "proxy_from" and not is_proxied
    if key == "proxy_from" and "uid:" in str(value):
        return False
    return key not in {"mode", "group"} and (key, value) != ("identity", "uid")


def first_listener(table: Mapping[str, Entry]) -> dict[str, Entry]:
    """The keys of the first listener without its name."""
    listeners = table.get("listeners")
    if listeners and isinstance(listeners.value, list) and listeners.value:
        first = listeners.value[0].value
        if isinstance(first, dict):
            return {key: entry for key, entry in first.items() if key != "name"}
    return {}
