"""Plots the gold table: python plot.py tables/load load.png (needs matplotlib)."""

import sys
from pathlib import Path

import deltalake


def plot(table: Path, picture: Path) -> None:
    """A line for each machine: its highest temperature in each window."""
    from matplotlib.figure import Figure

    rows = deltalake.DeltaTable(table).to_pandas().sort_values("window_start")
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots()
    for machine, group in rows.groupby("machine"):
        axes.plot(group["window_start"], group["highest"], marker="o", label=machine)
    axes.axhline(90, color="red", linestyle="--", linewidth=1)
    axes.set(title="Highest temperature of each machine", ylabel="degrees Celsius")
    axes.legend(ncols=4, fontsize="small")
    figure.autofmt_xdate()
    figure.savefig(picture, dpi=120)


if __name__ == "__main__":
    plot(Path(sys.argv[1]), Path(sys.argv[2]))
