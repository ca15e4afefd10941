"""Locations of tables and checkpoints: folders, or URIs of an object store.

Driver and executors access an object store through delta-rs: no jar is needed, and options have the
names of delta-rs.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    import pyarrow.fs as pafs

__all__ = ["Location", "check_location", "located"]

SCHEMES: Final = ("abfs", "abfss", "az", "gs", "s3", "s3a")
"""Schemes that delta-rs knows, and Spark for checkpoints if it has the jar."""


@dataclass(frozen=True, slots=True)
class Location:
    """A folder, as an absolute path or as a URI without a slash at its end."""

    made_from_text: ClassVar[bool] = True

    text: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options of the object store; they may have secrets."""

    def __post_init__(self) -> None:
        """Checks the scheme.

        Raises:
            ValueError: it is not one that `SCHEMES` has.
        """
        check_location(self.text)
        object.__setattr__(self, "text", self.text.rstrip("/") if self.is_remote else self.text)

    def __str__(self) -> str:
        return self.text

    def __truediv__(self, name: str) -> "Location":
        return Location(f"{self.text}/{name}", self.options)

    @property
    def is_remote(self) -> bool:
        """Whether it is in an object store."""
        return "://" in self.text

    @property
    def path(self) -> Path:
        """The folder; only for a location that is not remote."""
        return Path(self.text)

    def filesystem(self) -> "pafs.FileSystem":
        """The file system of a remote location."""
        import pyarrow.fs as pafs
        from deltalake.fs import DeltaStorageHandler

        return pafs.PyFileSystem(DeltaStorageHandler(self.text, dict(self.options)))

    def read_text(self, name: str) -> str:
        """The text of a file.

        Raises:
            OSError: it cannot be read.
        """
        if not self.is_remote:
            return (self.path / name).read_text()
        with self.filesystem().open_input_stream(name) as file:
            return bytes(file.read()).decode()

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder of the location; none if it does not exist.

        Raises:
            OSError: it cannot be read.
        """
        if not self.is_remote:
            place = self.path / folder
            return [each.name for each in place.iterdir()] if place.is_dir() else []
        import pyarrow.fs as pafs

        found = self.filesystem().get_file_info(pafs.FileSelector(folder, allow_not_found=True))
        return [each.base_name for each in found]


def check_location(text: str) -> None:
    """Refuses text that is neither a path nor a URI of a scheme in `SCHEMES`."""
    if not text:
        raise ValueError("is empty")
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):/", text)
    if scheme and scheme[1] not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise ValueError(f"{scheme[1]}:// is not supported; a path, or one of {known}")
    if scheme and not re.fullmatch(r"[a-z0-9]+://[^/\s]+(/\S*)?", text):
        raise ValueError(f"{text!r} names no bucket or container: write s3a://bucket/folder")


def located(place: Location | Path, options: Mapping[str, str]) -> Location:
    """A location of a pipeline, with the options of its object store."""
    if isinstance(place, Path):
        return Location(str(place.absolute()))
    return Location(place.text, options) if place.is_remote else place
