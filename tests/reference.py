"""Writes the lists that users look up from the code: `python -m tests.reference`.

They are in `docs/reference.md`. With `--check`, which is part of `make check`, it fails if the page
differs from the code.
"""

from __future__ import annotations

import ast
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/reference.md"
# Where the crates above the engine declare their keys of `Broker.stats()`.
FIGURES = (
    "rust/streams/src/row_streams.rs",
    "rust/streams/src/kafka/producer.rs",
    "rust/http/src/lib.rs",
)
COUNTERS = """Keys of `Broker.stats()`. Those from `connections_accepted` to
`held_back_retained_bytes` are counted by listener, too: `listeners/NAME/` and the key, from the
first one on.

"""
INTRODUCTION = """# Reference

Generated from the code by `python -m tests.reference`; `make check` fails if the two differ.

[Configuration](#configuration) · [Counters](#counters) · [$SYS topics](#sys-topics) ·
[Metrics](#metrics) · [HTTP routes](#http-routes) · [Spark options](#spark-options) ·
[Pipelines](#pipelines) · [Folders](#folders)
"""


def source(path: str) -> str:
    """The text of a file of this repository."""
    return (ROOT / path).read_text()


def table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    """A table of Markdown."""
    lines = [head, tuple("---" for _ in head), *rows]
    escaped = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


def configuration() -> Iterator[tuple[str, ...]]:
    """Each key of `examples/mqttcore.toml`: table, key, default, meaning."""
    place, previous = "", ""
    line = re.compile(
        r"^(?P<out># )?(?P<key>\w+) =\s*(?P<value>(?:\"[^\"]*\"|[^#\"])*?)"
        r"\s*(?:#\s(?P<meaning>.*))?$"
    )
    for text in source("examples/mqttcore.toml").splitlines():
        if header := re.match(r"^(?:# )?(\[+[\w.]+\]+)(?:\s+#.*)?$", text):
            place = header[1]
        elif found := line.match(text):
            value, meaning = found["value"], found["meaning"] or f"for example `{found['value']}`"
            is_example = found["out"] and re.search("[Dd]efault|[Rr]equired|for example", meaning)
            default = f"`{value}`" if value and not is_example else ""
            key = f"`{found['key']}`"
            if key != previous:
                yield place or "top level", key, default, meaning
            previous = key


def counters() -> Iterator[tuple[str, ...]]:
    """Each key of `Broker.stats()` with its meaning."""
    text = source("rust/broker/src/runtime/metrics.rs")
    field = re.compile(r"((?: *///[^\n]*\n)+) *(\w+),\n")
    for comment, name in field.findall(text[text.index("of_shards:\n") :]):
        meaning = " ".join(
            part.strip().removeprefix("///").strip() for part in comment.splitlines()
        )
        yield f"`{name}`", meaning
    figure = re.compile(r'Figure::new\(\s*"(\w+)",\s*"([^"]+)"')
    for path in FIGURES:
        for name, meaning in figure.findall(source(path)):
            yield f"`{name}`", meaning


def sys_topics() -> Iterator[tuple[str, ...]]:
    """Each topic below `$SYS/broker` and the counters that it sums."""
    text = source("rust/broker/src/sys_topics.rs")
    body = text[text.index("fn topics(") : text.index("fn publish_figure(")]
    function = text[text.index("fn dropped(") : text.index("fn topics(")]
    body = body.replace("dropped(stats)", " + ".join(re.findall(r"stats\.\w+", function)))
    sums = dict(re.findall(r"let (\w+) = ([^;]+);", body))
    for name, value in re.findall(
        r"\(\s*\"([^\"]+)\",\s*([^()]*(?:\([^()]*\)[^()]*)*?),?\s*\)", body
    ):
        summed = sums.get(value, value)
        sign = " - " if "saturating_sub" in summed else " + "
        fields = re.findall(r"stats\.(\w+)", summed)
        yield f"`$SYS/broker/{name}`", sign.join(f"`{field}`" for field in fields)
    loads = text[text.index("fn loads(") : text.index("fn publish_load(")]
    for name in re.findall(r"\"([a-z/]+)\",", loads):
        for period in ("1min", "5min", "15min"):
            yield f"`$SYS/broker/load/{name}/{period}`", "average a minute, with two digits"
    yield "`$SYS/broker/listeners/NAME/COUNTER`", "a counter of one listener, from the first on"
    yield "`$SYS/broker/clients/maximum`", "most sessions that an interval has seen"
    yield "`$SYS/broker/heap/maximum`", "most `memory_used_bytes` that an interval has seen"
    yield "`$SYS/broker/uptime`", "`uptime_s`, followed by ` seconds`"
    yield "`$SYS/broker/version`", "name and version of the broker"
    yield "`$SYS/broker/durability`", "the configured durability of messages (docs/durability.md)"
    figures = source("rust/broker/src/durability/store.rs")
    figures = figures[figures.index("fn figures(") : figures.index("fn write_clock_note(")]
    for name in re.findall(r"\(\s*\"([a-z0-9_]+)\",", figures):
        yield f"`$SYS/broker/store/{name}`", "figure of the store"
    for name in re.findall(r"\"(streams/[^\"]+)\"", source("rust/streams/src/row_streams.rs")):
        topic = name.replace("{name}", "STREAM")
        yield f"`$SYS/broker/{topic}`", "of all streams" if topic == name else "of one stream"
    yield "`$SYS/spark/QUERY`", "progress of a query that reads streams, as JSON"


def routes() -> Iterator[tuple[str, ...]]:
    """Each route of the endpoint: method, path."""
    for path in ("livez", "healthz", "readyz", "metrics"):
        yield "`GET`", f"`/{path}`"
    text = source("rust/http/src/app.rs")
    for steps, method in re.findall(r"\[(\"v1\",[^\]]+)\] => \{\s*is\(Method::(\w+)", text):
        parts = [part.strip() for part in steps.split(",")]
        path = "/".join(part.strip('"') if '"' in part else f"{{{part}}}" for part in parts)
        yield f"`{method}`", f"`/{path}`"


def metrics() -> Iterator[tuple[str, ...]]:
    """Each metric family: name as a scrape has it, kind, label, meaning."""
    text = source("rust/http/src/metrics/families.rs")
    family = re.compile(
        r'family\("(\w+)", (\w+), "([^"]+)",\s*(.*?)\n?(?=\n    family|\n\n|\n\];)', re.DOTALL
    )
    for name, kind, meaning, values in family.findall(text):
        suffix = {"Counter": "_total", "Info": "_info"}.get(kind, "")
        label = re.match(r'(?:By(?:Listener)?|DropsByQos)\("(\w+)"', values)
        several = re.match(r"(?:Each|Durations)\(&\[([^]]+)\]", values)
        texts = ", ".join(f"`{text}`" for text in re.findall(r'(?:part|less)\("(\w+)"', values))
        labels = several[1].replace('"', "`") if several else ""
        labels = f"`{label[1]}`: {texts}" if label else labels
        if actions := re.findall(r'limit\("(\w+)", "(\w+)"', values):
            limits, acts = (
                ", ".join(f"`{text}`" for text in dict.fromkeys(texts))
                for texts in zip(*actions, strict=True)
            )
            labels = f"`listener`, `limit`: {limits}, `action`: {acts}"
        if values.startswith("DropsByQos("):
            labels += ", `qos`"
        if re.match(r"(?:One)?ByListener\(", values):
            labels = f"`listener`, {labels}" if label else "`listener`"
        yield f"`{name}{suffix}`", kind.lower(), labels, meaning


def options(path: str) -> str:
    """The table in a module's docstring, and the paragraph after it."""
    docstring = ast.get_docstring(ast.parse(source(path))) or ""
    rows, _, rest = docstring[docstring.index("|") :].partition("\n\n")
    return f"{rows}\n\n{rest.partition(chr(10) * 2)[0]}".replace("``", "`")


def pipelines() -> Iterator[tuple[str, ...]]:
    """Each key of the file of a pipeline: table, key, default, meaning."""
    tree = ast.parse(source("python/mqttcore/pipeline/config.py"))
    classes = {each.name: each for each in tree.body if isinstance(each, ast.ClassDef)}
    places = {
        "Pipeline": "top level",
        "Source": "[source]",
        "Bronze": "[bronze]",
        "Silver": "[silver]",
        "Gold": "[[gold]]",
        "Alert": "[[alerts]]",
        "Spark": "[spark]",
    }
    for name, place in places.items():
        for field, text in itertools.pairwise(classes[name].body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                default = "required" if field.value is None else toml(field.value)
                meaning = " ".join(ast.literal_eval(text.value).split()).replace("``", "`")
                yield place, f"`{ast.unparse(field.target)}`", default, meaning


def folders() -> Iterator[tuple[str, ...]]:
    """Each folder of the crates and of the Python packages, with the first sentence about it."""
    crates = (*ROOT.glob("rust/*/src/lib.rs"), *ROOT.glob("rust/*/src/**/mod.rs"))
    heads = {path: re.match(r"(?://!.*\n)+", path.read_text()) for path in crates}
    texts = {path: re.sub("(?m)^//! ?", "", head[0]) for path, head in heads.items() if head}
    for path in ROOT.glob("python/*/**/__init__.py"):
        texts[path] = ast.get_docstring(ast.parse(path.read_text())) or ""
    for path, text in sorted(texts.items(), key=lambda found: found[0].parent):
        if path.parent.name != "tests":
            sentence = re.split(r"(?<=\.)\s|\n\n", text)[0].replace("\n", " ").strip()
            linked = re.sub(r"\[(`[^`]+`)\](?:\([^)]*\))?", r"\1", sentence)
            yield f"`{path.parent.relative_to(ROOT)}`", linked.replace("``", "`")


def toml(value: ast.expr) -> str:
    """A default as a file has it; nothing for None."""
    text = ast.unparse(value.args[0] if isinstance(value, ast.Call) else value)
    words = {"True": "true", "False": "false", "()": "[]"}
    text = words.get(text, text).replace("'", '"')
    return "" if text == "None" else f"`{text}`"


def page() -> str:
    """The whole page."""
    sections = {
        "Configuration": table(("table", "key", "default", "meaning"), configuration()),
        "Counters": COUNTERS + table(("key", "meaning"), counters()),
        "$SYS topics": table(("topic", "value"), sys_topics()),
        "Metrics": "Families of `/metrics`, of [http].\n\n"
        + table(("family", "kind", "label", "meaning"), metrics()),
        "HTTP routes": "Of [http] and of streams.\n\n" + table(("method", "path"), routes()),
        "Spark options": "For reading:\n\n"
        + options("python/mqttcore/spark/options.py")
        + "\n\nFor writing:\n\n"
        + options("python/mqttcore/spark/sink_options.py"),
        "Pipelines": "Keys of the file of `mqttcore pipeline`, as `examples/factory/pipeline.toml`."
        "\n\n" + table(("table", "key", "default", "meaning"), pipelines()),
        "Folders": "Of the crates and of the Python packages; [architecture.md](architecture.md)"
        " says which one uses which.\n\n" + table(("folder", "contents"), folders()),
    }
    parts = [f"## {title}\n\n{text}\n" for title, text in sections.items()]
    return "\n".join([INTRODUCTION, *parts])


def main() -> int:
    """Writes the page, or compares it."""
    text = page()
    if "--check" not in sys.argv:
        PAGE.write_text(text)
        return 0
    if PAGE.exists() and PAGE.read_text() == text:
        return 0
    print("docs/reference.md is not what the code says: run python -m tests.reference")
    return 1


if __name__ == "__main__":
    sys.exit(main())
