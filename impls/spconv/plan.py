"""Packages of sparse convolution on the tables of a kernel map: spconv (Yan and others) and spconv-triton."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import check_choices, not_installed
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.problem import DType
from spmark.impls.core.relational import RelationalOp, RelationalProblem
from spmark.impls.formats.relational_rows import why_not_rows
from spmark.impls.runtime.withtorch import Tensor, TorchPlan, load_torch, torch_missing
from spmark.impls.spconv.tables import is_submanifold, neighbours, pairs, parts_of_offsets, sorted_masks


@dataclass(frozen=True)
class Spconv:
    """spconv's forward pass; its tuner chooses a tile by the first map that has the widths, for all later ones too."""

    name: ClassVar[str] = "spconv"
    ops: ClassVar[frozenset[RelationalOp]] = frozenset(RelationalOp)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA})
    needs: ClassVar[tuple[str, ...]] = ("torch", "spconv")
    extra: ClassVar[str] = "spconv"

    algorithm: str = "MaskImplicitGemm"
    """``MaskImplicitGemm``, which the package's layers take; ``MaskSplitImplicitGemm``, halves of the offsets one after
    the other; or ``Native``, gather, product and scatter of each offset."""

    def __post_init__(self) -> None:
        check_choices(self, algorithm=("MaskImplicitGemm", "MaskSplitImplicitGemm", "Native"))

    def unsupported(self, problem: RelationalProblem, device: DeviceSpec) -> str | None:
        """Refuse what is no kernel map, other values than 1, and bfloat16; say what is not installed."""
        return _refusal(problem) or not_installed(self.needs, self.extra) or torch_missing(device.kind)

    def build(self, problem: RelationalProblem, device: DeviceSpec) -> Plan:
        """Make the algorithm's tables, and run once, in which the package tunes."""
        if self.algorithm == "Native":
            plan: _Plan = _Native(problem, device.kind, self.name)
        else:
            plan = _IntoResult(problem, device.kind, self.name, 2 if "Split" in self.algorithm else 1)
        plan.config = {"algorithm": self.algorithm}
        # Version 2.3.8 also tries tiles that add up in float16, even where it is asked for float32.
        plan.half_sums = problem.dtype.narrow
        return plan


@dataclass(frozen=True)
class SpconvTriton:
    """spconv-triton's masked implicit GEMM, with float32 sums; Triton chooses a tile for each pair of widths."""

    name: ClassVar[str] = "spconv_triton"
    ops: ClassVar[frozenset[RelationalOp]] = frozenset(RelationalOp)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CUDA})
    needs: ClassVar[tuple[str, ...]] = ("torch", "triton", "spconv_triton")
    extra: ClassVar[str] = "spconv"

    def unsupported(self, problem: RelationalProblem, device: DeviceSpec) -> str | None:
        """Refuse what is no kernel map, other values than 1, and bfloat16; say what is not installed."""
        return _refusal(problem) or not_installed(self.needs, self.extra) or torch_missing(device.kind)

    def build(self, problem: RelationalProblem, device: DeviceSpec) -> Plan:
        """Make the tables, and run once, in which Triton compiles and times 37 tiles."""
        return _ImplicitGemm(problem, device.kind, self.name, 1)


def _refusal(problem: RelationalProblem) -> str | None:
    if problem.dtype is DType.BFLOAT16:
        return "expected float16 or float32, found bfloat16"
    if (problem.dtype.numbers(problem.values) != 1).any():
        return "expected values that are all 1, since the pairs of a convolution have none, found others"
    if not problem.matrix.nnz:
        return "expected a map with pairs, found none"
    return why_not_rows(problem.matrix)


class _Plan(TorchPlan):
    def __init__(self, problem: RelationalProblem, kind: DeviceKind, package: str) -> None:
        super().__init__(problem, kind)
        self._functions, self._rows = import_module(f"{package}.pytorch.ops"), problem.matrix.num_rows
        with self.phase("convert"):
            self._submanifold = is_submanifold(problem.matrix)
        self.lay_out(problem)
        torch, shapes = load_torch(), (*problem.operand_shapes, problem.out_shape)
        with self.phase("search"):
            x, w, out = (torch.zeros(shape, dtype=getattr(torch, problem.dtype), device=self.place) for shape in shapes)
            self.compute((x, w), out)

    @abstractmethod
    def lay_out(self, problem: RelationalProblem) -> None:
        """Make and upload the tables."""

    @abstractmethod
    def convolve(self, x: Tensor, w: Tensor, out: Tensor) -> None:
        """Call the package: X (K, width_in), W (width_out, R, width_in), Y (I, width_out)."""

    def compute(self, operands: Sequence[Tensor], out: Tensor) -> None:
        x, w = operands
        self.convolve(x, w.permute(2, 0, 1).contiguous(), out)


class _ImplicitGemm(_Plan):
    def __init__(self, problem: RelationalProblem, kind: DeviceKind, package: str, parts: int) -> None:
        self._bits = parts_of_offsets(problem.matrix.relations, parts)
        super().__init__(problem, kind, package)

    def lay_out(self, problem: RelationalProblem) -> None:
        with self.phase("convert"):
            table = neighbours(problem.matrix)
            sides = [sorted_masks(problem.matrix, bits) for bits in self._bits]
        self.stored = table.size
        self._table = self.upload(table)
        self._masks, self._orders = zip(*([self.upload(one) for one in side] for side in sides), strict=True)

    def convolve(self, x: Tensor, w: Tensor, out: Tensor) -> None:
        tables = self._table, list(self._masks), list(self._orders)
        parts = [np.array([bits], np.uint32) for bits in self._bits]
        how = {"is_train": False, "is_subm": self._submanifold, "fp32_accum": True}
        out.copy_(self._functions.implicit_gemm(x, w, *tables, self._rows, parts, **how)[0])


class _IntoResult(_ImplicitGemm):
    """spconv's compiled function; the public one calls it with an allocator that makes an array for the result."""

    def lay_out(self, problem: RelationalProblem) -> None:
        super().lay_out(problem)
        ops, view = self._functions, self._functions.torch_tensor_to_tv

        class Into(ops.TorchAllocator):  # type: ignore[misc, name-defined]
            """Gives the caller's array as the result, which is all that a forward pass asks for."""

            out: Tensor = None

            def empty(self, *what: Any) -> Any:
                return view(self.out)

            def zeros(self, *what: Any) -> Any:
                return view(self.out.zero_())

        self._allocator = Into(load_torch().device(self.place))
        masks = [view(mask, ops.tv.uint32) for mask in self._masks]
        bits = ops.tv.from_numpy(np.array(self._bits, np.uint32)).clone()
        self._tables = view(self._table), masks, [view(order) for order in self._orders], self._rows, bits

    def convolve(self, x: Tensor, w: Tensor, out: Tensor) -> None:
        ops, self._allocator.out = self._functions, out
        tensors = (ops.torch_tensor_to_tv(one) for one in (x, w))
        how = {"is_subm": self._submanifold, "auto_fp32_accum": False, "fp32_accum": True, "use_tf32": False}
        called, stream = ops.ConvGemmOps.implicit_gemm, ops.get_current_stream()
        called(self._allocator, ops.CONV_CPP, *tensors, *self._tables, ops.get_arch(), stream_int=stream, **how)
        self._allocator.out = None  # which would keep the caller's array


class _Native(_Plan):
    def lay_out(self, problem: RelationalProblem) -> None:
        with self.phase("convert"):
            table, counts = pairs(problem.matrix)
        self.stored, self._pairs = table[0].size, self.upload(table)
        # The package reads the counts on the host: from there it does not wait for the device.
        self._counts = load_torch().from_numpy(counts)

    def convolve(self, x: Tensor, w: Tensor, out: Tensor) -> None:
        how = {"subm": self._submanifold}
        out.copy_(self._functions.indice_conv(x, w, self._pairs, self._counts, self._rows, **how))
