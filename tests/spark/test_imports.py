"""What an import pulls in: the broker's own path needs nothing but Python."""

import subprocess
import sys

import pytest

HEAVY = ("pyspark", "pyarrow", "pandas", "numpy", "deltalake")


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh Python has after a statement."""
    code = f"import sys; {statement}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run(  # noqa: S603 -- our own interpreter
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import mqttcore",
        "import mqttcore.serve, mqttcore.cli, mqttcore.store, mqttcore.passwd, mqttcore.plugin",
        "import mqttcore.spark.options, mqttcore.spark.offsets, mqttcore.spark.planner",
        "import mqttcore.spark",
    ],
)
def test_the_brokers_own_path_needs_no_spark(statement: str) -> None:
    assert loaded_by(statement).isdisjoint(HEAVY)
