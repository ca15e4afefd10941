"""Faults of a configuration as JSON, with their places."""

from __future__ import annotations

from mqttcore.errors import ConfigError, MqttError


def fault_items(error: MqttError) -> list[dict[str, object]]:
    """Each fault as ``{"file", "line", "column", "text"}``; the first three are None if unknown.

    A fault of a variable or a flag has its name in the text.
    """
    if isinstance(error, ConfigError) and error.placed:
        return [
            fault_item(text, place.source, place.line, place.column)
            if place.line
            else fault_item(f"{place}: {text}")
            for place, text in error.placed
        ]
    faults = error.faults if isinstance(error, ConfigError) else [str(error)]
    return [fault_item(text) for text in faults]


def fault_item(
    text: str, file: str | None = None, line: int | None = None, column: int | None = None
) -> dict[str, object]:
    """A fault as JSON."""
    return {"file": file, "line": line, "column": column, "text": text}


def fault_line(item: dict[str, object]) -> str:
    """A fault as a line, its place first."""
    place = [item[part] for part in ("file", "line", "column") if item[part] is not None]
    return ":".join(map(str, place)) + f": {item['text']}" if place else str(item["text"])
