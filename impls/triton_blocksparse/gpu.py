"""Compile Triton programs ahead of time, and launch them through CuPy.

Triton's own launcher asks PyTorch for device and stream. This module uses Triton's compiler alone: the cubin is loaded
and launched like every other kernel, on CuPy's current stream. A run can thus be captured and does without PyTorch.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import CompileError
from spmark.impls.core.files import cache_folder
from spmark.impls.core.interfaces import Config, DeviceArray
from spmark.impls.core.problem import Op, Problem, numbered, openings
from spmark.impls.formats.bsr import BsrFormat
from spmark.impls.kernels.family import Build, OneFormat
from spmark.impls.runtime.compile import Binary
from spmark.impls.runtime.cuda import CudaKernel, load_function
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Grid, Target, ceil_div
from spmark.impls.runtime.template import Instance
from spmark.impls.triton_blocksparse.plan import SDDMM, SPMM

_SIZES = dict.fromkeys(("num_rows", "num_cols", "width"), "i32")
_TYPES = {
    "spmm": dict.fromkeys(("indptr", "indices"), "*i32") | dict.fromkeys(("blocks", "b", "c"), "*fp16") | _SIZES,
    "sddmm": dict.fromkeys(("tasks", "indptr", "indices", "starts"), "*i32")
    | {"ranks": "*i8"}
    | dict.fromkeys(("values", "x", "y", "out"), "*fp16")
    | _SIZES,
}
"""Arguments of the programs and their types, in order, as Triton names them."""
_ALIGNMENT = 16
_OPTIONS = ("stages", "threads")
_ARGUMENTS = {"block": "S", "group": "GROUP", "tile": "TILE"}
"""Template arguments by tunable, where they differ."""


@dataclass(frozen=True)
class Compiled:
    """A program in machine code."""

    binary: Binary
    shared_bytes: int
    """Dynamic shared memory of a block."""
    scratch: int
    """Number of pointers that Triton appends to the arguments, for scratch memory that these programs leave unused."""


def compile_program(instance: Instance, arch: str, wide: bool) -> Compiled:
    """Compile a program for an architecture, without a GPU.

    Parameters
    ----------
    instance : Instance
        Instance of `SPMM` or `SDDMM`.
    arch : str
        ``sm_90`` and so on.
    wide : bool
        Whether 16 divides J and addresses, so that rows are loaded 16 bytes at a time.

    Raises
    ------
    CompileError
        Triton refuses the program.
    """
    os.environ.setdefault("TRITON_CACHE_DIR", str(cache_folder().parent / "triton"))
    import triton  # pyright: ignore[reportMissingImports]
    from triton.backends.compiler import GPUTarget  # pyright: ignore[reportMissingImports]
    from triton.compiler import ASTSource  # pyright: ignore[reportMissingImports]

    from spmark.impls.triton_blocksparse import kernels

    name, values = instance.template.name, instance.values
    types, constants = _TYPES[name], {key: values[key] for key in values if key not in _OPTIONS}
    # The allocator aligns uploaded arrays; operands, result and width are aligned only where the plan demands so.
    given = ("b", "c", "x", "y", "out", "width")
    aligned = [wide if argument in given else kind.startswith("*") for argument, kind in types.items()]
    source = ASTSource(
        getattr(kernels, name),
        {**types, **dict.fromkeys(constants, "constexpr")},
        constexprs=constants,
        attrs={(place,): [["tt.divisibility", _ALIGNMENT]] for place, so in enumerate(aligned) if so},
    )
    options = {"num_warps": instance.threads // 32, "num_stages": int(values["stages"])}
    try:
        target = GPUTarget("cuda", int(arch.removeprefix("sm_")), 32)
        compiled = triton.compile(source, target=target, options=options)
    except Exception as error:  # each of Triton's many passes raises errors of its own
        raise CompileError(str(instance.template.source), instance.expression, str(error)) from error
    ptx = compiled.asm["ptx"]
    parameters = ptx[ptx.index(".entry") : ptx.index(")", ptx.index(".entry"))].count(".param")
    metadata = compiled.metadata
    binary = Binary(compiled.asm["cubin"], metadata.name, registers=0, spill_bytes=0, shared_bytes=0)
    return Compiled(binary, int(metadata.shared), parameters - len(types))


class TritonPlan(DevicePlan):
    """One schedule of one operator.

    Parameters
    ----------
    held : BsrFormat
        Square blocks of ``config["block"]``.
    config : dict
        ``block, group, tile, stages, threads``: see `spmark.impls.triton_blocksparse.plan.schedules`.
    """

    def __init__(self, problem: Problem, target: Target, held: BsrFormat, config: Config) -> None:
        wide = problem.width % _ALIGNMENT == 0
        super().__init__(problem, target, config, alignment=_ALIGNMENT if wide else problem.dtype.itemsize)
        self.stored = held.stored
        spmm, full = problem.op is Op.SPMM, problem.matrix.nnz == held.stored
        schedule = {_ARGUMENTS.get(name, name): value for name, value in config.items()}
        with self.phase("compile"):
            template = SPMM if spmm else SDDMM
            instance = template.instance(**schedule, **({} if spmm else {"FULL": full, "SCALED": problem.scaled}))
            compiled = compile_program(instance, target.spec.arch, wide)
            self._shared_bytes = compiled.shared_bytes
            self._kernel = CudaKernel(instance, compiled.binary, load_function(compiled.binary), overlaps=False)
            self._kernel.allow_shared(self._shared_bytes)
        with self.phase("convert"):
            arrays, self._grid = (spmm_launch if spmm else sddmm_launch)(problem, held, config)
        self._arrays = [self.upload(array) for array in arrays]
        sizes = (*problem.matrix.shape, problem.width)
        self._tail = (*(np.int32(size) for size in sizes), *[np.uint64(0)] * compiled.scratch)

    def enqueue(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """Launch once, which writes the whole result."""
        self._kernel.launch(self._grid, (*self._arrays, *operands, out, *self._tail), self._shared_bytes)


def spmm_launch(problem: Problem, held: BsrFormat, config: Config) -> tuple[list[NDArray[Any]], Grid]:
    """Give the arrays that SpMM's program takes before B, and its grid."""
    blocks = held.blocks.astype(problem.dtype.numpy)
    grid = held.indptr.size - 1, ceil_div(problem.width, config["tile"]), 1
    return [held.indptr, held.indices, blocks], grid


def sddmm_launch(problem: Problem, held: BsrFormat, config: Config) -> tuple[list[NDArray[Any]], Grid]:
    """Give the arrays that SDDMM's program takes before X, and its grid."""
    tasks = row_tasks(held, config["group"])
    if problem.matrix.nnz == held.stored:
        starts, ranks = problem.matrix.indptr, np.zeros(0, np.int8)
    else:
        starts, ranks = row_ranks(held)
    return [tasks, held.indptr, held.indices, starts, ranks, problem.factors], (len(tasks), 1, 1)


def row_tasks(held: BsrFormat, group: int) -> NDArray[np.int32]:
    """List the programs of an SDDMM, (n, 2) int32: block row, and the first of up to ``group`` blocks of the row."""
    row, piece = numbered(-(-np.diff(held.indptr) // group))
    return np.stack([row, held.indptr[row] + piece * group], axis=1).astype(np.int32)


def row_ranks(held: BsrFormat) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
    """Say where the non-zeros of blocks stand in CSR order.

    Returns
    -------
    starts : (nblocks * S,) int32
        Position of the first non-zero in a row of a block; 0 where the row has none.
    ranks : (nblocks * S * S,) int8
        Number of non-zeros that stand before an element in its row of the block; -1 for padding.
    """
    size = held.block_shape[1]
    run = held.positions // np.int32(size)
    begin = np.flatnonzero(openings(run))
    starts = np.zeros(held.indices.size * size, np.int32)
    starts[run[begin]] = begin
    ranks = np.full(held.stored, -1, np.int8)
    ranks[held.positions] = np.arange(run.size) - np.repeat(begin, np.diff(begin, append=run.size))
    return starts, ranks


def opened(problem: Problem, target: Target) -> Build:
    """Give what builds schedules; those of one block size share the blocks."""
    return OneFormat(
        ("block",),
        lambda form: BsrFormat.from_csr(problem.matrix, form["block"], form["block"]),
        lambda held, form, schedule, _: TritonPlan(problem, target, held, form | schedule),
    )
