"""Replaces a file that the broker reads and an operator changes."""

import os
import pathlib
import stat


def replace_file(file: pathlib.Path, text: str, *, is_private: bool = False) -> None:
    """Replaces a file atomically; if it is a symbolic link, its target. A new file has mode 0600.

    A file that exists keeps its owner, group and mode: root changes it, and the broker's user
    still reads it. If ``is_private``, its mode becomes 0600.

    Raises:
        OSError: the file is then unchanged.
    """
    place = file.resolve()
    temporary = place.with_name(f".{place.name}.tmp-{os.getpid()}")
    temporary.unlink(missing_ok=True)
    opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(opened, "w", encoding="utf-8") as written:
            if place.exists():
                keep_rights(opened, place.stat())
            if is_private:
                os.fchmod(opened, 0o600)
            written.write(text)
            written.flush()
            os.fsync(opened)
        temporary.replace(place)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def keep_rights(opened: int, old: os.stat_result) -> None:
    """Applies the owner, the group and the mode of the old file to a new one."""
    new = os.fstat(opened)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        os.fchown(opened, old.st_uid, old.st_gid)
    os.fchmod(opened, stat.S_IMODE(old.st_mode))
