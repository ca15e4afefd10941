"""The foreign clients: where each comes from, what it can do, how its driver is made."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
BUILT = ROOT / ".make" / "interop"
"""Where drivers are built; git ignores it."""
VERSIONS = {3: "3.1", 4: "3.1.1", 5: "5.0"}
OPEN = ("tcp", "websocket")
TRANSPORTS = (*OPEN, "tls", "wss")
BUILD_DEADLINE_S = 900
NO_3_1 = "no MQTT 3.1"
NO_WEBSOCKET = "the library has no WebSocket transport"
DRIVER = "the driver does not speak TLS"
NO_TLS: Mapping[int | str, str] = {"tls": DRIVER, "wss": DRIVER}


class BuildError(Exception):
    """A driver could not be made; the message is the end of what was printed."""


def run(command: Sequence[str | pathlib.Path], *, cwd: pathlib.Path, **environment: str) -> None:
    """Runs one step of a build.

    Raises:
        BuildError: it failed.
    """
    done = subprocess.run(  # noqa: S603 -- our own commands
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_DEADLINE_S,
        check=False,
    )
    if done.returncode:
        raise BuildError(f"{command[0]}: {done.stdout.strip()[-500:]}")


def missing(*programs: str) -> str:
    """Which of the programs are not here."""
    absent = [name for name in programs if shutil.which(name) is None]
    return f"{', '.join(absent)} is missing" if absent else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One library, or one set of commands."""

    key: str
    name: str
    source: str
    """Where it comes from, for the table."""
    command: Sequence[str | pathlib.Path]
    """The driver; host, port, version, transport and topic are added."""
    unable: Mapping[int | str, str] = field(default_factory=dict)
    """Versions and transports that the library does not have, and the reason."""
    lacks: Callable[[], str] = str
    """Why it cannot run here; empty: it can."""
    build: Callable[[], None] = lambda: None
    """Makes the driver; quick when it is there."""
    in_tests: bool = False
    """Whether `make test` runs it; the others take `make interop`."""

    def why_not(self, version: int, transport: str) -> str:
        """What the library lacks for this row; empty: nothing."""
        return self.unable.get(version) or self.unable.get(transport) or ""


# --- Python ---------------------------------------------------------------------------------------

PYTHON = BUILT / "python" / "bin" / "python"


def python_client(key: str, name: str, *, unable: Mapping[int | str, str] | None = None) -> Client:
    """A package of PyPI; they have an environment of their own."""
    return Client(
        key=key,
        name=name,
        source="PyPI",
        command=[PYTHON, HERE / "python" / f"{key}_driver.py"],
        lacks=lambda: "" if PYTHON.exists() else "`make .make/interop-python` has not run",
        in_tests=True,
        unable=unable or {},
    )


# --- Debian ---------------------------------------------------------------------------------------

PAHO_C = BUILT / "paho_c"


def paho_c_lacks() -> str:
    """The header is there when the library is."""
    if shutil.which("cc") is None:
        return "cc is missing"
    found = any(
        pathlib.Path(place, "MQTTClient.h").exists()
        for place in ("/usr/include", "/usr/local/include")
    )
    return "" if found else "libpaho-mqtt-dev is missing"


def build_paho_c() -> None:
    """Compiles the driver."""
    BUILT.mkdir(parents=True, exist_ok=True)
    source = HERE / "paho_c" / "driver.c"
    run(["cc", "-Wall", "-Wextra", "-O1", source, "-o", PAHO_C, "-lpaho-mqtt3cs"], cwd=ROOT)


# --- other languages ------------------------------------------------------------------------------

NPM_INSTALL = ("npm", "ci", "--no-audit", "--no-fund", "--loglevel=error")
PAHO_GO, RUMQTTC, JAVA = BUILT / "paho_go", BUILT / "rumqttc", BUILT / "java"
JAVA_PATH = f"{JAVA / 'classes'}:{JAVA / 'dependency' / '*'}"
POM = HERE / "java" / "pom.xml"


def copy_of(key: str, *names: str) -> pathlib.Path:
    """A driver's files in a folder of their own, where a package manager may add to them."""
    folder = BUILT / key
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        shutil.copyfile(HERE / key / name, folder / name)
    return folder


def build_mqttjs() -> None:
    """Installs what the lock file names."""
    folder = copy_of("mqttjs", "package.json", "package-lock.json", "driver.mjs")
    run(NPM_INSTALL, cwd=folder)


def build_nodered() -> None:
    """Installs what the lock file names."""
    folder = copy_of("nodered", "package.json", "package-lock.json", "driver.cjs")
    run(NPM_INSTALL, cwd=folder)


def build_paho_go() -> None:
    """Compiles against what `go.sum` names."""
    run(["go", "build", "-mod=readonly", "-o", PAHO_GO, "."], cwd=HERE / "paho_go")


def build_rumqttc() -> None:
    """Compiles against what `Cargo.lock` names."""
    folder = BUILT / "rumqttc-target"
    run(["cargo", "build", "--locked"], cwd=HERE / "rumqttc", CARGO_TARGET_DIR=str(folder))
    shutil.copy2(folder / "debug" / "mqttcore-interop-rumqttc", RUMQTTC)


def build_java() -> None:
    """Compiles against the versions of the POM; both Java clients share one build."""
    words = [f"-Dinterop.build={JAVA}", "compile", "dependency:copy-dependencies"]
    run(["mvn", "-q", "-B", "-ntp", *words, "-DincludeScope=runtime"], cwd=POM.parent)


def java_client(
    key: str, name: str, artifact: str, unable: Mapping[int | str, str] | None = None
) -> Client:
    """A library of Maven Central; the driver is told which, and which release that is."""
    release = POM.read_text().split(f"{artifact}</artifactId>")[1].split("version>")[1][:-2]
    return Client(
        key=key,
        name=name,
        source="Maven Central",
        command=["java", "-cp", JAVA_PATH, "Driver", key.partition("_")[0], release],
        unable={**NO_TLS, **(unable or {})},
        lacks=lambda: missing("java", "javac", "mvn"),
        build=build_java,
    )


CLIENTS = (
    python_client("paho", "paho-mqtt"),
    python_client("aiomqtt", "aiomqtt"),
    python_client(
        "gmqtt", "gmqtt", unable={3: NO_3_1, "websocket": NO_WEBSOCKET, "wss": NO_WEBSOCKET}
    ),
    python_client("amqtt", "amqtt (client)", unable={3: NO_3_1, 5: "the client speaks 3.1.1 only"}),
    Client(
        key="mosquitto",
        name="mosquitto_pub, _sub, _rr",
        source="Debian",
        command=[sys.executable, HERE / "mosquitto" / "driver.py"],
        unable=dict.fromkeys(
            ("websocket", "wss"), "the commands of 2.0 have no WebSocket transport"
        ),
        lacks=lambda: missing("mosquitto_pub", "mosquitto_sub", "mosquitto_rr", "stdbuf"),
        in_tests=True,
    ),
    Client(
        key="paho_c",
        name="Paho C",
        source="Debian",
        command=[PAHO_C],
        lacks=paho_c_lacks,
        build=build_paho_c,
        in_tests=True,
    ),
    Client(
        key="mqttjs",
        name="MQTT.js",
        source="npm",
        command=["node", BUILT / "mqttjs" / "driver.mjs"],
        lacks=lambda: missing("node", "npm"),
        build=build_mqttjs,
    ),
    Client(
        key="nodered",
        name="Node-RED",
        source="npm",
        command=["node", BUILT / "nodered" / "driver.cjs"],
        unable=NO_TLS,
        lacks=lambda: missing("node", "npm"),
        build=build_nodered,
    ),
    Client(
        key="paho_go",
        name="Paho Go",
        source="Go modules",
        command=[PAHO_GO],
        lacks=lambda: missing("go"),
        build=build_paho_go,
    ),
    Client(
        key="rumqttc",
        name="rumqttc",
        source="crates.io",
        command=[RUMQTTC],
        unable={3: NO_3_1, **NO_TLS},
        lacks=lambda: missing("cargo"),
        build=build_rumqttc,
    ),
    java_client("hivemq", "HiveMQ client", "hivemq-mqtt-client", {3: NO_3_1}),
    java_client("paho_java", "Paho Java", "org.eclipse.paho.mqttv5.client"),
)
