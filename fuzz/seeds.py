"""Write the packet vectors as seeds for the fuzz targets: ``python3 fuzz/seeds.py``.

A seed is the byte that chooses version and limits, then the bytes of the vector.
"""

import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHOICES = {"3.1": 0, "3.1.1": 1, "5.0": 2}


def main() -> None:
    """Write one file a vector and version into the corpus of each target."""
    for path in sorted((HERE.parent / "tests" / "vectors").glob("*.toml")):
        for vector in tomllib.loads(path.read_text())["vector"]:
            packet = bytes.fromhex("".join(vector["hex"].split()))
            for version in vector["versions"]:
                write(f"{vector['name']}_{version}", bytes([CHOICES[version]]) + packet)


def write(name: str, seed: bytes) -> None:
    """Write ``seed`` for both targets."""
    for target in ("decode", "roundtrip"):
        corpus = HERE / "corpus" / target
        corpus.mkdir(parents=True, exist_ok=True)
        (corpus / name).write_bytes(seed)


if __name__ == "__main__":
    main()
