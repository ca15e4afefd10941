"""An OpenAPI document as a source of requests, and as a check of answers."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st

Json = Any  # values of JSON

ANY_JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
TEXTS: Final = st.text(max_size=30) | st.sampled_from(
    ["a", "a/+", "a/#", "$SYS/#", "$share/g/a", "main", "1", "0x98", "127.0.0.1", "10.0.0.0/8", ""]
)
TYPES: Final[dict[str, type | tuple[type, ...]]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to send."""

    method: str
    path: str
    body: Json
    """None: there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A method of a path."""

    method: str
    path: str
    description: dict[str, Json]
    document: dict[str, Json]

    def requests(self) -> st.SearchStrategy[Request]:
        """Requests that are nearly right, or not at all."""

        @st.composite
        def made(draw: st.DrawFn) -> Request:
            path, query = self.path, []
            for parameter in self.description.get("parameters", []):
                name, is_required = parameter["name"], parameter.get("required", False)
                if parameter["in"] == "path":
                    text = draw(TEXTS)
                    path = path.replace(f"{{{name}}}", urllib.parse.quote(text, safe=""))
                elif is_required or draw(st.booleans()):
                    value = draw(self._values(parameter.get("schema", {})) | TEXTS)
                    query.append((name, value if isinstance(value, str) else str(value).lower()))
            if draw(st.integers(0, 19)) == 0:
                query.append((draw(TEXTS), draw(TEXTS)))
            target = f"{path}?{urllib.parse.urlencode(query)}" if query else path
            return Request(method=self.method, path=target, body=draw(self._bodies()))

        return made()

    def _bodies(self) -> st.SearchStrategy[Json]:
        if "requestBody" not in self.description:
            return st.none()
        schema = self.description["requestBody"]["content"]["application/json"]["schema"]
        return (
            self._values(schema) | self._values(schema) | ANY_JSON.filter(lambda v: v is not None)
        )

    def _values(self, schema: Json) -> st.SearchStrategy[Json]:
        """Values that fit a schema; numbers and texts may be outside of its limits."""
        schema = self._resolved(schema)
        if "enum" in schema:
            return st.sampled_from(schema["enum"])
        for several in ("oneOf", "anyOf", "allOf"):
            if several in schema:
                return st.one_of([self._values(one) for one in schema[several]])
        kinds = schema.get("type", "string")
        kinds = [kinds] if isinstance(kinds, str) else kinds
        return st.one_of([self._of_type(kind, schema) for kind in kinds])

    def _of_type(self, kind: str, schema: Json) -> st.SearchStrategy[Json]:
        if kind == "object":
            required = set(schema.get("required", []))
            fields = {name: self._values(one) for name, one in schema["properties"].items()}
            return st.fixed_dictionaries(
                {name: one for name, one in fields.items() if name in required},
                optional={name: one for name, one in fields.items() if name not in required},
            )
        if kind == "array":
            return st.lists(self._values(schema.get("items", {})), max_size=3)
        simple: dict[str, st.SearchStrategy[Json]] = {
            "integer": st.integers(-1, 1_001) | st.integers(),
            "number": st.floats(allow_nan=False, allow_infinity=False),
            "boolean": st.booleans(),
            "null": st.none(),
        }
        return simple.get(kind, TEXTS)

    def _resolved(self, schema: Json) -> dict[str, Json]:
        while isinstance(schema, dict) and "$ref" in schema:
            found: Json = self.document
            for step in schema["$ref"].removeprefix("#/").split("/"):
                found = found[step]
            schema = found
        return schema if isinstance(schema, dict) else {}

    def faults(self, status: int, answer: Json) -> list[str]:
        """What an answer has that the document does not say."""
        responses = self.description["responses"]
        response = responses.get(str(status), responses["default"])
        if str(status) not in responses and status < 400:
            return [f"the status {status} is not in the document"]
        content = response.get("content", {})
        for media_type in ("application/json", "application/problem+json"):
            if media_type in content:
                return list(self._misfits(content[media_type]["schema"], answer, "$"))
        return []

    def _misfits(self, schema: Json, value: Json, place: str) -> Iterator[str]:
        schema = self._resolved(schema)
        if "allOf" in schema:
            for one in schema["allOf"]:
                yield from self._misfits(one, value, place)
        elif options := schema.get("oneOf", schema.get("anyOf")):
            found = [list(self._misfits(one, value, place)) for one in options]
            yield from min(found, key=len)
        else:
            yield from self._plain_misfits(schema, value, place)

    def _plain_misfits(self, schema: Json, value: Json, place: str) -> Iterator[str]:
        if "enum" in schema and value not in schema["enum"]:
            yield f"{place}: {value!r} is none of {schema['enum']}"
        kinds = schema.get("type", list(TYPES))
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if not any(is_of(value, kind) for kind in kinds):
            yield f"{place}: {value!r} is not of type {kinds}"
        elif isinstance(value, dict):
            yield from self._of_object(schema, value, place)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                yield from self._misfits(schema.get("items", {}), item, f"{place}[{index}]")

    def _of_object(self, schema: Json, value: dict[str, Json], place: str) -> Iterator[str]:
        for name in schema.get("required", []):
            if name not in value:
                yield f"{place}: {name} is missing"
        for name, one in schema.get("properties", {}).items():
            if name in value:
                yield from self._misfits(one, value[name], f"{place}.{name}")


def is_of(value: Json, kind: str) -> bool:
    """Whether a value is of a type of JSON schema."""
    if isinstance(value, bool) and kind != "boolean":
        return False
    return isinstance(value, TYPES[kind])


def operations(document: dict[str, Json]) -> list[Operation]:
    """All operations of a document."""
    return [
        Operation(method=method.upper(), path=path, description=description, document=document)
        for path, item in sorted(document["paths"].items())
        for method, description in sorted(item.items())
    ]
