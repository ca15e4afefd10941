"""The log of `mqttcore serve`: `[log]` of the configuration."""

import logging
import sys
from typing import Final, Literal

from mqttcore.config import LogOutput

FIELDS: Final = "mqttcore_fields"
"""Attribute of records of the engine: keys and their values as text."""
PRETTY: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

Format = Literal["pretty", "json", "logfmt"]


def formatter(form: Format) -> logging.Formatter:
    """Makes the formatter of a format."""
    if form == "pretty":
        return logging.Formatter(PRETTY)
    from mqttcore.log_formats import JsonFormatter, LogfmtFormatter  # loads json and datetime

    return JsonFormatter() if form == "json" else LogfmtFormatter()


def configure(level: str, output: LogOutput) -> None:
    """Configures the log of the process.

    Raises:
        OSError: the file cannot be opened.
    """
    is_stderr = output.to == "stderr"
    handler = logging.StreamHandler(sys.stderr) if is_stderr else log_file(output)
    handler.setFormatter(formatter(output.format))
    logging.basicConfig(level=level.upper(), handlers=[handler])


def log_file(output: LogOutput) -> logging.Handler:
    """Makes a handler that writes to a file.

    It renames the file when it is full. Without a limit, it opens the file again after logrotate
    has renamed it.
    """
    # loads pickle, which a start does not need
    from logging.handlers import RotatingFileHandler, WatchedFileHandler

    if not output.rotate_mb:
        return WatchedFileHandler(output.to, encoding="utf-8", errors="backslashreplace")
    return RotatingFileHandler(
        output.to,
        maxBytes=output.rotate_mb * 1_000_000,
        backupCount=output.keep,
        encoding="utf-8",
        errors="backslashreplace",
    )
