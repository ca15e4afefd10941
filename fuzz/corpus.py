"""The corpus of the fuzz targets: ``fuzz/corpus.py write`` before a run, ``keep`` after it.

``write`` writes the packet vectors and the kept inputs into ``fuzz/corpus``, a file for each.
``keep`` writes ``fuzz/corpus`` into ``fuzz/kept/TARGET.hex``, one input in each line; the tests of
the codec and of the decoders run them. First make the corpus small: ``cargo +nightly fuzz cmin``.
"""

import hashlib
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
CORPUS = HERE / "corpus"
KEPT = HERE / "kept"
CHOICES = {"3.1": 0, "3.1.1": 1, "5.0": 2}
LONGEST = 1024
"""Longer inputs are not kept, in bytes."""


def main(action: str) -> None:
    """Run ``action``: ``write`` or ``keep``."""
    if action == "write":
        write_vectors()
        write_kept()
    elif action == "keep":
        keep()
    else:
        raise SystemExit(f"corpus.py: {action!r} is no action; use write or keep")


def write_vectors() -> None:
    """Write an input for each vector and version: a byte that chooses them, then the packet."""
    for path in sorted((HERE.parent / "tests" / "vectors").glob("*.toml")):
        for vector in tomllib.loads(path.read_text())["vector"]:
            packet = bytes.fromhex("".join(vector["hex"].split()))
            for version in vector["versions"]:
                for target in ("decode", "roundtrip"):
                    write(target, bytes([CHOICES[version]]) + packet)


def write_kept() -> None:
    """Write the kept inputs of each target."""
    for path in sorted(KEPT.glob("*.hex")):
        for line in path.read_text().split():
            write(path.stem, bytes.fromhex(line))


def write(target: str, data: bytes) -> None:
    """Write one input, with the name that libFuzzer would give it."""
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / hashlib.sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)


def keep() -> None:
    """Write the inputs of each target into a file, sorted, without the longest."""
    KEPT.mkdir(exist_ok=True)
    for folder in sorted(CORPUS.iterdir()):
        inputs = {path.read_bytes() for path in folder.iterdir()}
        kept = sorted(data.hex() for data in inputs if 0 < len(data) <= LONGEST)
        (KEPT / f"{folder.name}.hex").write_text("\n".join(kept) + "\n")
        print(f"{folder.name}: {len(kept)} of {len(inputs)} inputs kept")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) == 2 else "")
