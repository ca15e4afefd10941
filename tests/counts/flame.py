"""Flame graph of a callgrind profile: `python -m tests.counts.flame PROFILE TITLE [ROOT] >SVG`.

Callgrind counts calls between two functions, not whole stacks: what a function with several
callers calls is drawn below each of them, in proportion to the instructions that each one causes.
"""

from __future__ import annotations

import pathlib
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from typing import Final

ROOT: Final = "mqttcore_broker::connection::task::Connection::poll_turn"
"""Turns of connections: below it is what messages cost in code of the broker."""
WIDTH: Final = 1200
HEIGHT: Final = 17
NARROWEST: Final = 0.003
"""Share of all instructions below which a function is not drawn."""
DEEPEST: Final = 40
COLOURS: Final = {"mqttcore": "#e8985e", "tokio": "#7fb8d4", "": "#c9c9c9"}


@dataclass(slots=True)
class Function:
    """What a function took itself, and in the functions that it called."""

    own: int = 0
    calls: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def total(self) -> int:
        """Instructions with those of called functions."""
        return self.own + sum(self.calls.values())


def read(profile: str) -> dict[str, Function]:
    """The functions of a profile as callgrind writes it."""
    functions: dict[str, Function] = defaultdict(Function)
    names: dict[str, str] = {}
    current, callee, is_call = "", "", False
    for line in profile.splitlines():
        if named := re.match(r"(c?fn)=(\(\d+\))(?: (.*))?", line):
            kind, number, name = named.groups()
            if name:
                names[number] = name
            if kind == "fn":
                current = names[number]
            else:
                callee = names[number]
        elif line.startswith("calls="):
            is_call = True
        elif cost := re.match(r"[+*\d-]\S* (\d+)$", line):
            if is_call:
                functions[current].calls[callee] += int(cost[1])
            else:
                functions[current].own += int(cost[1])
            is_call = False
    return functions


@dataclass(frozen=True, slots=True)
class Box:
    """A function at a place of the picture, in shares of the width."""

    name: str
    depth: int
    left: float
    width: float


def boxes(
    functions: dict[str, Function], path: tuple[str, ...], left: float, width: float
) -> Iterator[Box]:
    """The function at the end of a path, and what it calls, the largest first."""
    name = path[-1]
    yield Box(name, len(path) - 1, left, width)
    function = functions[name]
    if len(path) == DEEPEST or not function.total:
        return
    for callee, cost in sorted(function.calls.items(), key=lambda call: -call[1]):
        share = width * cost / function.total
        if share >= NARROWEST and callee not in path:
            yield from boxes(functions, (*path, callee), left, share)
            left += share


def short(name: str) -> str:
    """A name without its crate, types of generics and `impl` blocks."""
    name = re.sub(r"<impl (.*?)>", r"\1", name)
    name = re.sub(r"<[^<>]*>", "", name)
    return "::".join(name.split("::")[-2:])


def draw(title: str, drawn: list[Box]) -> str:
    """The picture."""
    depth = 2 + max(box.depth for box in drawn)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {depth * HEIGHT}" '
        'font-family="monospace" font-size="11">',
        f'<text x="4" y="12">{escape(title)}</text>',
    ]
    for box in drawn:
        colour = next(colour for crate, colour in COLOURS.items() if crate in box.name)
        left, width, top = box.left * WIDTH, box.width * WIDTH, (box.depth + 1) * HEIGHT
        label = short(box.name)[: int(width / 7)]
        parts.append(
            f'<g><title>{escape(box.name)} {box.width:.1%}</title><rect x="{left:.1f}" y="{top}" '
            f'width="{width:.1f}" height="{HEIGHT - 1}" fill="{colour}"/>'
            f'<text x="{left + 2:.1f}" y="{top + 12}">{escape(label)}</text></g>'
        )
    return "\n".join((*parts, "</svg>"))


def main() -> None:
    """Prints the graph of the profile that the first argument names, from one function on."""
    profile, title, *root = sys.argv[1:]
    functions = read(pathlib.Path(profile).read_text())
    print(draw(title, list(boxes(functions, (root[0] if root else ROOT,), 0, 1))))


if __name__ == "__main__":
    main()
