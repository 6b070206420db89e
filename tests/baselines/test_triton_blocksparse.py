"""The Triton programs in Triton's interpreter, compiled without a GPU, and what the search may ask for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from problems import dense_operands, matrices, random_csr

from spmark.impls.core.operators import reference
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.core.tolerance import tolerance
from spmark.impls.formats.bsr import BsrFormat
from spmark.impls.runtime.device import find
from spmark.impls.triton_blocksparse.plan import (
    BLOCKS,
    SDDMM,
    SPMM,
    TritonBlockSparse,
    middle,
    schedules,
    widest_tile,
)

ROOT = Path(__file__).parents[2]
FULL = random_csr(48, 64, [64] * 16 + [0] * 16 + [64] * 16)
"""Every block of 16 is full or empty."""


def sddmm_problem(matrix: Csr, width: int, scaled: bool = False) -> Problem:
    return Problem(Op.SDDMM, matrix, width, DType.FLOAT16, scaled)


class HostTensor:
    """As much of a PyTorch tensor as Triton's interpreter asks for, over a NumPy array."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.dtype = {"int32": "i32", "int8": "i8", "float16": "fp16"}[array.dtype.name]

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    def untyped_storage(self) -> HostTensor:
        return self

    def cpu(self) -> HostTensor:
        return self

    def new_empty(self, size: int, device: str) -> HostTensor:
        return HostTensor(np.empty(size, self.array.dtype))

    def set_(self, storage: HostTensor, *_: Any) -> None:
        self.array = storage.array

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return self.array.shape

    def stride(self) -> tuple[int, ...]:
        return (1,)

    def copy_(self, other: HostTensor) -> None:
        assert other.array is self.array


interpreted = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="Triton's interpreter is chosen before Triton is imported"
)


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.skipif("TRITON_INTERPRET" in os.environ, reason="this is the process with the interpreter")
def test_programs_compute_in_the_interpreter() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "_in_a_child"]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    child = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert child.returncode == 0, child.stdout[-4000:]
    assert re.search(r"^\d+ passed, \d+ deselected", child.stdout, re.MULTILINE), child.stdout[-400:]


def interpret(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    grid: tuple[int, ...],
    arguments: Sequence[Any],
    constants: dict[str, Any],
) -> None:
    from triton.runtime import interpreter  # pyright: ignore[reportMissingImports]

    from spmark.impls.triton_blocksparse import kernels

    patch = interpreter._patch_lang_tensor

    def patch_with_index(tensor: Any, scope: Any) -> None:
        """Triton 3.6 asks int() of an array of one element, which NumPy 2.4 refuses."""
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patch_with_index)
    program = getattr(kernels, name)
    program[grid](*[HostTensor(a) if isinstance(a, np.ndarray) else a for a in arguments], **constants)


@interpreted
@pytest.mark.parametrize("width", [20, 33])
@pytest.mark.parametrize(("block", "group", "tile"), [(16, 1, 32), (16, 4, 16), (32, 2, 64)])
@pytest.mark.parametrize("name", ["empty_rows", "wide"])
def test_spmm_in_a_child(
    name: str, block: int, group: int, tile: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spmark.impls.triton_blocksparse.gpu import spmm_launch

    problem = Problem(Op.SPMM, matrices()[name], width, DType.FLOAT16)
    held = BsrFormat.from_csr(problem.matrix, block, block)
    config = {"block": block, "group": group, "tile": tile}
    arrays, grid = spmm_launch(problem, held, config)
    operands, out = dense_operands(problem), np.full(problem.out_shape, np.nan, np.float16)
    sizes = (*problem.matrix.shape, width)
    interpret(monkeypatch, "spmm", grid, [*arrays, *operands, out, *sizes], {"S": block, "GROUP": group, "TILE": tile})
    assert reference(problem, operands).max_error(out) <= tolerance(problem)


@interpreted
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("width", [20, 33])
@pytest.mark.parametrize(("block", "group", "tile"), [(16, 1, 32), (16, 4, 16), (32, 2, 64)])
@pytest.mark.parametrize(
    "matrix", [matrices()["empty_rows"], matrices()["wide"], FULL], ids=["empty_rows", "wide", "full"]
)
def test_sddmm_in_a_child(
    matrix: Csr, block: int, group: int, tile: int, width: int, scaled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spmark.impls.triton_blocksparse.gpu import sddmm_launch

    problem = sddmm_problem(matrix, width, scaled)
    held = BsrFormat.from_csr(matrix, block, block)
    arrays, grid = sddmm_launch(problem, held, {"block": block, "group": group})
    operands, out = dense_operands(problem), np.full(problem.out_shape, np.nan, np.float16)
    constants = {"S": block, "GROUP": group, "TILE": tile, "FULL": held.stored == matrix.nnz, "SCALED": scaled}
    sizes = (*matrix.shape, width)
    interpret(monkeypatch, "sddmm", grid, [*arrays, *operands, out, *sizes], constants)
    assert reference(problem, operands).max_error(out) <= tolerance(problem)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("wide", [False, True])
def test_programs_compile_without_a_gpu(arch: str, wide: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    pytest.importorskip("cupy", reason="CuPy is not installed")
    from spmark.impls.triton_blocksparse.gpu import compile_program

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    schedule = {"S": 16, "GROUP": 2, "TILE": 32, "stages": 2, "threads": 64}
    for instance in (SPMM.instance(**schedule), SDDMM.instance(**schedule, FULL=False, SCALED=True)):
        compiled = compile_program(instance, arch, wide)
        assert compiled.binary.cubin[:4] == b"\x7fELF"
        assert compiled.binary.symbol == instance.template.name
        assert compiled.shared_bytes >= 0
        assert compiled.scratch >= 0


@pytest.mark.parametrize("width", [1, 64, 100, 512])
@pytest.mark.parametrize("op", Op)
@pytest.mark.parametrize("block", BLOCKS)
def test_every_schedule_is_legal(block: int, op: Op, width: int) -> None:
    problem = Problem(op, matrices()["empty_rows"], width, DType.FLOAT16)
    template, further = (SPMM, {}) if op is Op.SPMM else (SDDMM, {"FULL": False, "SCALED": False})
    for config in (middle(problem, block), *schedules(problem, block)):
        assert config["tile"] <= widest_tile(problem)
        template.instance(
            S=block,
            GROUP=config["group"],
            TILE=config["tile"],
            stages=config["stages"],
            threads=config["threads"],
            **further,
        )


def test_what_is_refused() -> None:
    cpu = find("cpu")
    matrix = matrices()["empty_rows"]
    assert "float16" in str(TritonBlockSparse().unsupported(Problem(Op.SPMM, matrix, 8), cpu))
    wide = Problem(Op.SPMM, matrix, 128 * 65535 + 1, DType.FLOAT16)
    assert "expected J of at most" in str(TritonBlockSparse().unsupported(wide, cpu))
