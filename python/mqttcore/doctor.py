"""`python -m mqttcore.doctor`: the risks of a configuration on this machine, one line each.

Starts nothing but the plugins, and changes nothing; a broker may run meanwhile.

Exit status: 0 no risk was found, 1 one or more were found, 2 the configuration is wrong.
"""

import argparse
import contextlib
import json
import os
import pathlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from mqttcore import config
from mqttcore.broker import Broker
from mqttcore.config import Settings
from mqttcore.errors import ConfigError, MqttError
from mqttcore.risks import Risk, find_risks


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the risks; returns the exit status."""
    options = parser().parse_args(arguments)
    try:
        settings = config.load(options.config, environment=os.environ, data=options.data)
        with contextlib.redirect_stdout(sys.stderr):  # plugins may print
            risks = list(all_risks(settings))
    except ConfigError as error:
        print("\n".join(error.faults), file=sys.stderr)
        return 2
    except MqttError as error:
        print(f"mqttcore doctor: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        advice = "run it as the user that runs the broker"
        what = f"cannot look at {error.filename}: {error.strerror}: {advice}"
        print(f"mqttcore doctor: {what}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps([asdict(risk) for risk in risks], indent=2))
    else:
        for risk in risks:
            print(f"{risk.subject}: {risk.what}: {risk.remedy}")
        print(
            f"{options.config or 'built-in profile'}: {len(risks)} risks" if risks else "no risks"
        )
    return 1 if risks else 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="mqttcore doctor",
        description="Prints the risks of a configuration on this machine. Plugins are started and"
        " stopped; nothing else is started, nothing is changed.",
    )
    made.add_argument(
        "-c", "--config", type=pathlib.Path, metavar="FILE", help="TOML file or folder"
    )
    made.add_argument("--data", metavar="DIR", help="data folder, instead of that of the file")
    made.add_argument("--json", action="store_true", help="print a list of objects")
    return made


def all_risks(settings: Settings) -> Iterator[Risk]:
    """All risks of a broker with these settings.

    Raises:
        MqttError: it could not start.
    """
    for warning in Broker(settings).check():
        what, _, remedy = warning.rpartition(": ")
        yield Risk("tls", what, remedy)
    yield from find_risks(settings)
    if not settings.data:
        yield Risk("disk", "sessions and messages are in memory only", "set data to keep them")


if __name__ == "__main__":
    sys.exit(main())
