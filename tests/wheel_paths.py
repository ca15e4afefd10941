"""Takes the folder of a build out of a wheel: `python -m tests.wheel_paths WHEEL FOLDER`.

The bill of materials that maturin writes names the crates of this repository by their folder on the
machine, so wheels of two folders would differ (docs/adr/0068). The compiler replaces that folder by
`/mqttcore`; this does the same in the texts of `dist-info`, and corrects RECORD. It fails if a
member names the folder still. Part of `make wheel`.
"""

from __future__ import annotations

import base64
import hashlib
import sys
import zipfile
from pathlib import Path
from typing import Final

NEUTRAL: Final = b"/mqttcore"
Members = list[tuple[zipfile.ZipInfo, bytes]]


def read_members(wheel: Path) -> Members:
    """All members, in their order."""
    with zipfile.ZipFile(wheel) as archive:
        return [(each, archive.read(each)) for each in archive.infolist()]


def record_line(name: str, data: bytes) -> str:
    """A line of RECORD: the path, the digest and the size."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}"


def without(folder: bytes, members: Members) -> Members:
    """The members with `/mqttcore` for the folder in the texts of `dist-info`."""
    replaced = {
        info.filename: data.replace(folder, NEUTRAL)
        for info, data in members
        if ".dist-info/" in info.filename and folder in data
    }
    lines = {name: record_line(name, data) for name, data in replaced.items()}
    for info, data in members:
        if info.filename.endswith(".dist-info/RECORD"):
            old = data.decode().splitlines()
            new = [lines.get(line.split(",")[0], line) for line in old]
            replaced[info.filename] = ("\n".join(new) + "\n").encode()
    return [(info, replaced.get(info.filename, data)) for info, data in members]


def write_members(wheel: Path, members: Members) -> None:
    """Replaces the wheel."""
    new = wheel.with_name(wheel.name + ".new")
    with zipfile.ZipFile(new, "w") as archive:
        for info, data in members:
            archive.writestr(info, data, compress_type=info.compress_type)
    new.replace(wheel)


def main(arguments: list[str]) -> int:
    """Changes one wheel; 1 if it names the folder still."""
    wheel, folder = Path(arguments[0]), arguments[1].encode()
    members = without(folder, read_members(wheel))
    if left := [info.filename for info, data in members if folder in data]:
        print(f"{wheel.name}: {arguments[1]} is named in {', '.join(left)}", file=sys.stderr)
        return 1
    write_members(wheel, members)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
