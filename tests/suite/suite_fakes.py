"""An implementation, a device and a bench that misbehave on request; imported by tests, by children and by scripts."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
import types
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from spmark.datasets.sweep.model import Sweep
from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import BuildError, KernelFault
from spmark.impls.core.problem import DType, Op
from spmark.impls.table import IMPLEMENTATIONS
from spmark.records.schema import (
    CaseSpec,
    Environment,
    MatrixKind,
    MatrixRef,
    Outcome,
    ProblemFacts,
    SeenConfig,
    Status,
)
from spmark.suite.plan import plan
from spmark.suite.plan.options import Options
from spmark.suite.plan.refusals import refusals
from spmark.suite.run import worker_main
from spmark.suite.run.execute import Here, Watcher, run_chosen
from spmark.suite.run.messages import WAITING, Result

MAIN = str(Path(__file__).with_name("fake_main.py"))
"""The file of the measuring process that `FakeBench` measures in."""
TABLE = {
    "fake": "spmark.impls.fake.plan:Fake",
    "fake_gpu": "spmark.impls.fake.plan:FakeGpu",
    "fake_missing": "spmark.impls.fake_missing.plan:FakeMissing",
}
SWEEP = """
schema: 1
name: tiny
title: Two cases
ops: [spmm]
matrices:
  - {source: patterns, name: a}
  - {source: patterns, name: b}
widths: [32]
implementations:
  - fake
  - {name: fake, label: bad, config: {do: build_error}}
  - fake_gpu
"""
CPU = DeviceSpec(
    name="fake-cpu",
    kind=DeviceKind.CPU,
    arch="x86_64",
    num_sms=2,
    l2_bytes=1 << 20,
    memory_bytes=1 << 30,
    copy_bytes_per_s=1e10,
    read_bytes_per_s=1e10,
    fma_flops_per_s=1e11,
)


@dataclass(frozen=True)
class Fake:
    """Does what `do` says."""

    name: ClassVar[str] = "fake"
    ops: ClassVar[frozenset[Op]] = frozenset({Op.SPMM})
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CPU})
    do: str = "ok"
    seconds: float = 0.0
    mark: str = ""
    """A file: whatever `do` says is done only until it is there."""


@dataclass(frozen=True)
class FakeGpu:
    """Runs nowhere here."""

    name: ClassVar[str] = "fake_gpu"
    ops: ClassVar[frozenset[Op]] = frozenset({Op.SPMM})
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA})


def modules():
    """Give the modules that the table's entries live in."""
    module = types.ModuleType("spmark.impls.fake.plan")
    module.Fake, module.FakeGpu = Fake, FakeGpu
    return {"spmark.impls.fake.plan": module, "spmark.impls.fake_missing.plan": Unimportable("fake_missing.plan")}


class Unimportable(types.ModuleType):
    """Stands for a module that imports a package that is not there."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)  # who looks through sys.modules asks for these
        raise ModuleNotFoundError("No module named 'dgl'", name="dgl")


def version(package):
    """Stand for the digest of code, which others may be editing while a test runs."""
    return "0123456789abcdef"


def register():
    """Put the fakes into this process for good: for children and scripts."""
    plan.implementation_version = version
    worker_main.__file__ = MAIN
    IMPLEMENTATIONS.update(TABLE)
    sys.modules.update(modules())


def install(monkeypatch, log, *folders):
    """Put the fakes into this process for a test, and where its children find them; benches write to ``log``."""
    for name, entry in TABLE.items():
        monkeypatch.setitem(IMPLEMENTATIONS, name, entry)
    for name, module in modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(plan, "implementation_version", version)
    monkeypatch.setattr("spmark.suite.run.provenance.implementation_version", version)
    monkeypatch.setattr(worker_main, "__file__", MAIN)
    paths = [str(Path(__file__).parent), *map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("FAKE_LOG", str(log))


def case(name="m", do="ok", implementation="fake", *, time_limit_s=30.0, width=32, mark="", op=Op.SPMM):
    config = {} if do == "ok" or implementation != "fake" else {"do": do} | ({"mark": mark} if mark else {})
    return CaseSpec(
        op=op,
        matrix=MatrixRef(source="patterns", name=name),
        width=width,
        dtype=DType.FLOAT32,
        scaled=False,
        implementation=implementation,
        config=config,
        label=implementation,
        seed=0,
        time_limit_s=time_limit_s,
        baseline=None,
    )


def but(spec, **changes):
    """Give another case: like ``spec``, with an id of its own."""
    return CaseSpec.model_validate(spec.model_dump(exclude={"case_id"}) | changes)


def rmat_case(implementation, scale, width):
    """Give a case of a true matrix, for a bench that measures."""
    matrix = MatrixRef(source="rmat", name=f"rmat_{scale}", args={"scale": scale})
    return but(case(implementation=implementation, width=width, time_limit_s=60), matrix=matrix, seed=3)


def environment(driver="", device=CPU):
    return Environment(
        device=device, driver=driver, packages={"spmark": "0"}, cpu="fake", cores=2, memory_bytes=1 << 30, system="test"
    )


def sweep_of(cases):
    """Give a sweep that says less than the cases do."""
    names = dict.fromkeys(one.implementation for one in cases)
    matrices = [{"source": "patterns", "name": "m"}]
    return Sweep(schema=1, name="fake", ops=("spmm",), matrices=matrices, widths=(32,), implementations=tuple(names))


def chosen(cases, kind=DeviceKind.CPU):
    return plan.Chosen(sweep_of(cases), tuple(cases), refusals(cases, kind))


def run_cases(cases, folder, facts, watcher=None, until=float("inf"), **fields):
    """Run cases; ``fields`` are of `Options`."""
    return run_chosen(chosen(cases), Here(facts), folder, Options(**fields), watcher=watcher or Watcher(), until=until)


class DyingBench:
    """Ends its process with last words."""

    def __init__(self, device, cache, options, on_phase):
        sys.stderr.write("no such library\n")
        sys.stderr.flush()
        os._exit(9)


class RefusingBench:
    """Lacks a library."""

    def __init__(self, device, cache, options, on_phase):
        raise ImportError("libcuda.so.1 is not there")


class FakeBench:
    """A bench whose canary fails once a case has poisoned the process, or while the file of FAKE_DEAD is there."""

    def __init__(self, device, cache, options, on_phase):
        register()
        self._options, self._on_phase, self._poisoned = options, on_phase, False

    def canary(self):
        if self._poisoned == "hang":
            time.sleep(1000)
        if self._poisoned or Path(os.environ.get("FAKE_DEAD", "/nonexistent")).exists():
            raise KernelFault("the canary found 0 where it wrote 1")

    def measure(self, case):
        with Path(os.environ["FAKE_LOG"]).open("a") as file:
            file.write(f"{case.case_id} {os.getpid()}\n")
        self._on_phase("loading")
        self._on_phase("building")
        mark = case.config.get("mark", "")
        if not mark or not Path(mark).exists():
            if mark:
                Path(mark).touch()
            self._seconds = case.config.get("seconds", 0.0)
            self._misbehave(case.config.get("do", "ok"))
        self._on_phase("timing")
        facts = ProblemFacts(num_rows=4, num_cols=4, nnz=8, longest_row=3, flops=512, compulsory_bytes=100)
        factor = float(os.environ.get("FAKE_FACTOR", "1"))
        warm = [9.0] if self._options.warm else []
        outcome = Outcome(
            status=Status.OK,
            matrix_kind=MatrixKind.PATTERN,
            problem=facts,
            samples_us=[10.0 * factor, 11.0 * factor],
            warm_samples_us=warm,
        )
        return Result(outcome, [SeenConfig(config={"tile": 8})])

    def _misbehave(self, do):
        getattr(self, f"_{do}")()

    def _ok(self):
        pass

    def _wait(self):
        self._on_phase(WAITING)
        time.sleep(1.5)
        self._on_phase("building")

    def _hang_after_waiting(self):
        self._on_phase(WAITING)
        self._on_phase("placing")
        time.sleep(1000)

    def _sleep(self):
        time.sleep(self._seconds)

    def _slow(self):
        time.sleep(0.1)

    def _hang(self):
        time.sleep(1000)

    def _hang_holding_gil(self):
        ctypes.PyDLL(None).sleep(1000)

    def _segfault(self):
        ctypes.string_at(0)

    def _exit(self):
        sys.stderr.write("last words\n")
        sys.stderr.flush()
        os._exit(3)

    def _garbage(self):
        os.write(int(sys.argv[1]), b"\0\0\0\2{]")
        time.sleep(1000)

    def _killed(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def _terminated(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1000)

    def _build_error(self):
        raise BuildError("kernel.cu: spmm<float> does not compile")

    def _bug(self):
        return "one" + 1

    def _memory(self):
        np.empty(1 << 50, np.uint8)

    def _sticky(self):
        self._poisoned = True
        raise KernelFault("an illegal memory access was encountered")

    def _sticky_dead(self):
        Path(os.environ["FAKE_DEAD"]).touch()
        self._sticky()

    def _sticky_hang(self):
        self._poisoned = "hang"
        raise KernelFault("the kernel did not come back")

    def _chatty(self):
        sys.stdout.write("{}\n" * 20000)
        sys.stdout.flush()

    def _other_cusparse(self):
        ctypes.CDLL(os.environ["FAKE_CUSPARSE"])

    def _orphan(self):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], close_fds=False)
        Path(os.environ["FAKE_LOG"] + ".orphan").write_text(str(child.pid))
        ctypes.string_at(0)
