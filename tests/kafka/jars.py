"""Jars of a Kafka node, of the connector of Spark, and of the file system of Hadoop for S3.

They come from Maven Central, pinned by checksum.

`jars.lock` names each jar with its SHA-256. Maven asks the repository of its own settings, or the
one that ``MAVEN_MIRROR`` names. ``python -m tests.kafka.jars`` writes the lock anew.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

HERE: Final = pathlib.Path(__file__).parent
LOCK: Final = HERE / "jars.lock"
HOME: Final = HERE.parents[1] / ".make" / "kafka"
PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.9.0:copy-dependencies"
MAVEN_S: Final = 600.0


class MissingToolError(Exception):
    """Java, Maven or a jar is not to be had here; the text says which, and how to get it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JarSet:
    """Jars that are used together."""

    name: str
    artifacts: Sequence[str]
    """``group:artifact:version``."""
    alone: bool = False
    """Without what these depend on."""

    @property
    def folder(self) -> pathlib.Path:
        """Where they are."""
        return HOME / "jars" / self.name

    @property
    def classpath(self) -> str:
        """All of them, for Java."""
        return ":".join(str(jar) for jar in sorted(self.folder.glob("*.jar")))


NODE: Final = JarSet(
    name="node", artifacts=("org.apache.kafka:kafka_2.13:4.3.1", "org.slf4j:slf4j-simple:1.7.36")
)
CONNECTOR: Final = JarSet(
    name="connector",
    artifacts=(
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.13.1",
    ),
    alone=True,
)
"""No version has all its parts in the repository, but these work with PySpark 4.2 and 4.3."""
S3A: Final = JarSet(
    name="s3a",
    artifacts=(
        "org.apache.hadoop:hadoop-aws:3.5.0",
        "software.amazon.awssdk:bundle:2.35.4",
        "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
    ),
    alone=True,
)
"""What checkpoints at ``s3a://`` need, of the version of Hadoop in PySpark 4.3: 700 MB."""


def java() -> str:
    """The command that runs Java 17 or newer.

    Raises:
        MissingToolError: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None)
    if found is None:
        raise MissingToolError("Java is missing (Debian: apt-get install openjdk-17-jre-headless)")
    return found


def maven() -> str:
    """The command that runs Maven.

    Raises:
        MissingToolError: there is none.
    """
    found = shutil.which("mvn")
    if found is None:
        raise MissingToolError("Maven is missing (Debian: apt-get install maven)")
    return found


def fetch(jars: JarSet) -> JarSet:
    """Has the jars of a set in its folder, each with the checksum of the lock.

    Raises:
        MissingToolError: Maven is missing, or does not get them.
        ValueError: a jar is not the one of the lock.
    """
    expected = locked(jars)
    if sums(jars.folder) != expected:
        download(jars)
        if (found := sums(jars.folder)) != expected:
            names = sorted(set(found.items()) ^ set(expected.items()))
            raise ValueError(f"{LOCK.name} does not name these jars of {jars.name!r}: {names}")
    return jars


def download(jars: JarSet) -> None:
    """Gets the jars with Maven."""
    command = maven()
    shutil.rmtree(jars.folder, ignore_errors=True)
    jars.folder.mkdir(parents=True)
    pom = jars.folder / "pom.xml"
    pom.write_text(pom_of(jars), encoding="utf-8")
    # a repository that could not be reached once is asked again
    options = ["-q", "-B", "-U", "-f", str(pom), *mirror(jars.folder / "settings.xml")]
    done = subprocess.run(  # noqa: S603 -- our own command
        [command, *options, PLUGIN, f"-DoutputDirectory={jars.folder}"],
        capture_output=True,
        text=True,
        timeout=MAVEN_S,
        check=False,
    )
    if done.returncode:
        raise MissingToolError(f"Maven does not get the jars: {done.stdout[-2000:]}")


def mirror(settings: pathlib.Path) -> list[str]:
    """The options that have Maven ask ``MAVEN_MIRROR`` instead of what its own settings name."""
    url = os.environ.get("MAVEN_MIRROR")
    if not url:
        return []
    settings.write_text(
        "<settings><mirrors><mirror><id>mirror</id><mirrorOf>*</mirrorOf>"
        f"<url>{escape(url)}</url></mirror></mirrors></settings>",
        encoding="utf-8",
    )
    return ["-s", str(settings)]


def pom_of(jars: JarSet) -> str:
    """What Maven is told of a set."""
    nothing = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    without = f"<exclusions>{nothing}</exclusions>" if jars.alone else ""
    named = [artifact.split(":") for artifact in jars.artifacts]
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{without}</dependency>"
        for group, artifact, version in named
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>mqttcore</groupId>"
        f"<artifactId>{jars.name}</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def sums(folder: pathlib.Path) -> dict[str, str]:
    """The jars of a folder and their checksums."""
    return {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in folder.glob("*.jar")}


def locked(jars: JarSet) -> dict[str, str]:
    """The same as the lock says."""
    lines = [line.split() for line in LOCK.read_text(encoding="utf-8").splitlines()]
    return {name: digest for kind, name, digest in lines if kind == jars.name}


def lock(sets: Mapping[str, dict[str, str]]) -> str:
    """The text of a lock."""
    lines = [f"{kind} {name} {one}" for kind, jars in sets.items() for name, one in jars.items()]
    return "\n".join(sorted(lines)) + "\n"


if __name__ == "__main__":
    for one in (NODE, CONNECTOR, S3A):
        download(one)
    LOCK.write_text(lock({one.name: sums(one.folder) for one in (NODE, CONNECTOR, S3A)}))
    sys.exit(0)
