"""A run of slow fake cases as a process of its own: ``python drive.py FOLDER CASES``, to be interrupted and killed."""

from __future__ import annotations

import sys
from pathlib import Path

import suite_fakes

if __name__ == "__main__":
    suite_fakes.register()
    cases = [suite_fakes.case(f"m{number}", "slow") for number in range(int(sys.argv[2]))]
    summary = suite_fakes.run_cases(cases, Path(sys.argv[1]), suite_fakes.environment())
    sys.exit(130 if summary.interrupted else 0)
