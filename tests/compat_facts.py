"""What must stay as it was: the facts that `tests/compat` holds against its frozen files.

As a program it writes the frozen files anew. That is right for a new sweep, question or model; where something that was
frozen differs, records, histories or choices of users change with it, and CHANGELOG has to say so.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.datasets.sweep.model import Sweep, expand
from spmark.datasets.sweep.reading import packaged_sweeps
from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.enums import MEASURED_TYPES
from spmark.impls.core.errors import RecordError
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.records.unpack import ARCHIVES, unpacked
from spmark.report.candidates import HOME, absence, absent_candidates
from spmark.suite import measure

ROOT = Path(__file__).parents[1]
FROZEN = Path(__file__).parent / "compat" / "frozen"
MATRICES = 50
_WORD = np.uint64
_MIX = (_WORD(0xBF58476D1CE4E5B9), _WORD(0x94D049BB133111EB))


def write(name: str, facts: Any) -> None:
    """Write a frozen file, the same bytes for the same facts."""
    text = json.dumps(facts, indent=1, sort_keys=True) + "\n"
    FROZEN.mkdir(parents=True, exist_ok=True)
    (FROZEN / name).write_bytes(gzip.compress(text.encode(), mtime=0) if name.endswith(".gz") else text.encode())


def read(name: str) -> Any:
    """Read a frozen file."""
    content = (FROZEN / name).read_bytes()
    return json.loads(gzip.decompress(content) if name.endswith(".gz") else content)


def committed_rows() -> dict[str, int]:
    """Give how many rows each published file of records, and each file beside it, holds.

    Raises
    ------
    RecordError
        Candidates that are published apart are not here.
    """
    if absent := absent_candidates(ROOT / HOME):
        raise RecordError(absence(absent))
    rows = {}
    for path in sorted((ROOT / "report" / "reference").rglob("*.jsonl*")):
        content = unpacked(path) if path.suffix in ARCHIVES else path.read_bytes()
        rows[path.relative_to(ROOT).as_posix()] = sum(1 for line in content.split(b"\n") if line.strip())
    return rows


def case_ids() -> dict[str, list[str]]:
    """Give the ids by which records may know the cases of every packaged sweep, on any kind of device, sorted."""
    sweeps = {name: Sweep.load(name) for name in packaged_sweeps()}
    found = {
        name: [case for kind in (DeviceKind.CUDA, DeviceKind.CPU) for case in expand(sweep, kind)]
        for name, sweep in sweeps.items()
    }
    return {
        name: sorted({one for case in cases for one in (case.case_id, *case.other_ids)})
        for name, cases in found.items()
    }


QUESTIONS: Mapping[str, Mapping[str, Any]] = {
    "run": {
        "what": "run", "op": "spmm", "source": "patterns", "matrix": "logsparse_64", "args": {}, "seed": 0, "width": 8,
        "dtype": "float32", "implementation": "scipy_cpu", "config": {}, "baseline": {"cpu": "numba_cpu"}, "builds": 2,
        "builds_max_s": 1.0,
    },
    "convert": {
        "what": "convert", "source": "patterns", "matrix": "logsparse_64", "args": {}, "seed": 0, "format": "bsr",
        "format_args": {"block_rows": 2, "block_cols": 2}, "samples": 2, "max_s": 1.0,
    },
    "search": {
        "what": "search", "search": "liteform_h200", "op": "spmm", "source": "patterns", "matrix": "logsparse_64",
        "args": {}, "seed": 0, "width": 32, "dtype": "float16", "samples": 2, "max_s": 1.0,
    },
    "unknown": {"what": "of tomorrow"},
}  # fmt: skip
"""One question of each kind, with every key that it has."""


def track_shapes() -> dict[str, Any]:
    """Give the keys and types of the answer to each question."""
    answers = measure.track(json.loads(json.dumps(list(QUESTIONS.values()))), "cpu")
    return {name: _shape(json.loads(json.dumps(answer))) for name, answer in zip(QUESTIONS, answers, strict=True)}


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shape(one) for key, one in value.items()}
    if isinstance(value, list):
        shapes = [_shape(one) for one in value]
        return [shape for at, shape in enumerate(shapes) if shape not in shapes[:at]]
    return type(value).__name__


def matrix_of(number: int) -> Csr:
    """Give one of the matrices, by integer arithmetic alone: no library's stream of random numbers is asked."""
    few = _words(number, 4)
    num_rows, num_cols, kind = 64 + int(few[0] % _WORD(400)), 64 + int(few[1] % _WORD(400)), number % 5
    pattern = np.zeros((num_rows, num_cols), np.bool_)
    for row, word in enumerate(_words(1_000 + number, num_rows).tolist()):
        length = (word >> 7) % (4, 12, 40, 9, 24)[kind] + (kind == 3) * (60 if row % 29 == 0 else 0)
        # Of kinds 1 and 4 sixteen rows share a seed of their columns.
        shared = row // 16 if kind in (1, 4) and word % 3 else row
        columns = _words(100_000 * (number + 1) + shared, length) % _WORD(num_cols)
        if kind == 2:  # near the diagonal
            columns = (columns % _WORD(48) + _WORD(row)) % _WORD(num_cols)
        pattern[row, columns.astype(np.int64)] = word % 11 != 0
    rows, cols = np.nonzero(pattern)
    indptr = np.concatenate([[0], np.cumsum(pattern.sum(1))])
    return Csr.checked(pattern.shape, indptr, cols, (0.5 + (rows * 7 + cols) % 512 / 1024).astype(np.float32))


def _words(seed: int, count: int) -> NDArray[np.uint64]:
    """Give random words by SplitMix64's finaliser."""
    with np.errstate(over="ignore"):
        state = _WORD(seed + 1) * _WORD(0x9E3779B97F4A7C15) + np.arange(1, count + 1, dtype=_WORD) * _MIX[0]
        for shift, factor in zip((30, 27), _MIX, strict=True):
            state = (state ^ (state >> _WORD(shift))) * factor
        return state ^ (state >> _WORD(31))


def predictions(number: int) -> dict[str, Any]:
    """Give what the shipped models say of one matrix; real numbers to their last bit."""
    matrix = matrix_of(number)
    return {"matrix": matrix.hash[:16], **dict(_liteform(matrix)), **dict(_lo_spmm(matrix)), **dict(_stile(matrix))}


def _liteform(matrix: Csr) -> Iterator[tuple[str, Any]]:
    from spmark.impls.liteform import predictor
    from spmark.impls.liteform.compose import StoredAs, choose
    from spmark.impls.liteform.cost import costs, count, weighed
    from spmark.impls.liteform.features import Features
    from spmark.impls.liteform.schedule import table_for
    from spmark.impls.liteform.search import search

    features, table = Features.of(matrix), table_for("nvidia-h200")
    for name, width in product(predictor.shipped(), (32, 512)):
        model = predictor.find(name)
        chosen = choose(features, width, model, StoredAs.AUTO, 0)
        shares = [model.selection.shares(model._selection(features, width))]
        shares.append(model.partitions.shares(features.partitions(width)))
        yield (
            f"liteform {name} J{width}",
            [chosen.form.value, chosen.partitions, model.pays(features, width), *map(_bits, shares)],
        )
    for weights in (None, table.weights_for(False) if table else None):
        counts = count(matrix, 2, columns=weights is None)
        table_costs = costs(counts, 128) if weights is None else weighed(counts, 128, weights)
        found = search(table_costs, counts.widest)
        kind = "paper" if weights is None else "h200"
        yield f"liteform cost {kind}", [found.cost.hex(), [int(power) for power in found.powers], _bits(table_costs)]


def _lo_spmm(matrix: Csr) -> Iterator[tuple[str, Any]]:
    from spmark.impls.lo_spmm import rank
    from spmark.impls.lo_spmm.search import Pins, explore
    from spmark.impls.lo_spmm.tuning import Chooser, choose
    from spmark.impls.runtime.device import shipped_calibration

    device = DeviceSpec.load(shipped_calibration("nvidia-h200"))
    problem = Problem(Op.SPMM, matrix, 256, DType.FLOAT32)
    for mode, split in ((Chooser.ESTIMATE, 0), (Chooser.EC_SPMM, 1)):
        model = rank.find("h200") if mode.ranks else None
        space = explore(problem, device, Pins(split=split))
        found = choose(space, mode, None, model)
        said = np.array([one.predicted for one in found.record.seen], np.float64)
        size = found.size
        best = [size.tile_rows, size.threads, size.cpt, size.tiles_per_block, size.split]
        yield f"lo_spmm {mode}", [len(said), best, float(said.min()).hex(), _bits(said)]


def _stile(matrix: Csr) -> Iterator[tuple[str, Any]]:
    from spmark.impls.stile.calibration import Calibration, published_a100, shipped
    from spmark.impls.stile.search import forms_of
    from spmark.impls.stile.space import Rules

    h200 = DeviceSpec.load(shipped("nvidia-h200"))
    for device, op, dtype in (
        (published_a100(), Op.SPMM, DType.FLOAT16),
        (h200, Op.SPMM, DType.FLOAT32),
        (h200, Op.SDDMM, DType.FLOAT16),
    ):
        found = forms_of(matrix, [(Rules(), 0)], Calibration.of(device, op, dtype), 64)[0]
        told = [
            found.predicted_ms.hex(),
            str(found.formats),
            found.part,
            found.divisions,
            found.levels,
            found.withdrawn,
        ]
        yield f"stile {device.name} {op} {dtype}", [*told, _bits(found.selection.owner)]


def prices() -> dict[str, Any]:
    """Give the tables of prices that STile's searches look up, by GPU, operator, dtype and cost model.

    Of the networks some prices themselves: the last bit of an exponential depends on the CPU that NumPy finds.
    """
    from spmark.impls.stile.calibration import Calibration, published_a100, shipped
    from spmark.impls.stile.prices import ell_price, run_price

    h200, told = DeviceSpec.load(shipped("nvidia-h200")), {}
    for device, op, dtype, net in (
        (published_a100(), Op.SPMM, DType.FLOAT16, False),
        (published_a100(), Op.SDDMM, DType.FLOAT16, False),
        *((h200, op, dtype, net) for op in Op for dtype in MEASURED_TYPES for net in (False, True)),
    ):
        calibration = Calibration.of(device, op, dtype, net)
        price = ell_price(calibration, 64, 128) if op is Op.SPMM else run_price(calibration, 64)
        told[f"{device.name} {op} {dtype} {'mlp' if net else 'line'}"] = (
            [float(one.ravel()[-1 - at]) for one in (price.plain_ms, price.atomic_ms) for at in range(0, 1000, 25)]
            if net
            else [_bits(price.plain_ms), _bits(price.atomic_ms)]
        )
    return told


def _bits(array: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:12]


def main() -> None:
    """Write the frozen files."""
    write("rows.json", committed_rows())
    write("case_ids.json.gz", case_ids())
    write("track.json", {"questions": QUESTIONS, "answers": track_shapes()})
    write("prices.json", prices())
    write("predictions.json.gz", [predictions(number) for number in range(MATRICES)])


if __name__ == "__main__":
    main()
