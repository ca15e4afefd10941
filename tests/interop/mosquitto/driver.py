"""mosquitto_pub, mosquitto_sub and mosquitto_rr: 3.1, 3.1.1 and 5.0, over TCP and TLS."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable

PATIENCE_S = 10
VERSIONS = {3: "mqttv31", 4: "mqttv311", 5: "mqttv5"}
NUMBERS = [str(number) for number in range(10)]


class Tools:
    """The three commands, at one broker."""

    def __init__(self, host: str, port: str, version: int, transport: str, topic: str) -> None:
        self.place = ["-h", host, "-p", port, "-V", VERSIONS[version]]
        if transport == "tls":
            self.place += ["--cafile", os.environ["SSL_CERT_FILE"]]
        self.version, self.topic = version, topic
        self.running: list[subprocess.Popen[str]] = []

    def pub(self, *words: str, given: str | None = None) -> None:
        """Publishes, and waits for the end of the flow."""
        command = ["mosquitto_pub", *self.place, *words]
        subprocess.run(command, input=given, text=True, timeout=PATIENCE_S, check=True)  # noqa: S603 -- fixed words

    def sub(self, *words: str, count: int = 1, resumes: bool = False) -> subprocess.Popen[str]:
        """A subscriber whose SUBACK has come; it ends after `count` messages.

        One that resumes may have them before its SUBACK.
        """
        # Into a pipe it would print when its buffer is full; `stdbuf` has each line at once.
        command = ["stdbuf", "-oL", "mosquitto_sub", *self.place, "-d", "-C", str(count)]
        command += ["-W", str(PATIENCE_S), "-F", "> %q %r %t %p", *words]
        one = self.start(command)
        if resumes:
            return one
        assert one.stdout is not None
        for line in iter(one.stdout.readline, ""):
            if line.startswith("Subscribed "):
                return one
        raise ConnectionError("mosquitto_sub ended before it was subscribed")

    def start(self, command: list[str]) -> subprocess.Popen[str]:
        """A process that ends with its check at the latest."""
        one = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 -- fixed words
        self.running.append(one)
        return one

    def found(self, one: subprocess.Popen[str]) -> list[str]:
        """The messages of a subscriber, as `QOS RETAIN TOPIC PAYLOAD`."""
        assert one.stdout is not None
        lines = one.stdout.read().splitlines()  # it ends by itself: -C, or -W at the latest
        return [line[2:] for line in lines if line.startswith("> ")]

    def close(self) -> None:
        """Ends what still runs."""
        while self.running:
            self.running[-1].kill()
            self.running.pop().communicate()

    def connect(self) -> None:
        """A request of mosquitto_rr finds its answer."""
        request, response = f"{self.topic}/request", f"{self.topic}/response"
        asked = self.sub("-t", request, "-q", "1")
        command = ["mosquitto_rr", *self.place, "-t", request, "-e", response, "-m", "?"]
        asking = self.start([*command, "-q", "1", "-W", str(PATIENCE_S)])
        expect(self.found(asked), [f"1 0 {request} ?"])
        self.pub("-t", response, "-m", "!", "-q", "1")
        expect(asking.communicate(timeout=PATIENCE_S)[0], "!\n")

    def echo(self, qos: int) -> None:
        """Ten messages, in order."""
        topic = f"{self.topic}/qos{qos}"
        one = self.sub("-t", topic, "-q", str(qos), count=10)
        self.pub("-t", topic, "-q", str(qos), "-l", given="\n".join(NUMBERS) + "\n")
        expect(self.found(one), [f"{qos} 0 {topic} {number}" for number in NUMBERS])

    def retained(self) -> None:
        """Kept, got later, cleared."""
        topic = f"{self.topic}/retained"
        self.pub("-t", topic, "-q", "1", "-r", "-m", "kept")
        expect(self.found(self.sub("-t", topic, "-q", "1")), [f"1 1 {topic} kept"])
        self.pub("-t", topic, "-q", "1", "-r", "-n")

    def will(self) -> None:
        """A subscriber that is killed leaves its will."""
        topic = f"{self.topic}/will"
        watcher = self.sub("-t", topic, "-q", "1")
        words = ["--will-topic", topic, "--will-payload", "gone", "--will-qos", "1"]
        self.sub("-t", f"{topic}/else", *words).kill()
        expect(self.found(watcher), [f"1 0 {topic} gone"])

    def resume(self) -> None:
        """What came while it was away."""
        topic = f"{self.topic}/resume"
        words = ["-t", topic, "-q", "1", "-i", f"{self.topic}-resume", "-c"]
        words += ["-x", "60"] if self.version == 5 else []
        first = self.sub(*words)
        self.pub("-t", topic, "-q", "1", "-m", "before")
        self.found(first)
        for number in NUMBERS[:3]:
            self.pub("-t", topic, "-q", "1", "-m", number)
        found = self.found(self.sub(*words, count=3, resumes=True))
        expect(found, [f"1 0 {topic} {number}" for number in NUMBERS[:3]])

    def shared(self) -> None:
        """Each message to one member, to both some."""
        topic = f"{self.topic}/shared"
        words = ["-t", f"$share/group/{topic}", "-q", "1"]
        members = [self.sub(*words, count=5) for _ in range(2)]
        self.pub("-t", topic, "-q", "1", "-l", given="\n".join(NUMBERS) + "\n")
        found = sorted(line for member in members for line in self.found(member))
        expect(found, [f"1 0 {topic} {number}" for number in NUMBERS])


def expect(found: object, wanted: object) -> None:
    """Raises unless they are equal."""
    if found != wanted:
        raise AssertionError(f"wanted {wanted}, got {found}")


def say(**line: object) -> None:
    """Prints one line of the protocol."""
    print(json.dumps(line), flush=True)


def attempt(name: str, check: Callable[[], None], tools: Tools) -> None:
    """Does one check and says how it went."""
    try:
        check()
    except (AssertionError, OSError, subprocess.SubprocessError) as error:
        say(check=name, ok=False, why=f"{type(error).__name__}: {error}")
    else:
        say(check=name, ok=True)
    finally:
        tools.close()


def main() -> None:
    """All checks of the version."""
    host, port, version, transport, topic = sys.argv[1:]
    command = [shutil.which("mosquitto_pub") or "mosquitto_pub", "--version"]
    told = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 -- fixed words
    say(client="mosquitto clients", version=told.stdout.split("version ")[1].split()[0])
    tools = Tools(host, port, int(version), transport, topic)
    attempt("connect", tools.connect, tools)
    for qos in range(3):
        attempt(f"qos{qos}", functools.partial(tools.echo, qos), tools)
    for name in ("retained", "will", "resume", *(["shared"] if tools.version == 5 else [])):
        attempt(name, getattr(tools, name), tools)


if __name__ == "__main__":
    main()
