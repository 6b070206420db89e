"""Cases are known by what they were called when they were recorded."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from compat_facts import case_ids, read

from spmark.datasets.sweep.model import Sweep
from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.records.plausible import read_measurements
from spmark.records.schema import Environment, Measurement
from spmark.suite.plan.options import Options
from spmark.suite.plan.plan import choose, completed, make_plan

pytestmark = pytest.mark.full

FROZEN: dict[str, list[str]] = read("case_ids.json.gz")
TODAY = cache(case_ids)
GONE = ("cusparse_bell", "cusparse_bsr")
"""Labels that no sweep has any more; reports read and draw their records as before."""


@pytest.mark.parametrize("sweep", FROZEN)
def test_every_case_of_a_sweep_is_still_known(sweep: str) -> None:
    lost = set(FROZEN[sweep]) - set(TODAY().get(sweep, ()))
    lost -= {case for case in lost if case.split("/")[-2] in GONE}
    assert not lost, f"{len(lost)} cases of {sweep} have other ids, such as {min(lost)}: their records would be orphans"
    assert len(FROZEN[sweep]) > 5


def test_every_sweep_is_frozen() -> None:
    assert set(FROZEN) <= set(TODAY())
    assert sum(map(len, FROZEN.values())) == 10955


def test_a_record_of_version_1_is_one_of_today_and_leaves_no_case_to_do(tmp_path: Path) -> None:
    """Version 1 held the case flat, without the arguments of the matrix, which the run beside it tells."""
    chosen = choose(Sweep.load("smoke", ()), DeviceKind.CPU, ("matrix=rmat_tiny", "implementation=scipy_cpu"))
    device = DeviceSpec.model_validate(json.loads(DEVICE))
    environment = Environment(device=device, packages={}, cpu="", cores=1, memory_bytes=1, system="")
    rows = []
    for case in completed(chosen.cases):
        assert case.matrix.args, "its arguments are what version 1 left out"
        rows.append(
            {
                "schema_version": 1, "protocol_version": 2, "case_id": case.case_id,
                "implementation_version": case.implementation_version, "op": case.op, "matrix": case.matrix.name,
                "source": case.matrix.source, "orientation": "A", "file_sha256": "", "seed": case.seed,
                "width": case.width, "dtype": case.dtype, "scaled": case.scaled, "device": "cpu", "device_kind": "cpu",
                "implementation": case.implementation, "label": case.label, "requested": {}, "flush": "write",
                "status": "ok", "samples_us": [1.0, 2.0], "environment": environment.digest,
                "started_at": "2026-01-02T03:04:05Z",
            }
        )  # fmt: skip
    write(tmp_path / "records.jsonl", rows)
    write(tmp_path / "environments.jsonl", [{"digest": environment.digest, "environment": environment.model_dump()}])
    run = {"schema_version": 1, "environment": environment.digest, "cases": len(rows), "sweep_digest": "0" * 16}
    write(tmp_path / "runs.jsonl", [run | {"sweep": Sweep.load("smoke", ()).model_dump(mode="json", by_alias=True)}])
    assert make_plan(chosen, environment, tmp_path, Options()).count("skip") == len(rows) == 3
    read_anew = list(read_measurements(tmp_path / "records.jsonl"))
    wanted = [case.model_copy(update={"baseline": None, "time_limit_s": None}) for case in completed(chosen.cases)]
    assert [row.spec for row in read_anew] == wanted
    written = [Measurement.model_validate_json(row.model_dump_json()) for row in read_anew]
    assert written == read_anew, "what is written anew says the same"


DEVICE = (
    '{"name": "cpu", "kind": "cpu", "arch": "x86_64", "num_sms": 1, "l2_bytes": 1, "memory_bytes": 1, '
    '"copy_bytes_per_s": 0, "read_bytes_per_s": 0, "fma_flops_per_s": 0}'
)


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
