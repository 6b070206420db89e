"""Run a sweep that is made in Python, and read its records.

    python examples/run_sweep.py

The script measures two kernels on two attention masks, on the CPU. Cases run in a child process, and their
results are checked. A second run of the script finds the records and measures nothing. It prints how many cases ran and
the mean speed-up of each implementation over the baseline.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

import spmark
from spmark.datasets.sweep.model import MatrixSpec, Sweep
from spmark.report.tables.table import short_table
from spmark.suite.run.execute import execute

SWEEP = Sweep(
    schema=1,
    name="masks",
    ops=("spmm",),
    matrices=tuple(MatrixSpec(source="patterns", name=f"logsparse_{size}") for size in (256, 1024)),
    widths=(32,),
    implementations=("scipy_cpu", "numba_cpu"),
    baseline="scipy_cpu",
)


def main() -> None:
    """Run the sweep and print a summary of its records."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/examples"), help="folder of the records")
    parser.add_argument("--device", default="cpu", help="cpu, or cuda with implementations for GPUs")
    args = parser.parse_args()

    summary = execute(SWEEP, args.device, out=args.out)
    print(f"{len(summary.rows)} cases measured, {summary.skipped} known, in {summary.folder}")
    print(pd.DataFrame(short_table(spmark.load_records(summary.folder))).to_string(index=False))


if __name__ == "__main__":
    main()
