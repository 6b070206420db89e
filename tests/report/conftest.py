"""Record sets that look like real ones: seeded log-normal samples, an interleaved baseline, failures of every kind."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import moved_fakes
import numpy as np
import pandas as pd
import pytest

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.problem import DType, Op
from spmark.records.rowfile import RecordFile
from spmark.records.schema import (
    Baseline,
    CandidateRow,
    CaseSpec,
    Environment,
    EnvironmentRow,
    MatrixKind,
    Measurement,
    ProblemFacts,
    SearchFacts,
    Status,
)
from spmark.report.analysis.cases import derive
from spmark.report.analysis.methods import known_methods
from spmark.report.analysis.transfers import Moved, derive_moved
from spmark.report.candidates import load_candidates, measured
from spmark.report.claims.study import RatioRow, ScoreRow, Study, StudySource
from spmark.report.records import load_records
from spmark.report.transfers import load_transfers
from spmark.studies.transferfacts import TransferFact

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def device_spec(name: str = "test-gpu", kind: DeviceKind = DeviceKind.CUDA) -> DeviceSpec:
    return DeviceSpec(
        name=name,
        kind=kind,
        arch="sm_90" if kind is DeviceKind.CUDA else "x86_64",
        num_sms=132,
        l2_bytes=50 << 20,
        memory_bytes=140 << 30,
        copy_bytes_per_s=4e12,
        read_bytes_per_s=4.2e12,
        fma_flops_per_s=6e13,
        tensor_flops_per_s={"float16": 8e14},
        l2_gather_bytes_per_s={64: 2e13},
    )


def environment_of(device: DeviceSpec) -> Environment:
    return Environment(
        device=device,
        driver="580.1",
        cuda="13.0",
        packages={"cupy": "14.0", "numpy": "2.4"},
        cpu="Some CPU",
        cores=16,
        memory_bytes=128 << 30,
        system="Linux 6.1",
        commit="0123abcd+",
    )


def measurement(**changes: Any) -> Measurement:
    """Give one ok record; ``changes`` replace its fields."""
    fields: dict[str, Any] = {
        "op": Op.SPMM,
        "matrix": "arxiv",
        "source": "ogb",
        "matrix_kind": MatrixKind.PATTERN,
        "seed": 0,
        "width": 128,
        "dtype": DType.FLOAT32,
        "problem": ProblemFacts(
            num_rows=1000, num_cols=900, nnz=50_000, longest_row=77, flops=12_800_000, compulsory_bytes=1_400_000
        ),
        "device": "test-gpu",
        "device_kind": DeviceKind.CUDA,
        "implementation": "gespmm",
        "implementation_version": "v1",
        "status": Status.OK,
        "environment": environment_of(device_spec()).digest,
        "started_at": START,
        "stored": 50_000,
        "config": {"rows_per_block": 4},
        "phases_s": {"convert": 0.02, "compile": 1.5, "upload": 0.001},
        "max_rel_error": 3e-7,
    }
    fields |= changes
    fields.setdefault("label", fields["implementation"])
    fields.setdefault("matrix_hash", hashlib.sha256(fields["matrix"].encode()).hexdigest())
    scaled = "-scaled" if fields.get("scaled") else ""
    fields.setdefault(
        "case_id",
        f"{fields['op']}{scaled}/{fields['source']}/{fields['matrix']}/J{fields['width']}/{fields['dtype']}"
        f"/{fields['label']}/seed{fields['seed']}",
    )
    if fields["status"] not in (Status.OK, Status.IMPLAUSIBLE):
        fields = {key: value for key, value in fields.items() if key not in ("samples_us", "baseline", "phases_s")}
        fields.setdefault("reason", f"expected it to work, found {fields['status']}")
    return Measurement(**fields)


def changed(row: Measurement, **changes: Any) -> Measurement:
    """Give a record with other facts; fields of the case are known by their names."""
    spec = {name: changes.pop(name) for name in [*changes] if name in CaseSpec.model_fields and name != "config"}
    return row.model_copy(update={**changes, "spec": row.spec.model_copy(update=spec)})


# What building costs, and what a search tells, by implementation; any other one converts only.
BUILDING: dict[str, dict[str, Any]] = {
    "sparsetir": {
        "phases_s": {"search": 3.0, "convert": 0.2, "compile": 6.0},
        "search": SearchFacts(candidates=40, compiled=10, measured=10, cores=2),
    },
}
CONVERTED: dict[str, Any] = {"phases_s": {"convert": 0.001}}
# Time over that of float32.
TIME_OF = {DType.FLOAT32: 1.0, DType.FLOAT16: 0.6}
TIMED_OUT: dict[str, Any] = {"status": Status.TIMEOUT, "reason": "expected an end within 60 s, found none"}
# Matrix: (format, predicted, measured) of every plan; two schedules share a prediction.
SEEN = {
    "a": [("mixed", 4.0, 5.0), ("mixed", 4.0, 4.5), ("blocks", 9.0, 9.0), ("other", 7.0, 6.0)],
    "b": [("mixed", 11.0, 10.0), ("blocks", 20.0, 30.0), ("other", 15.0, None)],
    "c": [("other", 40.0, 50.0), ("mixed", 30.0, 60.0)],
}
PUBLIC, HONEST = "public code", "matrix-disjoint"
# Standard deviations of logarithms: between implementations, between cases of one, between samples of a case.
SKILL, CASE, SAMPLE = 0.35, 0.25, 0.02


def sweep(
    *,
    matrices: Iterable[str] = ("planetoid/cora", "ogb/arxiv", "snap/web-NotreDame"),
    widths: Iterable[int] = (32, 128, 512),
    dtypes: Iterable[DType] = (DType.FLOAT32,),
    ops: Iterable[Op] = (Op.SPMM,),
    implementations: Iterable[str] = ("cusparse_best", "gespmm", "sparsetir"),
    baseline: str = "cusparse_best",
    samples: int = 40,
    seed: int = 7,
) -> list[Measurement]:
    """Give a sweep with its baseline interleaved; sparsetir searches, and times out on the last matrix and width."""
    rng = np.random.default_rng(seed)
    matrices, widths, implementations = list(matrices), list(widths), list(implementations)
    skill = {name: rng.lognormal(0.2, SKILL) for name in implementations}
    rows: list[Measurement] = []
    for op, dtype, (size, name), width, implementation in product(
        ops, dtypes, enumerate(matrices, 1), widths, implementations
    ):
        source, matrix = name.split("/")
        base_us = 20 * size * (width / 32) ** 0.9 * TIME_OF[dtype]
        changes = BUILDING.get(implementation, CONVERTED)
        if implementation == baseline:
            changes = changes | {"samples_us": list(base_us * rng.lognormal(0, SAMPLE, samples))}
        else:
            own_us = base_us / (skill[implementation] * rng.lognormal(0, CASE))
            own, beside = (list(us * rng.lognormal(0, SAMPLE, samples)) for us in (own_us, base_us))
            interleaved = Baseline(implementation=baseline, config={}, samples_us=beside)
            changes = changes | {"samples_us": own, "baseline": interleaved}
        if (implementation, width, size) == ("sparsetir", widths[-1], len(matrices)):
            changes = changes | TIMED_OUT
        facts = ProblemFacts(
            num_rows=1000 * size,
            num_cols=1000 * size,
            nnz=50_000 * size,
            longest_row=400,
            flops=100_000 * size * width,
            compulsory_bytes=int(base_us * 4e6 * 0.6),
        )
        rows.append(
            measurement(
                op=op,
                dtype=dtype,
                source=source,
                matrix=matrix,
                matrix_hash=f"{size - 1:064x}",
                width=width,
                implementation=implementation,
                problem=facts,
                started_at=START + timedelta(seconds=len(rows)),
                **changes,
            )
        )
    return rows


def score_row(
    model: str, metric: str, *values: float, split: str = PUBLIC, train_rows: int = 0, note: str = ""
) -> ScoreRow:
    return ScoreRow(
        task="selection", split=split, model=model, metric=metric, values=values, train_rows=train_rows, note=note
    )


def write_records(
    root: Path, rows: Iterable[Measurement], device: DeviceSpec | None = None, sweep_name: str = "graphs_spmm"
) -> Path:
    """Write measurements and their device's environment under ``root`` as the suite does; give the folder."""
    spec = device or device_spec()
    folder = root / "results" / sweep_name / spec.name
    environment = environment_of(spec)
    with RecordFile(folder / "environments.jsonl") as file:
        file.append(EnvironmentRow(digest=environment.digest, environment=environment))
    with RecordFile(folder / "records.jsonl") as file:
        for row in rows:
            file.append(row.model_copy(update={"environment": environment.digest}))
    return folder


@pytest.fixture(scope="session")
def records() -> ModuleType:
    """Give this module: its functions make records."""
    return sys.modules[__name__]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Give `write_records` for a folder of the test's own."""
    return partial(write_records, tmp_path)


@pytest.fixture
def searched_folder(write: Callable[..., Path]) -> Path:
    """Give a folder of records with a side file of candidates: the plans of `SEEN`, each config written twice."""
    rows = [
        measurement(implementation="stile", matrix=name, matrix_hash=f"{i:064x}", samples_us=[9.0] * 8)
        for i, name in enumerate(SEEN)
    ]
    rows.append(measurement(implementation="stile", matrix="failed", status=Status.TIMEOUT))
    place = write(rows)
    environment = load_records([place])["environment"].iloc[0]
    with RecordFile(place / "candidates.jsonl") as file:
        for row in rows:
            plans = SEEN.get(row.spec.matrix.name, [("mixed", 1.0, 1.0)])
            for schedule, (formats, us, seen_us) in enumerate(plans):
                config = {"formats": formats, "predicted_us": us, "stages": schedule, "fixed": "same"}
                samples = [] if seen_us is None else [seen_us / 2, seen_us, seen_us * 9]
                for repeat in (1.0, us * 1e-6):
                    file.append(
                        CandidateRow(
                            case_id=row.case_id, implementation_version=row.spec.implementation_version,
                            environment=environment, config=config, predicted=repeat, samples_us=samples,
                        )
                    )  # fmt: skip
    return place


@pytest.fixture
def seen(searched_folder: Path) -> pd.DataFrame:
    """Give the measured candidates of `searched_folder`."""
    derived = derive(load_records([searched_folder]), None)
    return measured(derived, load_candidates([searched_folder]))


@pytest.fixture(scope="session")
def study() -> Study:
    """Give a small study of predictors: scores of two splits, a model that failed, a curve and a ratio per matrix."""
    return Study(
        paper="liteform",
        seeds=2,
        command="spmark study train liteform --reproduce --seeds 2",
        made_with={"numpy": "2"},
        sources=(StudySource(name="a", url="https://a", sha256="0", gpu="V100", licence="MIT", citation="them"),),
        scores=(
            score_row("Random Forest", "accuracy", 0.8, 0.9),
            score_row("Random Forest", "accuracy", 0.7, 0.8, split=HONEST),
            score_row("QDA", "failed", note="not full rank"),
            score_row("Random Forest", "accuracy", 0.5, 0.7, train_rows=187),
            score_row("Random Forest", "accuracy", 0.6, 0.8, train_rows=374),
        ),
        ratios=(
            RatioRow(name="figure7", what="speed", num_rows=(2000, 9000), ratios=(0.5, 2.0), selected=1,
                     selected_geomeans=(1.9, 2.0, 2.1)),
        ),
    )  # fmt: skip


@pytest.fixture
def moved(tmp_path: Path) -> Callable[..., Moved]:
    """Give what pages show of a study, derived from facts that went through a file."""

    def make(*facts: TransferFact) -> Moved:
        loaded = load_transfers([moved_fakes.write(tmp_path, facts)])
        return derive_moved(loaded.results, loaded.curves, known_methods())

    return make
