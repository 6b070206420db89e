"""Change one of spmark's figures: the speed-ups of one dtype, with a title, and the numbers beside it.

    python examples/plot_speedups.py report/reference/h200/graphs_spmm --dtype float16

A plot of spmark is a matplotlib figure with the frame of its numbers: change the figure, save or reuse the frame. The
script writes `speedups.pdf`, `speedups.png` and `speedups.csv` into `out/examples`, and prints the baseline.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import spmark
from spmark.report.analysis.cases import choose_baseline, derive
from spmark.report.figures.speedups import speedup_per_matrix
from spmark.report.records import current


def main() -> None:
    """Draw the records that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("records", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=Path("out/examples"))
    parser.add_argument("--dtype", default="float32")
    args = parser.parse_args()

    frame = current(spmark.load_records(args.records))
    device = frame["device"].iloc[0]
    one = frame[(frame["device"] == device) & (frame["dtype"] == args.dtype)].reset_index(drop=True)
    baseline = choose_baseline(one)
    if baseline is None:
        raise SystemExit(f"expected records that name a baseline, found none for {device} in {args.dtype}")

    plot = speedup_per_matrix(derive(one, baseline), baseline)
    plot.figure.suptitle(f"{device}, {args.dtype}", x=0.01, y=0.995, ha="left", va="top", fontsize=8)
    args.out.mkdir(parents=True, exist_ok=True)
    plot.figure.savefig(args.out / "speedups.pdf")
    plot.figure.savefig(args.out / "speedups.png", dpi=200)
    plot.data.to_csv(args.out / "speedups.csv", index=False)
    print(f"speed-ups over {baseline}, {len(plot.data)} bars in {args.out}")


if __name__ == "__main__":
    main()
