"""Long functions and files of the product: `python -m tests.modules --sizes`.

Lines of code are counted: without blank lines, comments, docstrings and what only tests compile
(`cfg(test)`, the feature `faults`, builds under loom and shuttle). A long function has to say why
in its documentation: "Longer than other functions: ...".
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
FUNCTION_LINES, FILE_LINES = 40, 400

TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|b?r(#*)\".*?\"\1|b?\"(?:\\.|[^\"\\])*\"|b?'(?:\\.|[^'\\])'", re.DOTALL
)
TESTS = re.compile(r"#\[cfg\((?:all\()?test\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*mod \w+ \{")
TEST_FILE = re.compile(
    r'#\[cfg\((?:all\()?(?:test|feature = "faults"|any\(loom)[^\]]*\]\s*(?:pub )?mod (\w+);'
)
FUNCTION = re.compile(r"\bfn (\w+)")
WHY = re.compile(r"longer than other functions", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Length:
    """Lines of code of a function, or of a file if it has no name."""

    file: str
    line: int
    name: str
    lines: int
    says_why: bool = False
    """Its documentation has the reason of its length."""

    @property
    def is_long(self) -> bool:
        """Whether it is above its limit."""
        return self.lines > (FUNCTION_LINES if self.name else FILE_LINES)

    def __str__(self) -> str:
        why = " (says why)" * self.says_why
        return f"{self.lines:>5} {self.file}:{self.line} {self.name}{why}".rstrip()


def without_texts(source: str) -> str:
    """Rust source with comments gone and texts empty; each line stays on its line."""

    def blank(found: re.Match[str]) -> str:
        return ('""' if found[0][-1] in "\"#'" else "") + "\n" * found[0].count("\n")

    return TOKEN.sub(blank, source)


def end_of_block(source: str, start: int) -> int:
    """Behind the brace that closes the block that is open at `start`."""
    depth = 1
    for found in re.compile(r"[{}]").finditer(source, start):
        depth += 1 if found[0] == "{" else -1
        if not depth:
            return found.end()
    return len(source)


def rust(file: str, text: str) -> Iterator[Length]:
    """A Rust file and its functions. A function inside of another counts in both."""
    source, written = product(text), text.splitlines()
    yield Length(file, 1, "", code_lines(source))
    for found in FUNCTION.finditer(source):
        opening = re.compile(r"[;{]").search(re.sub(r"\[[^\]]*\]", blank_of, source), found.end())
        if opening and opening[0] == "{":
            body = source[found.start() : end_of_block(source, opening.end())]
            line = source.count("\n", 0, found.start()) + 1
            says_why = bool(WHY.search(documentation(written[: line - 1])))
            yield Length(file, line, found[1], code_lines(body), says_why)


def product(text: str) -> str:
    """Rust source without comments, texts and what only tests compile; each line stays."""
    source = without_texts(text)
    while tests := TESTS.search(source):
        end = end_of_block(source, tests.end())
        lines = "\n" * source.count("\n", tests.start(), end)
        source = source[: tests.start()] + lines + source[end:]
    return source


def documentation(above: list[str]) -> str:
    """The text of the documentation comment at the end of these lines, attributes left out."""
    texts: list[str] = []
    for line in map(str.strip, reversed(above)):
        if line.startswith("///"):
            texts.insert(0, line.removeprefix("///").strip())
        elif not line or texts or line[-1] in "{};":
            break
    return " ".join(texts)


def blank_of(found: re.Match[str]) -> str:
    """As long, without the `;` of an array type."""
    return found[0].replace(";", " ")


def code_lines(source: str) -> int:
    """Lines that are not blank."""
    return sum(1 for line in source.splitlines() if line.strip())


def python(file: str, text: str) -> Iterator[Length]:
    """A Python file and its functions."""
    skipped = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            lines.update(range(token.start[0], token.end[0] + 1))
    tree = ast.parse(text)
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, *functions)) and ast.get_docstring(node):
            docstring = node.body[0]
            lines -= set(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    yield Length(file, 1, "", len(lines))
    for node in ast.walk(tree):
        if isinstance(node, functions):
            own = range(node.lineno, (node.end_lineno or 0) + 1)
            why = bool(WHY.search(" ".join((ast.get_docstring(node) or "").split())))
            yield Length(file, node.lineno, node.name, len(lines & set(own)), why)


def lengths() -> Iterator[tuple[str, list[Length]]]:
    """Of each crate and each Python package, its files and functions."""
    for folder in sorted((ROOT / "rust").glob("*/src")):
        yield folder.parent.name, lengths_in(folder, "rs")
    yield "mqttcore", lengths_in(ROOT / "python/mqttcore", "py")


def lengths_in(folder: Path, ending: str) -> list[Length]:
    """All files below a folder, and their functions."""
    read = rust if ending == "rs" else python
    paths = sorted(folder.rglob(f"*.{ending}"))
    tests = {
        owner.parent / ("" if owner.stem in {"lib", "mod"} else owner.stem) / name
        for owner in paths
        for name in TEST_FILE.findall(owner.read_text())
    }
    return [
        length
        for path in paths
        if not tests & {path.with_suffix(""), *path.parents}
        for length in read(str(path.relative_to(ROOT)), path.read_text())
    ]


def unexplained() -> list[Length]:
    """Long files, and long functions that do not say why."""
    found = (length for _, of_crate in lengths() for length in of_crate)
    return [length for length in found if length.is_long and not length.says_why]


def report() -> str:
    """A line a crate, then a line for each long file and each long function."""
    header = ("crate", "code", "files", "long", "functions", "long", "longest")
    rows: list[tuple[object, ...]] = [header]
    long: list[Length] = []
    for name, found in lengths():
        files = [length for length in found if not length.name]
        functions = [length for length in found if length.name]
        rows.append(
            (
                name,
                sum(length.lines for length in files),
                len(files),
                sum(length.is_long for length in files),
                len(functions),
                sum(length.is_long for length in functions),
                max((length.lines for length in functions), default=0),
            )
        )
        long += [length for length in found if length.is_long]
    sums = [[row[column] for row in rows[1:]] for column in range(1, 6)]
    rows.append(("all", *(sum(map(int, map(str, column))) for column in sums), ""))
    lines = ["".join(f"{cell!s:>10}" for cell in row) for row in rows]
    long.sort(key=lambda length: (bool(length.name), -length.lines))
    return "\n".join([*lines, *map(str, long)])
