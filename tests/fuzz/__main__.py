"""``python tests/fuzz``: fuzzes readers for as long as one wants, or shows what one input does."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz.harness import fuzz, input_of, targets


def main() -> int:
    """Run targets; the exit status is 1 where one has a fault."""
    known = targets()
    parser = argparse.ArgumentParser(prog="python tests/fuzz", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"out of {', '.join(known)}; all without one")
    parser.add_argument("--seconds", type=float, default=30.0, help="for each target (default 30)")
    parser.add_argument("--seed", type=int, default=0, help="of all inputs (default 0)")
    parser.add_argument("--input", type=int, help="run this one, leave it in a file, show the traceback")
    options = parser.parse_args()
    unknown = set(options.names) - set(known)
    if unknown:
        parser.error(f"expected names out of {', '.join(known)}, found {', '.join(sorted(unknown))}")
    names = options.names or list(known)
    if options.input is not None:
        return _one(names, options.seed, options.input)
    faults = 0
    for name in names:
        tally = fuzz(name, seconds=options.seconds, seed=options.seed)
        _say(
            f"{name:24} {tally.inputs:9,} inputs  {tally.accepted:8,} accepted  {len(tally.faults):4} faults  "
            f"{tally.seconds:6.0f} s"
        )
        for fault in tally.faults:
            _say(f"  {fault}")
        faults += len(tally.faults)
    return 1 if faults else 0


def _one(names: list[str], seed: int, number: int) -> int:
    for name in names:
        target = targets()[name]
        data = input_of(target, list(target.seeds()), seed, number)
        folder = Path(f"fuzz-{name}-{number}").absolute()
        folder.mkdir(exist_ok=True)
        (folder / "input").write_bytes(data)
        (folder / "read").mkdir(exist_ok=True)
        os.chdir(folder / "read")
        _say(f"{len(data)} bytes, kept as {folder / 'input'}")
        _say(f"gave {target.read(data, folder / 'read')!r}")
    return 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
