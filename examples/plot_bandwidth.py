"""Draw a plot of your own from records: effective bandwidth against J, with matplotlib alone.

    python examples/plot_bandwidth.py report/reference/h200/graphs_spmm

`load_records` gives facts, `derive` the medians and speed-ups, and `looks_of` the colours of spmark's own figures. The
script writes `bandwidth.png` and `bandwidth.csv` into `out/examples`, and prints the two paths.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from matplotlib.figure import Figure

import spmark
from spmark.report.analysis.cases import choose_baseline, derive
from spmark.report.figures.plot import looks_of
from spmark.report.figures.style import in_style
from spmark.report.records import current


@in_style
def main() -> None:
    """Draw the records that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("records", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=Path("out/examples"))
    args = parser.parse_args()

    frame = current(spmark.load_records(args.records))
    frame = frame[frame["device"] == frame["device"].iloc[0]].reset_index(drop=True)
    derived = derive(frame, choose_baseline(frame))
    timed = derived[derived["median_us"].notna()]
    rates = timed.assign(gbytes_per_s=timed["compulsory_bytes"] / timed["median_us"] * 1e-3)
    best = rates.groupby(["label", "width"])["gbytes_per_s"].max().reset_index()

    figure = Figure(figsize=(4, 2.8), layout="constrained")
    ax = figure.subplots()
    for label, look in looks_of(timed).items():
        line = best[best["label"] == label]
        ax.plot(line["width"], line["gbytes_per_s"], color=look.colour, marker=look.marker, label=label)
    ax.set_xscale("log", base=2)
    ax.set(xlabel="J", ylabel="compulsory bytes, best matrix (GB/s)")
    ax.legend()
    args.out.mkdir(parents=True, exist_ok=True)
    figure.savefig(args.out / "bandwidth.png", dpi=200)
    best.to_csv(args.out / "bandwidth.csv", index=False)
    print(args.out / "bandwidth.png", args.out / "bandwidth.csv")


if __name__ == "__main__":
    main()
