"""From a case to a record, on the CPU, with implementations that do wrong on purpose."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import types
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from suite_fakes import but, rmat_case

from spmark.datasets.cache import Cache
from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import BuildError, KernelFault, UnsupportedError
from spmark.impls.core.interfaces import Built, Candidate, Search
from spmark.impls.core.machine import Load
from spmark.impls.core.problem import Csr, Op, Problem
from spmark.impls.runtime.device import find
from spmark.impls.table import IMPLEMENTATIONS
from spmark.records.schema import Flush, MatrixKind, MatrixRef, Outcome, RefusedConfig, Status
from spmark.suite import measure
from spmark.suite.measure import Bench, floor_s
from spmark.suite.plan.options import Options
from spmark.suite.run import share

DEVICE = find("cpu")
QUICK = {kind: replace(how, max_seconds=0.02) for kind, how in measure._STOPPING.items()}


def matrix_order(nnz: int) -> np.ndarray:
    """Give the order that SDDMM's results are left in."""
    return np.random.default_rng(1).permutation(nnz).astype(np.int32)


_ORDERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "right": lambda order: order,
    "invert": lambda order: np.argsort(order).astype(np.int32),
    "name_one_twice": lambda order: np.append(order[:-1], order[0]),
    "name_too_few": lambda order: order[:-1],
}


class Deed(Built):
    """A plan that computes the truth and then does something to it."""

    def __init__(self, problem: Problem, do: str) -> None:
        super().__init__({"did": do}, {"convert": 0.25}, problem.matrix.nnz, problem.matrix.nbytes)
        self.problem, self.do = problem, do
        self.search = Search(2, seen=(Candidate({"a": 1}, predicted=2.0), Candidate({"a": 2}, reason="no room")))

        if problem.op is Op.SDDMM and do in _ORDERS:
            self.order = _ORDERS[do](matrix_order(problem.matrix.nnz))

    def run(self, operands: Any, out: Any) -> None:
        from scipy import sparse

        matrix = self.problem.matrix
        if self.problem.op is Op.SDDMM:
            dots = np.einsum("pj,pj->p", operands[0][matrix.rows_of_entries()], operands[1][matrix.indices])
            out[:] = dots[matrix_order(matrix.nnz)]
            return
        a = sparse.csr_array((matrix.values, matrix.indices, matrix.indptr), shape=matrix.shape)
        if self.do == "leave_a_row":
            out[1:] = (a @ operands[0])[1:]
            return
        out[:] = a @ operands[0]
        if self.do == "off_by_a_term":
            row = int(np.argmax(matrix.row_lengths))
            at = matrix.indptr[row]
            out[row] -= matrix.values[at] * operands[0][matrix.indices[at]]
        elif self.do == "overwrite":
            operands[0][0, 0] += 1
        elif self.do == "fault":
            raise KernelFault("illegal address")
        elif self.do == "slow":
            time.sleep(0.002)


@dataclass(frozen=True)
class Doer:
    name: ClassVar[str] = "doer"
    ops: ClassVar[frozenset[Op]] = frozenset({Op.SPMM})
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CPU})
    do: str = "right"

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        return "it does not like 7" if problem.width == 7 else None

    def build(self, problem: Problem, device: DeviceSpec) -> Deed:
        if self.do == "refuse":
            raise UnsupportedError("the library said no")
        if self.do == "break":
            raise BuildError("does not compile")
        if self.do == "trip":
            raise KeyError("what the author did not foresee")
        if self.do == "run_out":
            raise MemoryError("no room")
        return Deed(problem, self.do)


@dataclass(frozen=True)
class Overwriter(Doer):
    """The same, with an operand overwritten."""

    name: ClassVar[str] = "overwriter"
    do: str = "overwrite"


@dataclass(frozen=True)
class Sampler(Doer):
    """The same for SDDMM, whose results it leaves in an order of its own."""

    name: ClassVar[str] = "sampler"
    ops: ClassVar[frozenset[Op]] = frozenset({Op.SDDMM})


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    module = types.ModuleType("spmark.impls.doer.plan")
    module.Doer, module.Sampler, module.Overwriter = Doer, Sampler, Overwriter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "spmark.impls.doer.plan", module)
    own = {kind.name: f"spmark.impls.doer.plan:{kind.__name__}" for kind in (Doer, Sampler, Overwriter)}
    table = {**IMPLEMENTATIONS, **own}
    monkeypatch.setattr("spmark.impls.table.IMPLEMENTATIONS", table)
    monkeypatch.setattr(measure, "_STOPPING", QUICK)
    return Bench(DEVICE, Cache.default())


CASE = rmat_case("doer", 9, 32)


def ask(bench: Bench, do: str = "right", **changes: Any) -> Outcome:
    return bench.measure(but(CASE, config={"do": do}, **changes)).outcome


@pytest.mark.parametrize("flush", list(Flush))
def test_the_flush_that_is_asked_for_reaches_the_stopwatch(flush: Flush) -> None:
    asked = Bench(DEVICE, Cache.default(), Options(flush=flush))
    assert bool(asked._lab.stopwatch._read.size) == (flush is Flush.READ)


def test_a_right_result_is_checked_and_timed(bench: Bench) -> None:
    row = ask(bench)
    assert row.status is Status.OK, row.reason
    assert 0 < row.max_rel_error < 1e-5
    assert len(row.samples_us) >= 7
    assert min(row.samples_us) > 0
    assert row.config == {"did": "right"}
    assert row.phases_s == {"convert": 0.25}
    assert row.problem.flops == 2 * row.problem.nnz * 32
    assert row.stored == row.problem.nnz
    assert row.search.candidates == 2
    assert row.matrix_kind is MatrixKind.SYNTHETIC
    assert len(row.matrix_hash) == 64


@pytest.mark.parametrize(
    ("do", "status", "words"),
    [
        ("right", Status.OK, ""),
        ("forget", Status.WRONG_RESULT, "largest relative error"),
        ("invert", Status.WRONG_RESULT, "largest relative error"),
        ("name_one_twice", Status.BUILD_ERROR, "found 1 missing"),
        ("name_too_few", Status.BUILD_ERROR, "expected an order of the result of shape"),
    ],
)
def test_a_result_in_an_order_of_its_own(bench: Bench, do: str, status: Status, words: str) -> None:
    row = ask(bench, do, op=Op.SDDMM, implementation="sampler")
    assert row.status is status, row.reason
    assert words in row.reason
    assert bool(row.samples_us) == (status is Status.OK)


def test_a_case_of_rgms(bench: Bench) -> None:
    matrix = CASE.matrix.model_copy(update={"relations": 4})
    case = but(CASE, op="rgms", matrix=matrix, width_in=5, width=3, implementation="gather_gemm_scatter", config={})
    row = bench.measure(case).outcome
    assert row.status is Status.OK, row.reason
    assert (row.problem.num_rows, row.problem.num_cols, row.problem.relations) == (512, 128, 4)
    assert 0 < row.max_rel_error < 1e-5
    assert len(row.samples_us) >= 7
    spmm = ask(bench)
    assert (spmm.problem.nnz, spmm.problem.relations) == (row.problem.nnz, 0)
    assert spmm.matrix_hash != row.matrix_hash


@pytest.mark.parametrize(
    ("relations", "reason"), [(0, "expected the number of its relations"), (3, "512 columns, which 3 does not divide")]
)
def test_a_case_of_rgms_says_how_many_relations_there_are(bench: Bench, relations: int, reason: str) -> None:
    matrix = CASE.matrix.model_copy(update={"relations": relations})
    row = bench.measure(but(CASE, op="rgms", matrix=matrix, width_in=5, implementation="gather_gemm_scatter")).outcome
    assert row.status is Status.BUILD_ERROR
    assert reason in row.reason


def test_a_case_of_a_network(bench: Bench) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    how = {"op": "gcn", "width_in": 9, "width": 4, "config": {}, "baseline": "torch_network"}
    own, other = (
        bench.measure(but(CASE, implementation="torch_network", **how)).outcome,
        bench.measure(but(CASE, implementation="spmark_network", **how)).outcome,
    )
    for row in (own, other):
        assert row.status is Status.OK, row.reason
        assert 0 < row.max_rel_error < 1e-3
        assert list(row.parts_us) == ["aggregate 0", "aggregate 1"]
        assert 0 < sum(row.parts_us.values()) < float(np.median(row.samples_us))
    assert own.baseline is None
    assert other.baseline.implementation == "torch_network"


def test_a_wrong_step_of_a_network_has_no_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.setattr("spmark.impls.networks.plan._ALLOWED_LOSS", 1e-12)
    row = bench.measure(but(CASE, op="gcn", width_in=9, width=4, implementation="torch_network", config={})).outcome
    assert (row.status, row.samples_us) == (Status.WRONG_RESULT, [])
    assert "expected an error of at most 1e-12, found" in row.reason


def test_what_the_search_saw_comes_along(bench: Bench) -> None:
    _, (candidate, refused) = bench.measure(but(CASE, config={}))
    assert candidate.config == {"a": 1}
    assert (refused.config, refused.reason) == ({"a": 2}, "no room")
    assert candidate.predicted == 2.0


@pytest.mark.parametrize(
    ("do", "status", "words"),
    [
        ("off_by_a_term", Status.WRONG_RESULT, "largest relative error"),
        ("leave_a_row", Status.WRONG_RESULT, "of `out` that it did not write"),
        ("overwrite", Status.WRONG_RESULT, "operand 0 unchanged"),
        ("fault", Status.RUN_ERROR, "illegal address"),
        ("refuse", Status.UNSUPPORTED, "the library said no"),
        ("break", Status.BUILD_ERROR, "does not compile"),
        ("trip", Status.BUILD_ERROR, "doer: KeyError"),
        ("run_out", Status.OUT_OF_MEMORY, "no room"),
    ],
)
def test_what_goes_wrong_is_a_row_and_the_next_case_is_right(bench: Bench, do: str, status: Status, words: str) -> None:
    row = ask(bench, do)
    assert row.status is status
    assert words in row.reason
    assert row.samples_us == []
    assert ask(bench).status is Status.OK


def test_a_switch_of_a_config_says_how_a_build_is_measured(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))
    seen: list[tuple[str, str]] = []
    real = Doer.build

    def build(self: Doer, problem: Problem, device: DeviceSpec, how: str = "build") -> Deed:
        seen.append((how, os.environ["SPMARK_CACHE"]))
        return real(self, problem, device)

    monkeypatch.setattr(Doer, "build", build)
    monkeypatch.setattr(Doer, "load", lambda *given: build(*given, "load"), raising=False)
    problem = Problem(Op.SPMM, Csr.checked((1, 1), np.array([0, 1]), np.array([0]), np.ones(1, np.float32)), 8)
    gpu = DEVICE.model_copy(update={"kind": DeviceKind.CUDA})
    for device, config in ((gpu, {}), (gpu, {"again": True}), (gpu, {"anew": True}), (DEVICE, {"anew": True})):
        measure._build(Doer(), problem, device, config)
    row, _ = bench.measure(but(CASE, config={"do": "slow", "again": True}, baseline="doer"))
    assert (row.status, row.config) == (Status.OK, {"did": "slow"})
    how, caches = zip(*seen, strict=True)
    assert how == ("build", "load", "build", "build", "load", "build"), "a baseline is built as it always is"
    assert [cache == str(tmp_path) for cache in caches] == [True, True, False, True, True, True]


def test_a_matrix_that_cannot_be_loaded_is_a_row(bench: Bench, tmp_path: Path) -> None:
    matrix = MatrixRef(source="npz", name=str(tmp_path / "missing.npz"))
    row, _ = bench.measure(but(CASE, matrix=matrix))
    assert row.status is Status.BUILD_ERROR
    assert "missing.npz" in row.reason


def test_a_time_below_the_floor_is_implausible(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = DEVICE.model_copy(update={"read_bytes_per_s": 1e3})
    monkeypatch.setattr(bench, "_device", slow)
    row = ask(bench)
    assert row.status is Status.IMPLAUSIBLE
    assert "floor of bytes and flops" in row.reason
    assert row.samples_us


def test_the_floor_is_the_larger_of_bytes_and_flops(small_matrix: Csr) -> None:
    problem = Problem(Op.SPMM, small_matrix, 10)
    read = 4 * (small_matrix.nnz + 10 * small_matrix.used_cols)
    rates = DEVICE.model_copy(update={"read_bytes_per_s": 1e9, "fma_flops_per_s": 1e15})
    assert floor_s(problem, rates) == pytest.approx(read / 1e9)
    rates = DEVICE.model_copy(update={"read_bytes_per_s": 1e15, "fma_flops_per_s": 1e6})
    assert floor_s(problem, rates) == pytest.approx(2 * small_matrix.nnz * 10 / 1e6)
    assert floor_s(problem, DEVICE.model_copy(update={"read_bytes_per_s": 0, "fma_flops_per_s": 0})) == 0


def test_the_baseline_is_measured_beside_the_case(bench: Bench) -> None:
    row = ask(bench, "slow", baseline="scipy_cpu")
    assert row.baseline.implementation == "scipy_cpu"
    assert len(row.baseline.samples_us) == len(row.samples_us)
    assert np.median(row.samples_us) > 1_500 > np.median(row.baseline.samples_us)


def test_what_the_search_of_a_baseline_could_not_use_is_recorded(bench: Bench) -> None:
    row, _ = bench.measure(but(CASE, config={"do": "slow"}, baseline="doer"))
    assert row.baseline.refused == [RefusedConfig(config={"a": 2}, reason="no room")]
    assert Outcome.model_validate_json(row.model_dump_json()) == row
    assert ask(bench, baseline="scipy_cpu").baseline.refused == []


def test_the_baseline_has_no_baseline_and_a_broken_one_is_left_out(bench: Bench) -> None:
    row, _ = bench.measure(but(CASE, implementation="scipy_cpu", baseline="scipy_cpu"))
    assert row.status is Status.OK
    assert row.baseline is None
    row = ask(bench, baseline="gespmm")
    assert row.status is Status.OK
    assert row.baseline is None


def test_a_baseline_without_room_beside_one_plan_is_there_for_the_next(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []
    real: Callable[..., Any] = measure._build

    def build(implementation: Any, *arguments: Any) -> Any:
        built.append(implementation.name)
        if built == ["doer", "scipy_cpu"]:
            raise MemoryError("no room beside the plan of this case")
        return real(implementation, *arguments)

    monkeypatch.setattr(measure, "_build", build)
    first, second = (ask(bench, do, baseline="scipy_cpu") for do in ("right", "slow"))
    assert (first.status, first.baseline) == (Status.OK, None)
    assert second.baseline is not None
    ask(bench, "right", baseline="scipy_cpu")
    assert built.count("scipy_cpu") == 2, "a baseline that was built is kept"


def test_a_baseline_that_overwrites_operands_spoils_no_case(bench: Bench) -> None:
    for do in ("right", "slow"):
        row = ask(bench, do, baseline="overwriter")
        assert (row.status, row.baseline) == (Status.OK, None), row.reason
    assert bench._setting is not None
    assert all(
        source.equals(operand, np)
        for source, operand in zip(bench._setting.sources, bench._setting.operands, strict=True)
    )


def test_warm_samples_are_taken_when_asked(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(bench).warm_samples_us == []
    monkeypatch.setattr(bench, "_options", Options(warm=True))
    assert len(ask(bench).warm_samples_us) >= 7


def test_operands_beyond_the_memory_are_a_row(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench._lab, "free_bytes", lambda: 1000)
    row = ask(bench)
    assert row.status is Status.OUT_OF_MEMORY
    assert "1,000 are free" in row.reason


def test_a_check_beyond_the_host_s_memory_is_a_row(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share.psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    row = ask(bench)
    assert row.status is Status.OUT_OF_MEMORY
    assert row.reason.startswith("checking the result takes ")
    assert row.reason.endswith(" bytes of the host, 1,000 are free")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_kernels_on_the_host_are_checked_and_not_timed(dtype: str) -> None:
    bench = Bench(find("host-simt"), Cache.default())
    matrix = MatrixRef(source="rmat", name="rmat_6", args={"scale": 6})
    row, _ = bench.measure(but(CASE, matrix=matrix, implementation="gespmm", label="gespmm", dtype=dtype))
    assert row.status is Status.OK, row.reason
    assert row.samples_us == []
    assert (0 < row.max_rel_error < 1e-5) == (dtype == "float32"), "of 16 bits the one rounding is no error"


def test_a_wrong_result_in_bfloat16_is_found(bench: Bench) -> None:
    """The plans of these tests compute with bits as if these were numbers."""
    assert ask(bench, dtype="bfloat16").status is Status.WRONG_RESULT


PEAK = """
import resource, sys
import numpy as np
from spmark.datasets.cache import Cache
from spmark.records.schema import CaseSpec, MatrixRef
from spmark.impls.runtime.device import find
from spmark.suite.measure import Bench

matrix = MatrixRef(source="twin", name="reddit_twin")
case = CaseSpec(op="spmm", matrix=matrix, width=32, dtype="float32", implementation="numba_cpu", label="", seed=0)
row, _ = Bench(find("cpu"), Cache.default()).measure(case)
print(row.status, row.problem.nnz, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.full
@pytest.mark.timeout(280)
def test_a_matrix_of_115_million_non_zeros_is_measured_within_four_times_its_csr() -> None:
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, timeout=270)
    assert done.returncode == 0, done.stderr
    status, nnz, peak = done.stdout.split()
    assert status == "ok"
    assert int(nnz) == 114_615_892
    csr_bytes = 8 * int(nnz) + 4 * (232_965 + 1)
    assert int(peak) < 4 * csr_bytes


def test_a_record_says_how_busy_the_machine_was(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The meter runs from the check to the last sample; what fails before it is read has no load."""
    load = Load(4, 1.25, 6.5)
    monkeypatch.setattr(measure.LoadMeter, "read", lambda self: load)
    row = ask(bench)
    assert (row.load_average, row.free_cores) == (6.5, 1.25)
    row = ask(bench, "leave_a_row")
    assert (row.load_average, row.free_cores) == (None, None)


def test_samples_stay_and_means_seconds_and_errors_have_six_digits(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = Deed.__init__

    def init(self: Deed, problem: Problem, do: str) -> None:
        built(self, problem, do)
        self.config, self.phases_s = {"share": 1 / 3}, {"upload": 0.0005875559999992674, "search": 1234567.891}
        self.search = Search(8, compile_s=1 / 3, run_s=0.43188794599998204)

    samples = [1234567.891, 22.624, 9.032]
    monkeypatch.setattr(Deed, "__init__", init)
    monkeypatch.setattr(
        measure, "take_samples", lambda *given, **how: SimpleNamespace(times_us=[samples], clocks_mhz=[], throttled=[])
    )
    monkeypatch.setattr(bench._lab, "graph_times_us", lambda run, replays: [2.0400000736117363])
    monkeypatch.setattr(measure, "_GRAPH_BELOW_US", 1e9)
    row = ask(bench)
    assert (row.status, row.samples_us) == (Status.OK, samples)
    assert row.config == {"share": 1 / 3}, "a config is what a plan was made with"
    assert row.graph_samples_us == [2.04]
    assert row.phases_s == {"upload": 0.000587556, "search": 1234570.0}
    assert row.max_rel_error == float(f"{row.max_rel_error:.6g}")
    assert (row.search.candidates, row.search.compile_s, row.search.run_s) == (8, 0.333333, 0.431888)
