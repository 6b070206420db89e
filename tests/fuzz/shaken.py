"""Valid records with values that no run would give, which damage byte for byte rarely makes."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from math import inf, nan
from random import Random
from typing import Any

from fuzz import record_seeds as seeds
from pydantic import ValidationError

from spmark.records.schema import CandidateRow, EnvironmentRow, Measurement

_TEXT = (
    "",
    "..",
    "../../escaped",
    "a/b",
    "=1+1",
    "\x1b[2J",
    "x\ny",
    "$(touch escaped)",
    "é漢",
    "a" * 500,
    "nan",
    "#",
    "%",
)
_SAMPLES = ([nan], [inf], [-inf, 1.0], [0.0], [0.0, 0.0, 0.0], [-1.0, 2.0], [1e308, 1e308], [5e-324], [1.0], [3.0] * 50)
_COUNTS = (0, -1, 1, 2**53 + 1, 2**62, -(2**63))
_NUMBERS = (nan, inf, -inf, 0.0, -1.0, 1e308, 5e-324)
_CONFIGS = ({}, {"a": [1, {"b": None}]}, {"": ""}, {"a\x1b": nan}, {"rows": "x"}, {"rows": 2**70}, {"rows": None})
_PROBLEM = ("num_rows", "num_cols", "nnz", "longest_row", "flops", "compulsory_bytes")
_BASELINES = [
    {"implementation": name, "config": {}, "samples_us": samples}
    for name in ("", "gespmm", "cusparse") for samples in ([], *_SAMPLES)
]  # fmt: skip
_FIELDS: Mapping[str, Sequence[Any]] = {
    "matrix_kind": (None, "real", "twin", "synthetic"),
    "matrix_hash": ("", "ff" * 32, "x"),
    "status": ("ok", "implausible", "timeout", "unsupported", "wrong_result"), "reason": ("", "\n", "x\ny", *_TEXT),
    "problem": (None,),
    "samples_us": _SAMPLES, "warm_samples_us": ([], *_SAMPLES), "graph_samples_us": ([], *_SAMPLES),
    "baseline": (None, *_BASELINES),
    "phases_s": ({}, *({"search": n, "compile": 1.0} for n in _NUMBERS), {"": 1.0}, {"x\x1b": 1.0}),
    "search": (None, {"candidates": -1, "compiled": 0, "measured": 2**62, "cores": 0, "eligible": 5, "compile_s": nan}),
    "stored": _COUNTS, "device_bytes": _COUNTS, "peak_device_bytes": _COUNTS, "config": _CONFIGS,
    "device": ("other", *_TEXT), "device_kind": ("cpu", "host-simt", "cuda"), "environment": ("", "x"),
    "started_at": ("2026-03-01T12:00:00", "2026-03-01T12:00:00+14:00", "0001-01-01T12:00:00Z", "9999-12-31T23:00:00Z"),
    "clocks_mhz": ([], [nan], [-1.0, inf]), "throttled": ([], ["\x1b[2J"]), "max_rel_error": (None, *_NUMBERS),
}  # fmt: skip
_SPEC: Mapping[str, Sequence[Any]] = {
    "op": ("spmm", "sddmm"), "scaled": (True, False), "dtype": ("float16", "float32"), "width": (*_COUNTS, 48),
    "seed": _COUNTS, "implementation": ("cusparse", "dgl", *_TEXT), "label": ("cusparse", "gespmm", *_TEXT),
    "config": _CONFIGS, "case_id": _TEXT, "implementation_version": ("v1", "v2", ""),
    "protocol_version": (1, 2, 3, -1), "baseline": (None, *_TEXT), "time_limit_s": (None, *_NUMBERS),
}  # fmt: skip
_MATRIX: Mapping[str, Sequence[Any]] = {
    "source": ("twin", *_TEXT), "name": ("cora", *_TEXT), "orientation": ("A", "AT"), "values": ("stored",),
    "args": ({}, {"path": "../x"}, {"scale": nan}), "file_sha256": _TEXT, "origin": _TEXT, "aliases": ([], ["\x1b"]),
}  # fmt: skip
_DEVICE: Mapping[str, Sequence[Any]] = {
    "name": _TEXT, "kind": ("cpu", "host-simt"), "arch": ("", "sm_", "sm_x", "sm_99999999"), "num_sms": (1, 2**62),
    "l2_bytes": (0, 2**62), "memory_bytes": (0, 2**62), "copy_bytes_per_s": (0.0, inf, 5e-324, 1e308),
    "fma_flops_per_s": (0.0, inf), "tensor_flops_per_s": ({}, {"\x1b": nan}, {"float16": inf}),
}  # fmt: skip
_ENVIRONMENT: Mapping[str, Sequence[Any]] = {
    "driver": _TEXT, "cuda": _TEXT, "cpu": _TEXT, "system": _TEXT, "commit": ("HEAD", "--output=escaped", "", *_TEXT),
    "packages": ({}, {"python": "3; touch escaped"}, {"--index-url=x": "1", "python": ".."}), "cores": _COUNTS,
    "memory_bytes": _COUNTS,
}  # fmt: skip


def shaken(data: bytes, rows: Sequence[Measurement]) -> bytes:
    """Give a folder of records as one input; which values are replaced is drawn by ``data``, good inputs by few."""
    random = Random(zlib.crc32(data))
    share = 0.0 if data == b"none" else random.choice((0.01, 0.03, 0.1))
    made = [row for one in rows for row in [_shaken_row(random, one, share)] if row is not None]
    machine = _replaced(random, seeds.environment().model_dump(mode="json"), _ENVIRONMENT, share)
    machine["device"] = _replaced(random, machine["device"], _DEVICE, share)
    known = EnvironmentRow.model_validate({"digest": seeds.environment().digest, "environment": machine})
    parts = [
        seeds.lines(made),
        seeds.lines([known]),
        seeds.lines(_candidates(random, share)),
        seeds.lines(seeds.runs()),
    ]
    return seeds.SEPARATOR.join(parts)


def _candidates(random: Random, share: float) -> list[CandidateRow]:
    values = {"config": _CONFIGS, "predicted": (None, *_NUMBERS), "samples_us": ([], *_SAMPLES), "reason": _TEXT}
    rows = [_replaced(random, row.model_dump(mode="json"), values, share) for row in seeds.candidates()]
    return [CandidateRow.model_validate(row) for row in rows]


def _shaken_row(random: Random, row: Measurement, share: float) -> Measurement | None:
    fields = _replaced(random, row.model_dump(mode="json"), _FIELDS, share)
    if fields["problem"] is not None:
        fields["problem"] = _replaced(random, fields["problem"], dict.fromkeys(_PROBLEM, _COUNTS), share)
    fields["spec"] = _replaced(random, fields["spec"], _SPEC, share)
    fields["spec"]["matrix"] = _replaced(random, fields["spec"]["matrix"], _MATRIX, share)
    try:
        return Measurement.model_validate(fields)
    except ValidationError:
        return None


def _replaced(
    random: Random, fields: dict[str, Any], values: Mapping[str, Sequence[Any]], share: float
) -> dict[str, Any]:
    return fields | {name: random.choice(values[name]) for name in values if random.random() < share}
