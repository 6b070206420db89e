"""Readers of records and of what stands beside them, of histories, models, calibrations and caches."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from fuzz import record_seeds as seeds
from fuzz.harness import FOLDER, Target

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import RecordError, SpmarkError
from spmark.impls.core.files import write_sealed
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.liteform.schedule import read_table
from spmark.impls.lo_spmm import plan as lo_spmm
from spmark.impls.lo_spmm.rank import FEATURES, RankCard, RankModel, Trees
from spmark.impls.runtime import compile as compiling
from spmark.impls.runtime.device import find
from spmark.impls.stile.calibration import Calibration
from spmark.impls.tuning.cache import PlanCache
from spmark.report.analysis.run_spread import read_spread
from spmark.report.analysis.tiles import read_agreement
from spmark.report.candidates import load_candidates, read_asset
from spmark.report.claims.published import PAPERS, parse
from spmark.report.claims.study import published_study, read_study
from spmark.report.records import current, load_records
from spmark.suite.asv.machine import register
from spmark.suite.plan.papers import read_papers
from spmark.suite.plan.resume import History
from spmark.suite.run.provenance import read_batches, recipe

ROOT = FOLDER.parents[1]
_KEY = "ab" * 32
"""Key of a compiled kernel."""


def _file(name: str, read: Callable[[Path], object]) -> Callable[[bytes, Path], object]:
    """Make a reader of one file."""

    def target(data: bytes, folder: Path) -> object:
        path = folder / name
        path.write_bytes(data)
        return read(path)

    return target


def _present(entry: object) -> object:
    """Tell an entry of a cache that counts as absent from one that is read."""
    if entry is None:
        raise RecordError("absent")
    return entry


def _records(data: bytes, folder: Path) -> object:
    (folder / "environments.jsonl").write_bytes(seeds.environments())
    (folder / "records.jsonl").write_bytes(data)
    return History.read(folder), read_batches(folder)


def _loaded(data: bytes, folder: Path) -> object:
    (folder / "environments.jsonl").write_bytes(seeds.environments())
    (folder / "records.jsonl").write_bytes(data)
    return current(load_records([folder]))


def _record_seeds() -> list[bytes]:
    return [seeds.lines(seeds.measurements()[at : at + 2]) for at in (0, 2, 6)] + [
        seeds.lines(seeds.published(name, 2)) for name in ("graphs_spmm", "graphs_sddmm")
    ]


def _archive(kind: str, data: bytes, folder: Path) -> object:
    (folder / f"records.jsonl{kind}").write_bytes(data)
    return read_batches(folder)


def _environments(data: bytes, folder: Path) -> object:
    (folder / "records.jsonl").write_bytes(seeds.lines(seeds.measurements()[:1]))
    (folder / "environments.jsonl").write_bytes(data)
    return History.read(folder), read_batches(folder)


def _runs(data: bytes, folder: Path) -> object:
    (folder / "records.jsonl").write_bytes(seeds.lines(seeds.measurements()[:3]))
    (folder / "environments.jsonl").write_bytes(seeds.environments())
    (folder / "runs.jsonl").write_bytes(data)
    return [recipe(batch) for batches in read_batches(folder).values() for batch in batches]


def _candidates(data: bytes, folder: Path) -> object:
    (folder / "records.jsonl").write_bytes(b"")
    (folder / "candidates.jsonl").write_bytes(data)
    return load_candidates([folder])


def _candidates_packed(data: bytes, folder: Path) -> object:
    (folder / "records.jsonl").write_bytes(b"")
    (folder / "candidates.jsonl.xz").write_bytes(lzma.compress(data, preset=0))
    return load_candidates([folder])


def _device(path: Path) -> object:
    spec = DeviceSpec.load(path)
    read: list[object] = [spec.compute_capability]
    for op in Op:
        for dtype in DType:
            for net in (False, True):
                try:
                    read.append(Calibration.of(spec, op, dtype, net))
                except SpmarkError as error:
                    read.append(error)
    return read


def _device_seeds() -> list[bytes]:
    spec = DeviceSpec.load(ROOT / "impls" / "stile" / "calibrations" / "nvidia-h200.json")
    plain = DeviceSpec.load(ROOT / "impls" / "runtime" / "devices" / "nvidia-h200.json")
    names = [name for name in spec.tables if name.startswith("stile_spmm_float32")]
    small = {name: values if "net" in name else values[:10] for name, values in spec.tables.items() if name in names}
    without = {name: values for name, values in small.items() if "net" not in name}
    return [one.model_dump_json().encode() for one in (plain, spec.model_copy(update={"tables": without}))]


def _rank(path: Path) -> object:
    return RankModel.load(path).trees.score(np.ones((3, len(FEATURES))))


def _sealed_rank(path: Path) -> object:
    """Read a model that was damaged before it was sealed: its digest is right."""
    try:
        model = RankModel.model_validate_json(path.read_bytes())
        model.save(path)
    except ValueError:
        pass
    return _rank(path)


def _rank_seeds() -> list[bytes]:
    trees = Trees(
        roots=(0, 3), feature=(0, -1, -1, 2, -1, -1), threshold=(1.5, -0.5, 2.0, 0.25, 1.0, -1.0),
        left=(1, 0, 0, 4, 0, 0), right=(2, 0, 0, 5, 0, 0),
    )  # fmt: skip
    card = RankCard(gpu="test-gpu", labels_sha256="0" * 64, groups=3, candidates=40, ranges={FEATURES[0]: (0.0, 2.0)})
    model = RankModel(card=card, trees=trees)
    return [model.model_copy(update={"digest": model._fingerprint()}).model_dump_json().encode()]


def _kept_binary(data: bytes, folder: Path) -> object:
    place = compiling._place(_KEY)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
    return _present(compiling.kept_binary(_KEY))


def _sealed_binary(data: bytes, folder: Path) -> object:
    write_sealed(compiling._place(_KEY), data)
    return _present(compiling.kept_binary(_KEY))


def _binary_seeds() -> list[bytes]:
    facts = {"symbol": "_Z4kernPf", "registers": 32, "spill_bytes": 0, "shared_bytes": 1024}
    return [json.dumps(facts).encode() + b"\n" + bytes(range(256))]


def _entry_seeds() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / _KEY
        write_sealed(path, _binary_seeds()[0])
        return [path.read_bytes()]


def _study_seeds() -> list[bytes]:
    study = published_study("liteform")
    assert study is not None
    short = {"scores": study.scores[:4], "ratios": study.ratios[:1], "sources": study.sources[:1]}
    cut = {"num_rows": study.ratios[0].num_rows[:3], "ratios": study.ratios[0].ratios[:3]}
    short["ratios"] = (study.ratios[0].model_copy(update=cut),)
    return [study.model_copy(update=short).model_dump_json().encode()]


def _problem() -> Problem:
    matrix = Csr.checked((2, 2), np.array([0, 1, 2]), np.array([0, 1]), np.ones(2))
    return Problem(Op.SPMM, matrix, 32, DType.FLOAT32)


def _tuned(data: bytes, folder: Path) -> object:
    cache = PlanCache("sparsetir", _problem(), find("host-simt"), {})
    write_sealed(cache.path, data)
    return _present(cache.read())


def _tuned_seeds() -> list[bytes]:
    seen = [{"config": {"a": 1}, "predicted": None, "samples_us": [1.0, 2.0], "reason": ""}]
    search = {"candidates": 1, "compiled": 1, "measured": 1, "seen": seen}
    kept = {"config": {"a": 1}, "search": search, "phases_s": {"search": 0.5}, "more": {}}
    return [json.dumps(kept).encode()]


def _kept_plan(data: bytes, folder: Path) -> object:
    cache = PlanCache("lo_spmm", _problem(), find("host-simt"), {})
    write_sealed(cache.path, data)
    compiling.cached(_KEY, lambda: compiling.Binary(b"", "kernel", 1, 0, 0))
    return _present(lo_spmm._read(cache))


def _plan_seeds() -> list[bytes]:
    search = {
        "candidates": 1,
        "compiled": 1,
        "measured": 1,
        "seen": [{"config": {}, "predicted": None, "samples_us": [1.0]}],
    }
    more = {"size": {"tile_rows": 4, "threads": 32}, "num_tiles": 3, "code_key": _KEY}
    kept = {"config": {"a": 1}, "search": search, "phases_s": {"search": 1.0}, "more": more}
    return [json.dumps(kept).encode()]


def _result(data: bytes, folder: Path) -> object:
    machine = folder / "test-gpu-cuda13"
    machine.mkdir()
    (machine / "machine.json").write_text("{}")
    (machine / "abababab-env.json").write_bytes(data)
    return len(load_records([folder]))


def _shipped(*folders: str) -> Callable[[], Sequence[bytes]]:
    def read() -> list[bytes]:
        return [path.read_bytes() for folder in folders for path in sorted(ROOT.glob(folder))]

    return read


def _some_claims() -> list[bytes]:
    """Give the smallest files of claims: reading a large one takes long."""
    texts = sorted(((ROOT / "report" / "claims" / f"{paper}.yaml").read_bytes() for paper in PAPERS), key=len)
    return texts[:2]


TARGETS = (
    Target("records", _records, _record_seeds),
    Target("records_bz2", partial(_archive, ".bz2"), lambda: [bz2.compress(text) for text in _record_seeds()]),
    Target("records_gz", partial(_archive, ".gz"), lambda: [gzip.compress(text) for text in _record_seeds()]),
    Target("records_xz", partial(_archive, ".xz"), lambda: [lzma.compress(text) for text in _record_seeds()]),
    Target("records_loaded", _loaded, _record_seeds),
    Target("environments", _environments, lambda: [seeds.environments()]),
    Target("runs", _runs, lambda: [seeds.lines(seeds.runs()), seeds.lines(seeds.runs()[1:])]),
    Target("candidates", _candidates, lambda: [seeds.lines(seeds.candidates())]),
    Target("candidates_packed", _candidates_packed, lambda: [seeds.lines(seeds.candidates())]),
    Target("candidate_manifest", _file("candidates.json", read_asset), _shipped("report/reference/candidates.json")),
    Target("device_spec", _file("spec.json", _device), _device_seeds),
    Target("rank_model", _file("model.json", _rank), _rank_seeds),
    Target("rank_model_sealed", _file("model.json", _sealed_rank), _rank_seeds),
    Target("schedules", _file("table.json", read_table), _shipped("impls/liteform/schedules/*.json")),
    Target("spread_model", _file("spread.json", read_spread), _shipped("report/spreads/*.json")),
    Target("study", _file("study.json", read_study), _study_seeds),
    Target("tile_agreement", _file("tiles.json", read_agreement), _shipped("report/reference/tiles/*.json")),
    Target("compile_cache", _kept_binary, _entry_seeds),
    Target("compile_cache_sealed", _sealed_binary, _binary_seeds),
    Target("tuning_cache", _tuned, _tuned_seeds),
    Target("plan_cache", _kept_plan, _plan_seeds),
    Target("asv_result", _result, lambda: list(seeds.results())),
    Target(
        "asv_machines",
        _file("machines.json", lambda path: register({"machine": "m"}, path)),
        lambda: [b'{"version": 1, "m": {"machine": "m"}}'],
    ),
    Target("claims", lambda data, folder: parse(data.decode(errors="replace"), "claims.yaml"), _some_claims),
    Target(
        "papers", _file("paper.yaml", lambda path: read_papers(str(path))), _shipped("datasets/sweeps/papers/*.yaml")
    ),
)
