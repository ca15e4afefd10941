"""Draws which module of a Rust crate knows which, and finds cycles: `python -m tests.modules`.

Part of `make borders`. Cargo keeps crates from knowing each other in a circle; inside of a crate
nothing does. Of each folder it takes the files and folders in it as nodes, and an arrow for each
path in the source (`use crate::...`, `super::...`) that leads from one to another; `pub use` of a
child is a face, not an arrow, and leads on to where the name is defined. Tests are left out.

`tests/modules.toml` says how large cycles may be; the numbers may only shrink. The picture of the
engine in `docs/architecture.md` has to be that of the source.

    python -m tests.modules                 the table
    python -m tests.modules --check         fails when a number has grown, or could shrink, or for
                                            a long file, or a long function that does not say why
    python -m tests.modules --draw broker   the folders, as in docs/architecture.md
    python -m tests.modules --cycles broker each cycle with its members and arrows
    python -m tests.modules --sizes         long functions and files
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tests import sizes

ROOT = Path(__file__).parent.parent
ALLOWED = ROOT / "tests/modules.toml"
PICTURE = ROOT / "docs/architecture.md"
ROOTS = {"crate", "super", "self"}

Module = tuple[str, ...]
"""Where a module is in its crate; `()` is `lib.rs`."""
Graph = dict[str, set[str]]
"""Nodes, and whom each knows."""


def spread(tree: str) -> Iterator[list[str]]:
    """Each path of a `use` tree."""
    tree = tree.strip()
    if "{" not in tree:
        path = re.sub(r"\s+as\s+\w+$", "", tree)
        yield [step.strip() for step in path.split("::")]
        return
    head, _, rest = tree.partition("{")
    rest = rest[: rest.rindex("}")]
    depth, start = 0, 0
    for at, letter in enumerate(rest + ","):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and not depth:
            if part := rest[start:at].strip():
                yield from spread(head + part)
            start = at + 1


@dataclass
class Source:
    """What one file says about others."""

    uses: list[list[str]] = field(default_factory=list)
    faces: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Source:
        """Reads a file."""
        text, found = sizes.product(path.read_text()), cls()
        statement = re.compile(r"(pub(?:\([^)]*\))?\s+)?\buse\s+([^;]+);")
        for visibility, tree in statement.findall(text):
            for steps in spread(tree):
                if visibility:
                    found.faces[steps[-1]] = steps
                else:
                    found.uses.append(steps)
        inline = re.findall(r"\b((?:crate|super|self)(?:::\w+)+)", statement.sub("", text))
        found.uses += [path.split("::") for path in inline]
        return found


@dataclass
class Crate:
    """The modules of a crate."""

    name: str
    folder: Path

    @cached_property
    def sources(self) -> dict[Module, Source]:
        """Every module by its place."""
        found = {}
        for path in sorted(self.folder.rglob("*.rs")):
            steps = path.relative_to(self.folder).with_suffix("").parts
            place = () if steps == ("lib",) else steps[:-1] if steps[-1] == "mod" else steps
            found[place] = Source.read(path)
        return found

    def resolve(self, at: Module, steps: list[str], depth: int = 8) -> Module | None:
        """The module that defines what a path in `at` names; `None` if it is of another crate."""
        place, rest = at, list(steps)
        if rest[0] == "crate":
            place, rest = (), rest[1:]
        while rest and rest[0] in {"super", "self"}:
            place, rest = (place[:-1] if rest[0] == "super" else place), rest[1:]
        if steps[0] not in ROOTS and (*place, rest[0]) not in self.sources:
            return None
        while rest and (*place, rest[0]) in self.sources:
            place, rest = (*place, rest[0]), rest[1:]
        source = self.sources.get(place)
        face = source.faces.get(rest[0]) if source and rest else None
        if face and depth:
            return self.resolve(place, [*face, *rest[1:]], depth - 1) or place
        return place

    @cached_property
    def arrows(self) -> set[tuple[Module, Module]]:
        """Who knows whom."""
        found = set()
        for at, source in self.sources.items():
            for steps in source.uses:
                to = self.resolve(at, steps)
                if to is not None and to != at:
                    found.add((at, to))
        return found

    @cached_property
    def folders(self) -> dict[Module, Graph]:
        """Of each folder, what is in it and who knows whom there."""
        places = self.sources.keys()
        folders = {place[:depth] for place in places for depth in range(len(place))}
        graphs: dict[Module, Graph] = {folder: {} for folder in folders}
        for place in places:
            for depth in range(len(place)):
                graphs[place[:depth]].setdefault(place[depth], set())
        for at, to in self.arrows:
            pairs = enumerate(zip(at, to, strict=False))
            for depth in [depth for depth, (here, there) in pairs if here != there][:1]:
                graphs[at[:depth]][at[depth]].add(to[depth])
        return graphs

    def is_folder(self, place: Module) -> bool:
        """Whether other modules are in it."""
        return place in self.folders

    def cycles(self) -> Iterator[tuple[Module, list[str]]]:
        """Each folder with the members of a cycle in it."""
        for folder, graph in self.folders.items():
            yield from ((folder, cycle) for cycle in knots(graph))

    def figures(self) -> dict[str, int]:
        """What `tests/modules.toml` limits."""
        cycles = list(self.cycles())
        mixed = [
            cycle for at, cycle in cycles if any(self.is_folder((*at, name)) for name in cycle)
        ]
        largest = max((len(cycle) for _, cycle in cycles), default=0)
        return {"folder_cycles": len(mixed), "largest_cycle": largest}


def knots(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Sets of two nodes and more that all reach each other."""
    reached = {name: set(others) for name, others in graph.items()}
    for middle in graph:
        for others in reached.values():
            if middle in others:
                others |= reached[middle]
    found = []
    for name, others in sorted(reached.items()):
        knot = sorted(other for other in others if name in reached[other])
        if len(knot) > 1 and knot[0] == name:
            found.append(knot)
    return found


def layers(graph: Graph) -> list[list[str]]:
    """From the top: what nobody above knows; the members of a cycle stand together."""
    cycles = knots(graph)
    knot = {name: cycle[0] for cycle in cycles for name in cycle}
    groups: Graph = {}
    for name, others in graph.items():
        group = groups.setdefault(knot.get(name, name), set())
        group |= {knot.get(other, other) for other in others}
    for name in groups:
        groups[name].discard(name)
    members = {cycle[0]: cycle for cycle in cycles}
    rows = []
    while groups:
        known = set().union(*groups.values())
        top = sorted(groups.keys() - known)
        rows.append([name for group in top for name in members.get(group, [group])])
        groups = {name: others for name, others in groups.items() if name not in top}
    return rows


def picture(graph: Graph) -> str:
    """A line a module, from the top: its name, and what it knows."""
    order = [name for row in layers(graph) for name in row]
    lines = []
    for name in order:
        known = [other for other in order if other in graph[name]]
        lines.append(f"{name:<12} -> {' '.join(known)}".removesuffix(" -> ").rstrip())
    return "\n".join(lines)


def crates() -> list[Crate]:
    """Every Rust crate of the product."""
    manifests = sorted((ROOT / "rust").glob("*/Cargo.toml"))
    return [Crate(path.parent.name, path.parent / "src") for path in manifests]


def table(found: list[Crate]) -> str:
    """A line a crate."""
    lines = [f"{'crate':<12}{'modules':>8}{'folders':>8}{'folder cycles':>15}{'largest':>9}"]
    for crate in found:
        figures = crate.figures()
        folders = sum(crate.is_folder((*place,)) for place in crate.sources if place)
        lines.append(
            f"{crate.name:<12}{len(crate.sources):>8}{folders:>8}"
            f"{figures['folder_cycles']:>15}{figures['largest_cycle']:>9}"
        )
    return "\n".join(lines)


def engine_of(found: list[Crate]) -> Graph:
    """The folders of the engine."""
    (engine,) = (crate for crate in found if crate.name == "broker")
    return engine.folders[()]


def check(found: list[Crate]) -> list[str]:
    """What is not as `tests/modules.toml` says."""
    allowed = tomllib.loads(ALLOWED.read_text())
    problems = []
    for crate in found:
        limits = allowed["default"] | allowed.get(crate.name, {})
        for name, value in crate.figures().items():
            if value > limits[name]:
                problems.append(
                    f"{crate.name}: {name} is {value}, at most {limits[name]} is allowed"
                )
            elif value < limits[name] and name in allowed.get(crate.name, {}):
                wanted = max(value, allowed["default"][name])
                if wanted < limits[name]:
                    wanted_in = f"write {wanted} into {ALLOWED.name}"
                    problems.append(f"{crate.name}: {name} is down to {value}: {wanted_in}")
    if picture(engine_of(found)) not in PICTURE.read_text():
        problems.append(f"{PICTURE.name} does not show what --draw broker prints")
    problems += [f"too long, and does not say why: {length}" for length in sizes.unexplained()]
    return problems


def main() -> int:
    """Prints what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--draw", metavar="CRATE")
    parser.add_argument("--cycles", metavar="CRATE")
    parser.add_argument("--sizes", action="store_true")
    arguments = parser.parse_args()
    if arguments.sizes:
        print(sizes.report())
        return 0
    found = crates()
    by_name = {crate.name: crate for crate in found}
    if arguments.draw:
        print(picture(by_name[arguments.draw].folders[()]))
        return 0
    if arguments.cycles:
        crate = by_name[arguments.cycles]
        for folder, cycle in crate.cycles():
            print("/".join(folder) or "src", len(cycle), " ".join(cycle))
            graph = crate.folders[folder]
            for name in cycle:
                print(f"    {name} -> {' '.join(sorted(graph[name] & set(cycle)))}")
        return 0
    problems = check(found) if arguments.check else []
    if arguments.check and not problems:
        return 0
    print(table(found))
    if problems:
        print("\n".join(problems), "python -m tests.modules --cycles CRATE shows where", sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
