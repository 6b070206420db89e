"""Search again what records say was searched, on this machine's CPU, and compare: choices, counters and predictions.

Searches of STile, LiteForm and LO-SpMM need no GPU until they time what they found. A record whose search went through
other machine code than its sources say would differ here. As a program::

    python tests/search_again.py report/reference/h200/stile_fig7_spmm --every 10

prints each case and exits with 1 where one differs. Matrices come from where sweeps take them (``SPMARK_MIRROR``).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.sweep.model import Sweep, expand
from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import RecordError, SpmarkError
from spmark.impls.core.interfaces import Built
from spmark.impls.core.problem import Problem
from spmark.impls.kernels.direct_space import is_direct
from spmark.impls.table import create
from spmark.records.rowfile import read_rows, row_files
from spmark.records.schema import CandidateRow, CaseSpec, EnvironmentRow, Measurement, Status
from spmark.report.candidates import absence, absent_candidates

Seen = frozenset[tuple[Any, ...]]
"""What a search saw or chose: names and values of each candidate."""
_FORM = ("formats", "part", "divisions", "widest", "levels_used", "withdrawn", "predicted_us")
_SIZE = ("tile_rows", "threads", "cpt", "tiles_per_block", "split")


class Found(NamedTuple):
    """One case, compared."""

    case_id: str
    recorded: Seen
    again: Seen
    seconds: float

    @property
    def same(self) -> bool:
        return self.recorded == self.again


def compare(folder: Path, every: int = 1, most_nnz: int = 10**9, only: str = "") -> Iterator[Found]:
    """Search every so many of a folder's cases again, those that say what they saw and have not too many non-zeros.

    ``only`` is a part of the case's id.

    Raises
    ------
    RecordError
        The folder's candidates are published apart, and are not here.
    """
    if absent := absent_candidates(folder):
        raise RecordError(absence(absent))
    devices = {row.digest: row.environment.device for row in read_rows(folder / "environments.jsonl", EnvironmentRow)}
    cases = {case.case_id: case for case in expand(Sweep.load(folder.name), DeviceKind.CUDA)}
    searched = ("stile", "liteform", "lo_spmm")
    newest = {
        row.case_id: row
        for row in sorted(read_rows(row_files(folder, "records")[0], Measurement), key=lambda row: row.started_at)
        if row.spec.implementation in searched and row.status is Status.OK and row.case_id in cases
        if row.problem is not None and row.problem.nnz <= most_nnz and only in row.case_id
    }
    records = [*newest.values()][::every]
    wanted = {_search_of(row) for row in records}
    seen: dict[tuple[str, str, str], list[CandidateRow]] = {}
    for candidate in read_rows(row_files(folder, "candidates")[0], CandidateRow):
        if (search := _search_of(candidate)) in wanted:
            seen.setdefault(search, []).append(candidate)
    cache = Cache.default()
    for row in records:
        case, candidates = cases[row.case_id], seen.get(_search_of(row), [])
        if not candidates:
            continue
        matrix = load_matrix(case.matrix, cache, case.seed).csr
        assert matrix.hash == row.matrix_hash, f"{row.case_id}: another matrix"
        problem = Problem(case.op, matrix, case.width, case.dtype, case.scaled)
        started = perf_counter()
        recorded, again = _SEARCHES[row.spec.implementation](row, case, problem, devices[row.environment], candidates)
        yield Found(row.case_id, recorded, again, perf_counter() - started)


def _search_of(row: Measurement | CandidateRow) -> tuple[str, str, str]:
    """Name the search: a case may have records of several versions."""
    version = row.spec.implementation_version if isinstance(row, Measurement) else row.implementation_version
    return row.case_id, version, row.environment


def _stile(
    row: Measurement, case: CaseSpec, problem: Problem, device: DeviceSpec, candidates: Sequence[CandidateRow]
) -> tuple[Seen, Seen]:
    made: Any = create(case.implementation, case.config)
    calibration, _ = made.priced_by(problem, device)
    forms = made.forms(problem, calibration, made.tuned)
    again = [(form.facts, form.predicted_ms * 1e-3) for form in forms]
    if not made.tuned:
        again = again[:1]
    # Plans straight from CSR raced against the forms, and forms with rows in another order did; no search finds them.
    others = [one for one in candidates if not is_direct(one.config) and one.config.get("rows") != "near"]
    recorded = [(candidate.config, candidate.predicted) for candidate in others]
    return _picked(recorded, _FORM), _picked(again, _FORM)


def _liteform(
    row: Measurement, case: CaseSpec, problem: Problem, device: DeviceSpec, candidates: Sequence[CandidateRow]
) -> tuple[Seen, Seen]:
    made: Any = create(case.implementation, case.config)
    how = replace(made, format="cell")
    found = how.composed(problem, device, how.choice(problem), Built())
    told = {"format": "cell"} | found.facts
    again = [(candidate.config, candidate.predicted) for candidate in found.record.seen]
    recorded = [(candidate.config, candidate.predicted) for candidate in candidates]
    names = ("partitions", "max_width")
    if "cost" not in row.config:  # the device found dense pieces faster than what was searched
        return _picked(recorded, names), _picked(again, names)
    chosen = {name: row.config[name] for name in told}
    return (
        _picked(recorded, names) | {("chosen", json.dumps(chosen))},
        _picked(again, names) | {("chosen", json.dumps(told))},
    )


def _lo_spmm(
    row: Measurement, case: CaseSpec, problem: Problem, device: DeviceSpec, candidates: Sequence[CandidateRow]
) -> tuple[Seen, Seen]:
    from spmark.impls.lo_spmm.rank import find
    from spmark.impls.lo_spmm.tuning import choose

    made: Any = create(case.implementation, case.config)
    mode = made.chooser(device)
    space = made.explored(problem, device, mode)
    found = choose(space, mode, None, find(made.model) if mode.ranks else None)
    stages = {f"after_{stage}": count for stage, count in space.survivors.counts.items()}
    again = [(candidate.config, candidate.predicted) for candidate in found.record.seen]
    recorded = [(candidate.config, candidate.predicted) for candidate in candidates]
    counted = {name: row.config[name] for name in stages}
    return (
        _picked(recorded, _SIZE) | {("left", json.dumps(counted))},
        _picked(again, _SIZE) | {("left", json.dumps(stages))},
    )


_SEARCHES = {"stile": _stile, "liteform": _liteform, "lo_spmm": _lo_spmm}


def _picked(candidates: Sequence[tuple[Mapping[str, Any], float | None]], names: Sequence[str]) -> Seen:
    return frozenset((*(config.get(name) for name in names), predicted) for config, predicted in candidates)


def main(words: Sequence[str]) -> int:
    """Compare folders of records; gives the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--most-nnz", type=int, default=10**9)
    parser.add_argument("--only", default="", help="part of a case's id")
    asked = parser.parse_args(words)
    differ = compared = 0
    for folder in asked.folders:
        try:
            for found in compare(folder, asked.every, asked.most_nnz, asked.only):
                differ += not found.same
                compared += 1
                word = "same" if found.same else "DIFFERS"
                lines = [f"{word} {found.case_id}: {len(found.again)} compared, {found.seconds:.1f} s"]
                lines += [f"  recorded {one}" for one in sorted(map(str, found.recorded - found.again))[:3]]
                lines += [f"  again    {one}" for one in sorted(map(str, found.again - found.recorded))[:3]]
                sys.stdout.write("\n".join(lines) + "\n")
                sys.stdout.flush()
        except SpmarkError as error:
            sys.stdout.write(f"{folder}: {error}\n")
    sys.stdout.write(f"{compared} cases compared, {differ} differ\n")
    return differ > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
