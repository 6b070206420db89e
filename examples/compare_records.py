"""Compare two sets of records, and tell changes from noise.

    python examples/compare_records.py report/reference/one_search/nvidia-h200/before.jsonl.gz \
        report/reference/one_search/nvidia-h200/after.jsonl.gz

Either side is a folder or a file of records. A change counts where it is larger than runs of one code differ by. The
script prints how many cases changed, the ratio of each with its 95 % interval, and how small a change would have been
seen. `spmark compare` does the same as a gate with an exit code.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from statistics import median

from spmark.report.analysis.compare_inputs import read_side
from spmark.report.analysis.regressions import CaseVerdict, compare


def main() -> None:
    """Compare the times of the records that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    args = parser.parse_args()

    comparison = compare(read_side(args.before), read_side(args.after))
    times = [change for change in comparison.changes if change.quantity == "time"]
    print(", ".join(f"{count} {verdict}" for verdict, count in Counter(one.verdict for one in times).items()))
    for change in times:
        if change.verdict is not CaseVerdict.SAME:
            ratio = change.ratio
            print(f"{change.case_id}: {change.verdict}, {ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]")
    print(f"half of the cases would show a change of {median(one.threshold for one in times):.1%}")


if __name__ == "__main__":
    main()
