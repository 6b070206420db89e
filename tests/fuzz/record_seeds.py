"""Good records, small: what the suite wrote on an H200, with few samples, and rows of our own for what those lack."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from pydantic import BaseModel

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.records.rowfile import read_rows, row_files
from spmark.records.schema import CandidateRow, Environment, EnvironmentRow, Measurement, ProblemFacts
from spmark.suite.run.provenance import RunRow

REFERENCE = Path(__file__).parents[2] / "report" / "reference"
SEPARATOR = b"\n%%\n"
"""Between the files of a folder that stand in one input."""
PARTS = ("records.jsonl", "environments.jsonl", "candidates.jsonl", "runs.jsonl")


@cache
def commit() -> str:
    """Make the repository that knows the commit of the seeds' environment; its hash is the same every time."""
    git = ["git", "-C", str(repository()), "-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    day = "2026-01-01T00:00:00Z"
    environment = {
        "GIT_AUTHOR_DATE": day,
        "GIT_COMMITTER_DATE": day,
        "PATH": "/usr/bin:/bin",
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    subprocess.run(["git", "init", "--quiet", str(repository())], check=True, env=environment)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message", "m"], check=True, env=environment)
    answer = subprocess.run([*git, "rev-parse", "HEAD"], check=True, env=environment, capture_output=True, text=True)
    return answer.stdout.strip()


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="spmark-fuzz-git-")


def repository() -> Path:
    """Give the folder of that repository; it goes when the process ends."""
    return Path(_folder().name)


@cache
def environment() -> Environment:
    device = DeviceSpec(
        name="test-gpu", kind=DeviceKind.CUDA, arch="sm_90", num_sms=4, l2_bytes=1 << 20, memory_bytes=1 << 30,
        copy_bytes_per_s=1e12, read_bytes_per_s=1e12, fma_flops_per_s=1e13, tensor_flops_per_s={"float16": 8e13},
    )  # fmt: skip
    return Environment(
        device=device, driver="580.1", cuda="13.2", packages={"python": "3.12.3", "numpy": "2.4.1"}, cpu="Some CPU",
        cores=4, memory_bytes=1 << 34, system="Linux", commit=commit(),
    )  # fmt: skip


def measurements(widths: tuple[int, ...] = (32, 128), minute: int = 0) -> list[Measurement]:
    """Give a few cases of a sweep with its baseline, one of them failed, on the device of `environment`."""
    rows = []
    for number, (matrix, implementation, width) in enumerate(
        (m, i, w) for m in ("cora", "pubmed") for i in ("cusparse", "gespmm") for w in widths
    ):
        failed = number == 7
        times = {"samples_us": [10.0 + number, 11.5, 12.25], "baseline": None} if not failed else {"reason": "off by 3"}
        if implementation != "cusparse" and not failed:
            times["baseline"] = {"implementation": "cusparse", "config": {}, "samples_us": [20.0, 21.0, 22.5]}
        rows.append(
            Measurement.model_validate(
                {
                    "case_id": f"spmm/planetoid/{matrix}/J{width}/float32/{implementation}/seed0", "op": "spmm",
                    "implementation_version": "v1", "matrix": matrix, "source": "planetoid", "matrix_kind": "pattern",
                    "matrix_hash": f"{number:064x}", "seed": 0, "width": width, "dtype": "float32",
                    "problem": ProblemFacts(
                        num_rows=2708, num_cols=2708, nnz=10556, longest_row=168, flops=2 * 10556 * width,
                        compulsory_bytes=900_000,
                    ),
                    "device": "test-gpu", "device_kind": "cuda", "implementation": implementation,
                    "label": implementation, "config": {"rows": 4}, "status": "wrong_result" if failed else "ok",
                    "phases_s": {} if failed else {"search": 3.0, "convert": 0.2, "compile": 6.0},
                    "search": {"candidates": 4, "compiled": 2, "measured": 2, "cores": 2},
                    "max_rel_error": 3e-7, "stored": 12000, "device_bytes": 97_047, "clocks_mhz": [1980.0],
                    "throttled": ["power"] if number == 1 else [], "environment": environment().digest,
                    "started_at": f"2026-03-01T12:{minute:02}:{number:02}Z", **times,
                }
            )
        )  # fmt: skip
    return rows


def candidates() -> list[CandidateRow]:
    """Give what the searches of these cases saw."""
    return [
        CandidateRow(
            case_id=row.case_id, implementation_version="v1", environment=row.environment, config={"rows": size},
            predicted=float(size), samples_us=[10.0 + size, 11.0],
        )
        for row in measurements()[2:4] for size in (1, 4)
    ]  # fmt: skip


def runs() -> list[RunRow]:
    """Give runs that these cases belong to."""
    sweep = {
        "schema": 1, "name": "mine", "ops": ["spmm"], "matrices": [{"source": "planetoid", "name": "cora"}],
        "widths": [32], "implementations": ["gespmm", {"name": "gespmm", "label": "x", "config": {"a": [1, 2]}}],
        "baseline": {"cuda": "gespmm"},
    }  # fmt: skip
    words = ("spmark", "run", "mine.yaml", "--set", "widths=[32]", "--device", "cuda")
    facts = {"environment": environment().digest, "cases": 8, "sweep": sweep, "sweep_digest": "0" * 16}
    return [
        RunRow(command=words, started_at="2026-03-01T11:00:00Z", **facts),
        RunRow(command=("spmark", "run", "smoke"), started_at="2026-03-01T12:00:03Z", changes_digest="1" * 16, **facts),
    ]


def lines(rows: Iterable[BaseModel]) -> bytes:
    """Give rows as a file holds them."""
    return b"".join(row.model_dump_json().encode() + b"\n" for row in rows)


def environments() -> bytes:
    """Give the side file of these records."""
    return lines([EnvironmentRow(digest=environment().digest, environment=environment())])


def published(name: str, count: int) -> list[Measurement]:
    """Give the first records of a published sweep, with few samples."""
    rows = []
    for _, row in zip(
        range(count), read_rows(row_files(REFERENCE / "h200" / name, "records")[0], Measurement), strict=False
    ):
        cut = {"samples_us": row.samples_us[:3], "clocks_mhz": row.clocks_mhz[:2]}
        if row.baseline:
            cut["baseline"] = row.baseline.model_copy(update={"samples_us": row.baseline.samples_us[:3]})
        rows.append(row.model_copy(update=cut))
    return rows


def whole() -> list[bytes]:
    """Give folders of records, each as one input."""
    parts = [lines(measurements()), environments(), lines(candidates()), lines(runs())]
    few = [lines(measurements()[:3]), environments(), b"", b""]
    return [SEPARATOR.join(parts), SEPARATOR.join(few)]


def repeated() -> list[bytes]:
    """Give a folder in which every case was run twice, as one input."""
    return [SEPARATOR.join([lines(repeated_measurements()), environments()])]


def repeated_measurements() -> list[Measurement]:
    """Give two runs of cases, whose times differ, with enough samples for an interval of their median."""
    rows = [row for minute in (0, 1) for row in measurements((32, 64, 128), minute)]
    return [
        row.model_copy(update={"samples_us": [10.0 + at + number / 8 + at % 5 for number in range(8)]})
        for at, row in enumerate(rows) if row.samples_us
    ]  # fmt: skip


def unpacked(data: bytes, folder: Path) -> Path:
    """Write an input as the folder of records that it holds."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in zip(PARTS, data.split(SEPARATOR), strict=False):
        (folder / name).write_bytes(content)
    return folder


def results(device: str = "test-gpu") -> Iterator[bytes]:
    """Give result files of airspeed velocity: one case with samples, one with a value, one that failed, one without."""
    params = [["'gespmm'"], ["'planetoid/cora'", "'planetoid/pubmed@AT'"], ["32", "128"], ["'float32'"]]
    times = [
        [1e-5, 2e-5, None, float("nan")],
        params,
        "protocol-2",
        1_772_000_000_000,
        [[1e-5, 1.1e-5], None, None, None],
    ]
    stored = [[12000.0], [["'spmm'"], ["'gespmm'"], ["'planetoid/cora'"]], "protocol-2", 1_772_000_000_000, None]
    phase = [
        [0.5],
        [["'spmm'"], ["'gespmm'"], ["'planetoid/cora'"], ["'convert'"]],
        "protocol-2",
        1_772_000_000_000,
        None,
    ]
    named = {
        "tracked.SweptSpmm.track_time": times, "tracked.SweptPlans.track_stored": stored,
        "tracked.SweptPhases.track_phase": phase,
    }  # fmt: skip
    for gpu in (device, ""):
        content = {
            "commit_hash": "ab" * 20, "params": {"machine": "m", "gpu": gpu, "cuda": "13", "python": "3.12"},
            "requirements": {}, "date": 1_772_000_000_000, "python": "3.12", "env_name": "imported-py3.12",
            "result_columns": ["result", "params", "version", "started_at", "samples"], "results": named, "version": 2,
        }  # fmt: skip
        yield json.dumps(content).encode()
