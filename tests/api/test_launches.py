"""The extension that makes a plan's launches: built, kept, absent, damaged; on the host, by a false driver."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from spmark.impls.auto.race import Choice, Chosen
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import CompileError, DeviceError
from spmark.impls.core.problem import DType, Op
from spmark.impls.operator import compiled, extension
from spmark.impls.operator.choose import Asked
from spmark.impls.operator.matrices import OwnedMatrix
from spmark.impls.runtime.device import find
from spmark.impls.runtime.noting import Noted, note, noted

pytest.importorskip("cupy", reason="CuPy is not installed")


def test_calls_on_the_host(tmp_path: Path, run_on_host: Any) -> None:
    cache = tmp_path / "cache"
    run_on_host("launcher_on_host.py", tmp_path, cache)
    (kept,) = [path for path in (cache / "native").iterdir() if path.is_file()]
    made = kept.stat().st_mtime_ns, kept.read_bytes()
    run_on_host("launcher_on_host.py", tmp_path, cache)
    assert (kept.stat().st_mtime_ns, kept.read_bytes()) == made
    kept.write_bytes(made[1][:-1] + b"?")  # damaged: compiled again
    run_on_host("launcher_on_host.py", tmp_path, cache)
    assert kept.read_bytes()[-1:] == made[1][-1:]


def test_another_source_or_option_is_compiled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path / "cache"))
    source, header = tmp_path / "tiny.cpp", tmp_path / "number.h"
    source.write_text(
        '#include <Python.h>\n#include "number.h"\nstatic PyModuleDef m = {PyModuleDef_HEAD_INIT, "spmark_tiny"};\n'
        'PyMODINIT_FUNC PyInit_spmark_tiny() { auto* made = PyModule_Create(&m); PyModule_AddIntConstant(made, "n", N);'
        " return made; }\n"
    )
    for number in (3, 4):
        header.write_text(f"#define N {number}\n")
        assert extension.built(source).n == number
    assert extension.built(source, "2.11").n == 4
    assert len(list((tmp_path / "cache" / "native").glob("*"))) >= 3
    header.write_text("#error no\n")
    with pytest.raises(CompileError, match=r"tiny\.cpp"):
        extension.built(source)


def test_without_a_compiler_python_makes_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(source: Path) -> None:
        raise DeviceError("expected g++, found none")

    monkeypatch.setattr(extension, "built", missing)
    monkeypatch.setattr(compiled, "LAUNCHER", extension.Background(lambda: extension.built(Path()), "without"))
    runs: list[Any] = []
    stream = SimpleNamespace(ptr=0)
    streams = SimpleNamespace(current=lambda arrays: stream, capturing=lambda one: False, mark=lambda one: None)
    monkeypatch.setattr(compiled, "_streams", lambda: streams)
    spec = find("host-simt").model_copy(update={"kind": DeviceKind.CUDA})
    matrix = OwnedMatrix.of(sparse.eye_array(4, dtype="float32", format="csr"))
    plan: Any = SimpleNamespace(run=lambda operands, out: runs.append((operands, out)))
    op = compiled.CompiledOperator(matrix, Asked(Op.SPMM, spec, ("direct",)), {3: Chosen(Choice("direct"), plan)})
    b, out = object(), object()
    ready: Any = compiled._Ready(3, SimpleNamespace(), (4, 3), True)
    assert op._run(ready, (b,), out) is out
    assert runs == [((b,), out)]


def test_launches_are_noted_for_the_thread_that_asks() -> None:
    function = SimpleNamespace(ptr=5)
    note(function, (1, 1, 1), 32, (), 0, False)
    with noted() as launches:
        note(function, (2, 1, 1), 64, (np.int32(1),), 8, True)
    note(function, (3, 1, 1), 32, (), 0, False)
    assert launches == [Noted(5, (2, 1, 1), 64, (np.int32(1),), 8, True)]


def test_places_of_operands_result_and_buffers_are_found() -> None:
    from spmark.impls.operator.launches import launch_list
    from spmark.impls.runtime.withcupy import cupy

    def array(address: int) -> Any:
        memory = cupy.cuda.UnownedMemory(address, 8, None, 0)
        return cupy.ndarray((2,), np.float32, cupy.cuda.MemoryPointer(memory, 0))

    args = (np.int32(-1), array(96), array(1000), array(1016), np.float32(1), array(2000))
    launches = [Noted(5, (np.int64(2), 1, 1), 64, args, 0, False)]
    (found,) = launch_list(launches, [(1000, 64), (2000, 32)])
    words = [2**64 - 1, 96, 1000, 1016, 0x3F800000, 2000]
    assert found == (*launches, words, [(2, 0, 0), (3, 0, 16), (5, 1, 0)])
    (other,) = launch_list(launches, [(2000, 32), (3000, 32)])
    assert other[-1] == [(5, 0, 0)]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_one_element_tells_results_apart(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from spmark.impls.operator import launches

    monkeypatch.setattr(launches, "_COMPARED", 7)
    values = np.random.default_rng(5).standard_normal((5, 6)).astype(np.float32)
    expected = DType.BFLOAT16.stored(values) if dtype == "bfloat16" else values.astype(dtype)
    near = expected.copy()
    near.view(f"u{near.itemsize}").reshape(-1)[16] ^= 1
    host: Any = SimpleNamespace(download=np.array)
    assert launches._same(host, near, expected, deterministic=False)
    assert not launches._same(host, near, expected, deterministic=True)
    for place in (0, 16, 29):
        for bits in (0x8000, 0x7FFF):  # the sign, and what is not a number
            other = expected.copy()
            other.view(np.uint16).reshape(-1)[(place + 1) * other.itemsize // 2 - 1] ^= bits
            assert not launches._same(host, other, expected, deterministic=False)
            assert not launches._same(host, expected, other, deterministic=False)
