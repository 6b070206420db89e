"""Facts of a study of models that move: what is written is read again, and damage is told."""

from __future__ import annotations

import bz2
from pathlib import Path

import pytest

from spmark.impls.core.errors import RecordError
from spmark.impls.core.problem import Op
from spmark.records.rowfile import RecordFile
from spmark.studies.transferfacts import (
    TransferCost,
    TransferCurve,
    TransferFact,
    TransferResult,
    TransferRun,
    read_transfers,
)

METHOD = {"method": "dash", "source": "cpu", "target": "cuda", "op": Op.SPMM, "seed": 0}
SIZES = {"source_matrices": 100, "target_matrices": 5}
FACTS: list[TransferFact] = [
    TransferRun(command="spmark study transfer dash", versions={"torch": "2"}, samples={}, spmark="1", commit=""),
    TransferCurve(**METHOD, **SIZES, phase="fine-tuning", epoch=1, values={"opa": 0.5}, seconds=1.0),
    TransferCost(**METHOD, what="pretrain", seconds=2.0, matrices=100, configs=10_000, cores=2, machine="cpu"),
    TransferResult(
        **METHOD, **SIZES, matrix="cora", pattern_sha256="0", nnz=4, configs=3, default_us=4, optimum_us=1, top1_us=2,
        top5_us=1, opa=0.8, tau=0.6, opa_ceiling=None, tau_ceiling=None, machine="simulated", note="made up",
    ),
]  # fmt: skip


def test_facts_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "transfers.jsonl"
    with RecordFile(path) as file:
        file.append_all(FACTS)
    packed = tmp_path / "transfers.jsonl.bz2"
    packed.write_bytes(bz2.compress(path.read_bytes()))
    assert list(read_transfers([path, packed])) == FACTS * 2


@pytest.mark.parametrize("line", ['{"kind": "opinion"}', '{"kind": "result", "top1_us": 0}', "[]"])
def test_a_line_that_is_no_fact_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "transfers.jsonl").write_text(line + "\n")
    with pytest.raises(RecordError, match=r"transfers\.jsonl:1: expected a Fact"):
        list(read_transfers([tmp_path / "transfers.jsonl"]))
