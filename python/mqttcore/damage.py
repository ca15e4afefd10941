"""What the operator of a damaged store is told, and how a start goes on without what is lost."""

import json
import logging
import pathlib

from mqttcore import _core
from mqttcore.errors import StoreError

log = logging.getLogger("mqttcore")


def is_damage(error: Exception) -> bool:
    """Whether a store is refused because its files contradict each other or their checksums."""
    return isinstance(error, StoreError) and "is damaged" in str(error)


def advice(error: Exception) -> str:
    """What can be done about an error, to be put behind it."""
    if not is_damage(error):
        return ""
    return (
        "; bring back what is missing, from a copy of this folder if there is one, or have"
        " `mqttcore store repair --accept-loss` or `mqttcore serve --accept-loss` give it up"
    )


def is_there(directory: pathlib.Path) -> bool:
    """Whether a folder has files of a store."""
    return (directory / "checkpoint.redb").exists() or any(directory.glob("*.log"))


def accept_loss(directory: pathlib.Path) -> None:
    """Mends the store in a folder, if there is one, and logs what was given up.

    Raises:
        StoreError: the folder cannot be read or written, or another broker has it.
    """
    if not is_there(directory):
        return
    done = _core.store_repair(directory)
    if done["damage"] is None:
        log.info("--accept-loss: the folder is whole, nothing is given up")
    else:
        log.error("--accept-loss: the store was mended: %s", json.dumps(done))
