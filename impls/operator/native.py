"""Calls that cost what a launch costs: a plan's launches, noted once, are enqueued by a small extension in C++.

The extension (``native.cpp``) is compiled by g++ against PyTorch's headers at the first product on a GPU, in the
background, and kept by the content of everything that decides about it. Until it is there, where it cannot be built,
and for every plan or call that does not fit it, products take the path in Python.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import Tensor  # pyright: ignore[reportMissingImports]

from spmark.impls.core.errors import CompileError, DeviceError
from spmark.impls.core.files import cache_root, read_sealed, write_sealed
from spmark.impls.operator.compiled import CompiledOperator
from spmark.impls.runtime.noting import Noted, noted
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.toolchain import find_gcc, run_gcc

_SOURCE = Path(__file__).with_name("native.cpp")
_NAME = "spmark_native"
_LOG = logging.getLogger("spmark")
_TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 5e-2}
"""Largest difference of two runs that add up in any order, over the largest magnitude."""

Launches = list[tuple[int, tuple[int, int, int], int, int, bool, list[int], list[tuple[int, int, int]]]]
"""Function, grid, threads, shared bytes, overlap, words, and patches: word, source (0 is B, 1 the result), offset."""


@cache
def build() -> Any:
    """Give the extension, compiled or out of the cache; takes half a minute where it has to be compiled.

    Raises
    ------
    CompileError
        The source does not compile; carries the log.
    DeviceError
        g++ is not installed.
    ImportError, OSError
        What was compiled cannot be loaded.
    """
    gcc, text, root = find_gcc(), _SOURCE.read_text(), Path(torch.__file__).parent
    options = [
        *("-x", "c++", "-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w"),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *(f"-isystem{root / folder}" for folder in ("include", "include/torch/csrc/api/include")),
        f"-isystem{sysconfig.get_path('include')}",
    ]
    libraries = [f"-L{root / 'lib'}", f"-Wl,-rpath,{root / 'lib'}", "-lc10", "-ltorch_cpu", "-ltorch_python", "-ldl"]
    words = (text, torch.__version__, str(torch.version.git_version), sys.version, gcc.version, *options, *libraries)
    place = cache_root() / "native" / hashlib.sha256("\0".join(words).encode()).hexdigest()
    library = read_sealed(place)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / f"{_NAME}.so"
        if library is None:
            run_gcc([gcc.path, *options, "-", "-o", str(made), *libraries], text, _SOURCE.name, "native calls")
            write_sealed(place, made.read_bytes())
        else:
            made.write_bytes(library)
        spec = importlib.util.spec_from_file_location(_NAME, made)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


class _Building:
    """Builds the extension in the background, once in a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._module: Any = None

    def extension(self) -> Any:
        """Give the extension where it is there already; the first call begins to build it."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._build, name="spmark-native", daemon=True)
                self._thread.start()
        return self._module

    def _build(self) -> None:
        try:
            self._module = build()
        except (CompileError, DeviceError, ImportError, OSError) as error:
            _LOG.info("products take their path in Python: %s", error)


extension = _Building().extension


class NativeCalls:
    """The plans of one matrix whose launches the extension makes.

    Parameters
    ----------
    handle : int
        By which the operators of `torch.library` find the matrix.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._lock = threading.Lock()
        self._matrix: Any = None
        self._seen: set[tuple[bool, torch.dtype, int, int]] = set()
        self._module: Any = None

    def spmm(self, owner: Any, b: Any) -> Any:
        """Compute A B where a plan and the call fit, else give NotImplemented; ``owner`` lives as long as gradients."""
        return NotImplemented if self._module is None else self._module.spmm(self._matrix, owner, b)

    def learn(self, operator: CompiledOperator, b: Tensor, rows: int, transposed: bool) -> None:
        """Take up a plan after its first product with an operand like ``b`` on a GPU, where its launches can be noted.

        Parameters
        ----------
        operator : CompiledOperator
        b : (inner, J)
        rows : int
            Of the product.
        transposed : bool
            Whether the operator computes A^T B.
        """
        key = (transposed, b.dtype, b.shape[1], b.get_device())
        if key in self._seen or torch.cuda.is_current_stream_capturing():
            return
        module = extension()
        if module is None:
            return
        with self._lock:
            if key in self._seen:
                return
            self._seen.add(key)
            try:
                taken = native_plan(module, operator, b, rows)
            except (MemoryError, RuntimeError) as error:  # memory for one product may be all that there is
                _LOG.info("products of J = %d take their path in Python: %s", b.shape[1], error)
                return
            if taken is None:
                return
            if self._matrix is None:
                self._matrix = module.matrix(self._handle)
            module.add(self._matrix, transposed, taken)
            self._module = module


def native_plan(module: Any, operator: CompiledOperator, like: Tensor, rows: int) -> Any | None:
    """Note the launches of an operator's plan, and give them as the extension's plan where that computes the same.

    The operator is called with one operand, and the launches are made with two others, at other addresses. None where a
    run writes to more than its result, or counts: such plans take turns in Python.
    """
    plan = operator.built(like.shape[1])
    if not isinstance(plan, DevicePlan) or plan.counts:
        return None
    from spmark.impls.operator.gpu import on_stream_of

    def empty(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=like.dtype, device=like.device)

    drawn = torch.Generator(like.device).manual_seed(1)
    first, *others = (empty(*like.shape).normal_(generator=drawn) for _ in range(3))
    out = empty(rows, like.shape[1])
    with noted() as launches:
        operator(first, out=out)
    spans = [(one.data_ptr(), one.nbytes) for one in (first, out)]
    found = launch_list(launches, spans)
    if found is None:
        return None
    arrays = [arg for one in launches for arg in one.args if _address(arg) is not None]
    held = [array for array in arrays if _source(array.data.ptr, spans) is None]
    made = module.plan(found, (rows, *like.shape), like, plan.deterministic, plan)
    with on_stream_of([like]):
        before = [array.copy() for array in held]
        for b in others:
            expected = operator(b)
            if not all(bool((one.ravel() == other.ravel()).all()) for one, other in zip(before, held, strict=True)):
                return None
            torch.full_like(out, torch.nan)  # its memory is what the next tensor of this size gets
            if not _same(module.run(made, b), expected, plan.deterministic):
                return None
    return made


def launch_list(launches: Sequence[Noted], spans: Sequence[tuple[int, int]]) -> Launches | None:
    """Give launches with the places at which addresses of B and of the result stand; None where there are none.

    Parameters
    ----------
    launches : sequence of Noted
    spans : sequence of (int, int)
        Address and bytes of B and of the result, with which the launches were noted.
    """
    from spmark.impls.runtime.overlap import word_of

    found: Launches = []
    for one in launches:
        words, patches = [], []
        for place, arg in enumerate(one.args):
            address = _address(arg)
            words.append((word_of(arg) if address is None else address) % 2**64)
            source = None if address is None else _source(address, spans)
            if address is not None and source is not None:
                patches.append((place, source, address - spans[source][0]))
        grid = (int(one.grid[0]), int(one.grid[1]), int(one.grid[2]))
        found.append((one.function, grid, one.threads, int(one.shared_bytes), bool(one.overlap), words, patches))
    met = {source for one in found for _, source, _ in one[-1]}
    return found if met == {0, 1} else None


def _address(arg: Any) -> int | None:
    """Give the address of an array of the device; scalars have none."""
    address: int | None = getattr(getattr(arg, "data", None), "ptr", None)
    return address


def _source(address: int, spans: Sequence[tuple[int, int]]) -> int | None:
    """Give the span that an address lies in."""
    return next((at for at, (start, size) in enumerate(spans) if start <= address < start + size), None)


def _same(found: Tensor, expected: Tensor, deterministic: bool) -> bool:
    """Compare two results: bit by bit, or within what the order of sums explains."""
    if deterministic:
        return bool(torch.equal(found.view(torch.uint8), expected.view(torch.uint8)))
    most = _TOLERANCE[found.dtype] * expected.abs().max().clamp(min=1)
    return bool(((found - expected).abs() <= most).all())
