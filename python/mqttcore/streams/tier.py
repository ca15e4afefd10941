"""The configuration of object storage for a stream's sealed files: ``[streams.tier]``."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

from mqttcore._core import has_object_stores
from mqttcore._record import Record
from mqttcore._schema import Parsed, Range
from mqttcore.streams.ages import Age, age_s

if TYPE_CHECKING:
    from mqttcore.streams.settings import Stream

PLACE: Final = r"file:///[^?#]*[^/?#][^?#]*|(s3|s3a|gs|abfs|abfss|az)://[^/?#]+(/[^?#]*)?"
ALLOWED: Final = "file:///folder, s3://, s3a://, gs://, abfs://, abfss:// or az://"


def check_url(text: str) -> None:
    """Refuses URLs that name no folder and no bucket."""
    if not re.fullmatch(PLACE, text):
        raise ValueError(f"{text!r} is not a place for objects")


def check_option(text: str) -> None:
    """Refuses what is not ``NAME=value``."""
    if not re.match(r"[A-Za-z][A-Za-z0-9_]*=", text):
        raise ValueError(f"{text!r} is not an option of a store")


Url = Annotated[str, Parsed(check_url, ALLOWED)]
Option = Annotated[str, Parsed(check_option, "NAME=value, as AWS_REGION=eu-central-1")]


class Tier(Record):
    """Object storage for the sealed files of a stream."""

    url: Url
    """``file:///folder`` for a mounted folder, ``s3://bucket/prefix``, ``gs://``, ``abfss://``."""
    storage: tuple[Option, ...] = ()
    """Options of the store, as ``AWS_ENDPOINT_URL=...``; secrets belong into the environment."""
    upload_after: Age = "5m"
    """How long a small file waits for others to merge with before it is uploaded."""
    local_age: Age | None = None
    """Uploaded files of this age are removed here; None: they stay."""
    local_bytes: Annotated[int, Range(0, 2**63 - 1)] | None = None
    """Beyond so many bytes here the oldest uploaded files are removed here; None: they stay."""
    grace: Age = "1h"
    """How long a file or an object stays for readers that have begun to read it."""

    @property
    def storage_options(self) -> list[tuple[str, str]]:
        """Names and values of the options."""
        return [(name, value) for name, _, value in (text.partition("=") for text in self.storage)]

    @property
    def upload_after_s(self) -> int:
        """The wait in seconds."""
        return age_s(self.upload_after)

    @property
    def local_age_s(self) -> int | None:
        """The age in seconds."""
        return age_s(self.local_age) if self.local_age else None

    @property
    def grace_s(self) -> int:
        """The grace in seconds."""
        return age_s(self.grace)


def check_tier(stream: "Stream", fault: Callable[..., None]) -> None:
    """Refuses a store that this build has not, and a Delta table whose files would go away."""
    tier = stream.tier
    if tier is None:
        return
    if not tier.url.startswith("file://") and not has_object_stores:
        fault(
            "tier.url",
            "needs a build with object stores: use file:// and a folder, install the wheel, or in"
            " a checkout: make build FEATURES=tier",
        )
    if tier.url.startswith("file://") and tier.storage:
        fault("tier.storage", "has no effect: a folder has no options; remove it")
    if stream.delta and (tier.local_age is not None or tier.local_bytes is not None):
        fault(
            "delta",
            "has links to the files here: without tier.local_age and tier.local_bytes they stay",
        )
