"""Damaged stores: the advice to the operator, and the repair before a start (`--accept-loss`)."""

import pathlib

from mqttcore import _core
from mqttcore._log import logger
from mqttcore.errors import StoreError

log = logger("mqttcore")


def is_damage(error: Exception) -> bool:
    """Whether a store is refused because its files are inconsistent or have wrong checksums."""
    return isinstance(error, StoreError) and "is damaged" in str(error)


def advice(error: Exception) -> str:
    """Returns the advice to append to an error about damage, or an empty text."""
    if not is_damage(error):
        return ""
    return (
        "; restore the missing files from a copy of this folder, or give up the lost data"
        " with `mqttcore store repair --accept-loss` or `mqttcore serve --accept-loss`"
    )


def is_there(directory: pathlib.Path) -> bool:
    """Whether a folder has files of a store."""
    return (directory / "checkpoint.redb").exists() or any(directory.glob("*.log"))


def accept_loss(directory: pathlib.Path) -> None:
    """Repairs the store in a folder, if there is one, and logs the losses.

    Raises:
        StoreError: the folder cannot be read or written, or another broker has it.
    """
    if not is_there(directory):
        return
    import json  # a start does not need it

    done = _core.store_repair(directory)
    if done["damage"] is None:
        log.info("--accept-loss: the folder is not damaged, no data was given up")
    else:
        log.error("--accept-loss: the store was repaired: %s", json.dumps(done))
