"""The `mqttcore` command: `mqttcore TOOL` is `python -m mqttcore.TOOL`."""

import importlib
import sys

TOOLS = {
    "serve": "runs the broker",
    "healthcheck": "asks a running broker whether it works",
    "ban": "bans clients of a running broker, and lists and lifts bans",
    "doctor": "prints the risks of a configuration on this machine",
    "certs": "makes certificates for trying TLS",
    "passwd": "writes password files",
    "pipeline": "builds tables and alerts from a stream",
    "store": "checks, repairs and copies a data folder",
}

HOMES = {"pipeline": "mqttcore.pipeline.__main__"}
"""Tools that are packages."""


def main() -> int:
    """Runs a tool; returns the exit status."""
    arguments = sys.argv[1:]
    name = arguments[0] if arguments else "--help"
    if name in TOOLS:
        tool = importlib.import_module(HOMES.get(name, f"mqttcore.{name}"))
        status: int = tool.main(arguments[1:])
        return status
    if name == "--version":
        from mqttcore import __version__

        print(f"mqttcore {__version__}")
        return 0
    print("usage: mqttcore TOOL [ARGUMENTS]\n")
    for tool_name, purpose in TOOLS.items():
        print(f"  {tool_name:13}{purpose}")
    if name in ("-h", "--help"):
        return 0
    from mqttcore._schema import did_you_mean

    print(f"\nmqttcore: unknown tool {name!r} {did_you_mean(name, TOOLS)}", file=sys.stderr)
    return 2
