"""The log of `mqttcore serve`: `[log]` of the configuration."""

import sys
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from mqttcore._log import before_first_record
from mqttcore.config import LogOutput

if TYPE_CHECKING:
    import logging

FIELDS: Final = "mqttcore_fields"
"""Attribute of records of the engine: keys and their values as text."""
PRETTY: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

Format = Literal["pretty", "json", "logfmt"]


def formatter(form: Format) -> "logging.Formatter":
    """Makes the formatter of a format."""
    import logging

    if form == "pretty":
        return logging.Formatter(PRETTY)
    from mqttcore.log_formats import JsonFormatter, LogfmtFormatter  # loads json and datetime

    return JsonFormatter() if form == "json" else LogfmtFormatter()


def configure(level: str, output: LogOutput) -> None:
    """Configures the log of the process: a file now, standard error before the first record.

    Raises:
        OSError: the file cannot be opened.
    """
    if output.to == "stderr":
        before_first_record(partial(configure_stderr, level, output))
    else:
        configure_with(log_file(output), level, output)


def configure_stderr(level: str, output: LogOutput) -> None:
    """Has the log written to standard error."""
    import logging

    configure_with(logging.StreamHandler(sys.stderr), level, output)


def configure_with(handler: "logging.Handler", level: str, output: LogOutput) -> None:
    """Has a handler write the log."""
    import logging

    handler.setFormatter(formatter(output.format))
    logging.basicConfig(level=level.upper(), handlers=[handler])


def log_file(output: LogOutput) -> "logging.Handler":
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
