"""What `make bench-broker` makes of its measurements."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any, cast

import pytest

from benches.broker import __main__ as bench
from benches.broker import page
from benches.broker.__main__ import summary
from benches.broker.brokers import Brokers, ReportError, read_peers, real_time_obstacle
from benches.broker.log import extra_bytes
from benches.broker.rows import (
    BESIDE,
    BEST,
    CEILING,
    MOSQUITTO,
    OURS,
    UNKEPT,
    Figure,
    Goal,
    Measured,
    Row,
    of_rate,
    plain,
    synced,
)

LOAD = {"topic_bytes": 11.5, "payload_bytes": 64, "sent": 2}


def segment(*bodies: int) -> bytes:
    """A segment with frames of so many bytes, and zeros behind them."""
    frames = [(size - 8).to_bytes(4, "little") + b"x" * (size - 4) for size in bodies]
    return b"h" * 64 + b"".join(frames) + bytes(4_096)


def test_the_log_is_as_large_as_what_is_written_to_it(tmp_path: Path) -> None:
    (tmp_path / f"{1:020}.log").write_bytes(segment(100, 50))
    (tmp_path / f"{2:020}.log").write_bytes(segment(86))

    assert extra_bytes(tmp_path, LOAD) == (64 + 150 + 64 + 86) / 2 - 75.5


def test_a_log_that_lost_a_segment_is_not_measured(tmp_path: Path) -> None:
    (tmp_path / f"{2:020}.log").write_bytes(segment(100))

    with pytest.raises(ReportError, match="first segment"):
        extra_bytes(tmp_path, LOAD)


def test_goals_are_bounds_of_medians() -> None:
    measured = Measured()
    for disk_us in (1_000, 9_000, 2_000):
        measured.add(OURS, {"disk_p50_us": disk_us})
    goal = Goal(times=1.5, of=(OURS, "disk_p50_us"), plus=1_000)

    assert goal.bound(measured) == 4_000
    assert goal.is_met(4_000, 4_000)
    assert goal.is_met(4_001, 4_000) is False
    assert of_rate(MOSQUITTO, 5) == Goal(times=5, of=(MOSQUITTO, "messages_per_s"), is_floor=True)
    assert Goal(times=5, of=(MOSQUITTO, "messages_per_s")).bound(measured) is None
    assert Goal(plus=60_000, is_floor=True).is_met(59_999, 60_000) is False


def test_ratios_are_those_of_neighbouring_rounds() -> None:
    """Both brokers are half as fast in the second round: the machine was busy."""
    measured = Measured()
    for ours, other in ((1_000, 100), (500, 50), (900, 100)):
        measured.add(OURS, {"messages_per_s": ours})
        measured.add(MOSQUITTO, {"messages_per_s": other})
    figure = Figure(goal=of_rate(MOSQUITTO, 5))

    line = summary(figure, "a row", measured)

    assert line["ratios"] == {MOSQUITTO: (9, 10, 10)}
    assert (line["ours"], line["other"], line["met"], line["goal"]) == (900, 100, True, ">= 5 x")
    assert figure.ratios(measured, BESIDE) is None


def test_a_goal_may_be_beside_the_best_of_the_others() -> None:
    measured = Measured()
    rates = {OURS: 1_500.0, MOSQUITTO: 1_000.0, "quick": 1_400.0, CEILING: 9_000.0}
    for name, rate in rates.items():
        measured.add(name, {"messages_per_s": rate})
    row = plain("a row", goal=1.2, stretch=1.05, of=BEST)

    line = summary(row.figures[0], "a row", measured)

    assert (line["goal"], line["met"]) == (">= 1.2 x the best", False)
    assert (line["stretch"], line["stretch_met"]) == (">= 1.05 x the best", True)
    assert line["others"] == {MOSQUITTO: 1_000, "quick": 1_400}


def synced_lines(*, unkept: float | None) -> list[dict[str, Any]]:
    """The lines of a synced row whose disk allows 100 messages a second, and that has 75."""
    measured = Measured()
    for passed, allowed in ((70.0, 90.0), (75.0, 100.0), (80.0, 110.0)):
        figures = {"messages_per_s": passed, "disk_allows_per_s": allowed, "disk_sync_us": 500.0}
        measured.add(OURS, figures)
        measured.add(MOSQUITTO, figures)
        measured.add(UNKEPT, {"messages_per_s": unkept})
    row = synced("a row, kept", "pairs")
    lines = zip(row.figures, row.names(), strict=True)
    return [summary(figure, name, measured) for figure, name in lines]


@pytest.mark.parametrize(
    ("unkept", "goal", "met", "stretch", "stretch_met"),
    [
        pytest.param(300.0, ">= 70.0", True, ">= 90.0", False, id="the disk allows less"),
        pytest.param(80.0, ">= 56.0", True, ">= 72.0", True, id="the core allows less"),
        pytest.param(None, None, None, None, None, id="not measured"),
    ],
)
def test_the_goal_of_a_synced_row_is_a_share_of_the_lesser_of_two_bounds(
    unkept: float | None,
    goal: str | None,
    met: bool | None,
    stretch: str | None,
    stretch_met: bool | None,
) -> None:
    rate, *_ = synced_lines(unkept=unkept)

    assert (rate["goal"], rate["met"]) == (goal or ">= -", met)
    assert (rate["stretch"], rate["stretch_met"]) == (stretch or ">= -", stretch_met)


def test_a_synced_row_prints_both_bounds_and_the_sync() -> None:
    rate, unkept, disk, sync = synced_lines(unkept=150.0)

    assert rate["ratios"] == {MOSQUITTO: (1, 1, 1)}
    assert (unkept["row"], unkept["ours"], unkept["other"]) == (
        "a row, kept, nothing kept",
        75.0,
        150.0,
    )
    assert unkept["ratios"] == {UNKEPT: (70 / 150, 0.5, 80 / 150)}
    assert (disk["row"], page.figure(disk["ours"], "msg/s")) == (
        "a row, kept, disk allows",
        "100.0 msg/s",
    )
    assert (sync["row"], page.figure(sync["ours"], "ms")) == ("a row, kept, one sync", "0.50 ms")


def test_ours_without_a_data_folder_carries_a_synced_row_too(tmp_path: Path) -> None:
    options = Namespace(
        python="python", beside="python", ours_only=False, peers=None, load=tmp_path / "load"
    )
    brokers = Brokers(options, tmp_path, durable=True)
    data = tmp_path / "data"

    kept, unkept = (brokers.command(OURS, 7, data, keeps=keeps) for keeps in (True, False))

    assert [*unkept, "--data", str(data)] == kept
    assert bench.in_turn(brokers, synced("a row", "pairs"), 0) == (OURS, BESIDE, UNKEPT)
    assert bench.in_turn(brokers, plain("a row"), 0) == (OURS, BESIDE)


def test_the_ceiling_is_compared_in_a_line_of_its_own() -> None:
    row = plain("a row", goal=2, ceiling=0.9)
    measured = Measured()
    for name, rate in ((OURS, 1_500.0), (MOSQUITTO, 1_000.0), (CEILING, 2_000.0)):
        measured.add(name, {"messages_per_s": rate})

    beside, share = [
        summary(figure, name, measured)
        for figure, name in zip(row.figures, row.names(), strict=True)
    ]

    assert (beside["other"], beside["ratios"]) == (1_000, {MOSQUITTO: (1.5, 1.5, 1.5)})
    assert (share["row"], share["goal"], share["met"]) == ("a row, ceiling", ">= 0.9 x", False)
    assert (share["other"], share["ratios"]) == (2_000, {CEILING: (0.75, 0.75, 0.75)})


def test_a_broker_that_fails_a_row_leaves_the_others_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(_brokers: Brokers, _row: Row, name: str, _options: Namespace) -> dict[str, float]:
        asked.append(name)
        if name == "weak":
            raise ReportError("no QoS 2")
        return {"messages_per_s": 1.0}

    class Three:
        def names(self, **_: bool) -> tuple[str, ...]:
            return (OURS, MOSQUITTO, "weak")

    asked: list[str] = []
    monkeypatch.setattr(bench, "measure_row", measure)
    options = Namespace(rounds=3, failures={})
    row, measured = plain("a row"), Measured()

    for number in range(3):
        bench.measure_round(cast("Brokers", Three()), options, (row, number), measured)

    # Each second round is the other way round.
    assert asked == [OURS, MOSQUITTO, "weak", MOSQUITTO, OURS, OURS, MOSQUITTO]
    assert {name: len(rounds) for name, rounds in measured.rounds.items()} == {
        OURS: 3,
        MOSQUITTO: 3,
    }
    assert options.failures == {("a row", "weak"): "a row: weak: no QoS 2"}


def test_a_page_has_a_column_for_each_broker(tmp_path: Path) -> None:
    measured = Measured()
    for name, rate in ((OURS, 1_500.0), (MOSQUITTO, 1_000.0), ("quick", 3_000.0)):
        measured.add(name, {"messages_per_s": rate, "load_busy": 0.5})
    lines = [
        summary(
            Figure(goal=of_rate(MOSQUITTO, 2), stretch=of_rate(MOSQUITTO, 1.2)), "a row", measured
        )
    ]

    page.write(tmp_path / "performance.md", lines)

    text = (tmp_path / "performance.md").read_text()
    row = (
        "| a row | 1,500 msg/s | 1,000 msg/s | 1.50 (1.50 to 1.50) "
        "| 3,000 msg/s; 0.50 (0.50 to 0.50) | >= 2 x | **no** | >= 1.2 x: yes | 0.50 |"
    )
    assert row in text
    assert "| ratio | quick | goal |" in text
    assert (tmp_path / "performance" / "ratios.svg").read_text().count("a row")


PEERS = """
[quick]
command = ["quick", "--config", "$config"]
config = "port $port { data = $data }"
tls = " with $certificates/server.key"
"""


def test_another_broker_is_started_with_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "peers.toml").write_text(PEERS)
    peer = read_peers(tmp_path / "peers.toml")["quick"]
    config = tmp_path / "quick.conf"

    command = Brokers.peer_command(peer, 7, tmp_path / "data", config)

    assert command == ["quick", "--config", str(config)]
    assert config.read_text() == f"port 7 {{ data = {tmp_path}/data }}"
    Brokers.peer_command(peer, 8, tmp_path / "other", config, tmp_path)
    over_tls = f"port 8 {{ data = {tmp_path}/other }} with {tmp_path}/server.key"
    assert config.read_text() == over_tls


def test_the_sample_of_brokers_has_their_port_in_each(tmp_path: Path) -> None:
    sample = Path(page.__file__).with_name("peers.toml")

    for name, peer in read_peers(sample).items():
        config = tmp_path / f"{name}.conf"
        command = Brokers.peer_command(peer, 47_123, tmp_path / name, config, tmp_path)

        assert "47123" in " ".join((*command, config.read_text())), name
        assert "$" not in " ".join((*command, config.read_text())), name


def test_a_load_generator_is_real_time_only_where_it_starves_and_waits_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    throttle = tmp_path / "sched_rt_runtime_us"
    throttle.write_text("950000\n")
    assert real_time_obstacle([0, 1], throttle) == "kernel threads need a third core"
    assert real_time_obstacle([0, 1, 2], throttle) == "kernel.sched_rt_runtime_us is not -1"
    throttle.write_text("-1\n")
    monkeypatch.setattr("os.sched_setscheduler", refuse)
    assert real_time_obstacle([0, 1, 2], throttle) == "Operation not permitted"
    monkeypatch.setattr("os.sched_setscheduler", lambda *_: None)
    assert real_time_obstacle([0, 1, 2], throttle) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[ours]\ncommand = []", r"\[ours\]: this name is taken"),
        ("[a]\ncommand = 'a b'", r"\[a\]: command is a list of strings"),
        ("[a]\nconfig = ''", r"\[a\]: command is a list of strings"),
        ("[a]\ncommand = ['a']\nport = 1", "has command, and config and tls, two strings, only"),
        ("[a", "peers.toml: "),
    ],
)
def test_a_file_of_brokers_is_refused_with_the_reason(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "peers.toml").write_text(text)

    with pytest.raises(ReportError, match=message):
        read_peers(tmp_path / "peers.toml")
