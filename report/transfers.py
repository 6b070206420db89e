"""Facts of studies of models that move between platforms, as frames: results, curves and costs, each row once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from spmark.impls.core.errors import RecordError
from spmark.impls.core.untrusted import reading
from spmark.records.rowfile import SUFFIXES
from spmark.report.records import TRANSFERS, files_below, searching
from spmark.studies.transferfacts import (
    TransferCost,
    TransferCurve,
    TransferFact,
    TransferResult,
    TransferRun,
    read_transfer_facts,
)

_MODEL = ["method", "source", "target", "op", "seed", "source_matrices", "target_matrices"]
_KEYS = {
    TransferResult: [*_MODEL, "matrix", "machine"],
    TransferCurve: [*_MODEL, "phase", "epoch"],
    TransferCost: ["method", "source", "target", "op", "seed", "what", "matrices", "configs", "machine"],
}
"""What makes two rows of a kind rows of the same thing: the later one counts."""


@dataclass(frozen=True, eq=False)
class TransferFacts:
    """The facts of one or more studies; the columns of a frame are the fields of its facts."""

    results: pd.DataFrame
    """Of `TransferResult`; an unknown score is NaN."""
    curves: pd.DataFrame
    """Of `TransferCurve`."""
    costs: pd.DataFrame
    """Of `TransferCost`."""
    runs: tuple[TransferRun, ...] = ()


def load_transfers(paths: Sequence[Path]) -> TransferFacts:
    """Read the files ``transfers.jsonl``, archives too, among and under ``paths``.

    Parameters
    ----------
    paths : sequence of Path
        Files, and folders that are searched at any depth. Other files are not read.

    Returns
    -------
    TransferFacts
        Of a result, an epoch or a cost that is there several times, the last. Empty frames with the same columns where
        there are no facts.

    Raises
    ------
    RecordError
        A file or a folder cannot be read, or a complete line is no fact.
    """
    facts = [fact for file in _files(paths) for fact in read_transfer_facts(file)]
    runs = dict.fromkeys(fact.model_dump_json() for fact in facts if isinstance(fact, TransferRun))
    return TransferFacts(
        _frame(facts, TransferResult).astype(dict.fromkeys(("opa", "tau", "opa_ceiling", "tau_ceiling"), float)),
        _frame(facts, TransferCurve),
        _frame(facts, TransferCost),
        tuple(TransferRun.model_validate_json(run) for run in runs),
    )


def digest_of_transfers(paths: Sequence[Path]) -> str:
    """Give the digest of the files that `load_transfers` reads.

    Raises
    ------
    RecordError
        A file or a folder cannot be read.
    """
    digest = hashlib.sha256()
    for file in _files(paths):
        with reading(file, "facts of a study", RecordError):
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _files(paths: Iterable[Path]) -> list[Path]:
    files: dict[Path, None] = {}
    for path in paths:
        with searching(path):
            inside = sorted(files_below(path)) if path.is_dir() else [path]
        files.update((p.resolve(), None) for p in inside if p.name.startswith(TRANSFERS) and p.name.endswith(SUFFIXES))
    return list(files)


def _frame(facts: Iterable[TransferFact], kind: type[TransferResult | TransferCurve | TransferCost]) -> pd.DataFrame:
    columns = [name for name in kind.model_fields if name not in ("kind", "schema_version")]
    rows = [fact.model_dump(include=set(columns)) for fact in facts if isinstance(fact, kind)]
    frame = pd.DataFrame(rows, columns=columns).drop_duplicates(_KEYS[kind], keep="last", ignore_index=True)
    return frame.assign(op=frame["op"].map(str))
