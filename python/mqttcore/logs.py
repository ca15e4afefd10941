"""The log of `mqttcore serve`: `[log]` of the configuration."""

import logging
import sys
from typing import Final, Literal

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


def configure(level: str, form: Format, to: str) -> None:
    """Configures the log of the process.

    Raises:
        OSError: the file cannot be opened.
    """
    handler = logging.StreamHandler(sys.stderr) if to == "stderr" else log_file(to)
    handler.setFormatter(formatter(form))
    logging.basicConfig(level=level.upper(), handlers=[handler])


def log_file(path: str) -> logging.Handler:
    """Makes a handler that writes to a file, and opens it again after logrotate has renamed it."""
    from logging.handlers import WatchedFileHandler  # loads pickle, which a start does not need

    return WatchedFileHandler(path, encoding="utf-8", errors="backslashreplace")
