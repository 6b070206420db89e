"""Kernels on a GPU, with loading replaced: which are compiled and loaded, and how long they stay."""

from __future__ import annotations

import gc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spmark.impls.core.problem import DType
from spmark.impls.kernels.hyb_spmm import filling_instance
from spmark.impls.runtime.compile import Binary
from spmark.impls.runtime.device import find


def test_a_kernel_is_loaded_once_while_a_plan_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cupy", reason="CuPy is not installed")
    from spmark.impls.runtime import cuda

    compiled: list[str] = []

    def compile_many(kernels: Any) -> list[Binary]:
        found = list(kernels)
        assert all(isinstance(source, Path) and arch == "sm_90" for source, _, arch in found)
        compiled.extend(expression for _, expression, _ in found)
        return [Binary(b"", expression, 1, 0, 0) for _, expression, _ in found]

    monkeypatch.setattr(cuda, "compile_many", compile_many)
    monkeypatch.setattr(cuda, "load_function", lambda binary: binary.symbol)
    monkeypatch.setattr(cuda.cupy.cuda, "Device", lambda: SimpleNamespace(compute_capability="90", id=0))
    target = cuda.CudaTarget(find("host-simt"))
    wide, narrow = map(filling_instance, (DType.FLOAT32, DType.FLOAT16))
    first, second = target.load([wide, narrow])
    assert compiled == [wide.expression, narrow.expression]
    assert [one.instance for one in (first, second)] == [wide, narrow]
    again = target.load([narrow, wide, narrow])
    assert (again[0] is second, again[1] is first, again[2] is second, len(compiled)) == (True, True, True, 2)
    del first, again
    gc.collect()
    assert [one.instance for one in target.load([narrow, wide])] == [narrow, wide]
    assert compiled[2:] == [wide.expression], "no plan has it any more"
