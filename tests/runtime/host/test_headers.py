"""The device side of the headers: NVRTC compiles them without a GPU, and the PTX has the instructions they promise."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest

from spmark.impls.runtime.toolchain import INCLUDE, cuda_include

nvrtc = pytest.importorskip("cupy_backends.cuda.libs.nvrtc", reason="CuPy is not installed")
if cuda_include() is None:
    pytest.skip("the CUDA headers are not installed", allow_module_level=True)

ARCHITECTURES = (80, 90, 100)
SOURCE = """
#include <spmark/atomic.cuh>
#include <spmark/half.cuh>
#include <spmark/vec.cuh>
using namespace spmark;

template <typename T, int n> __global__ void ordinary(const T* in, T* out) {
  store<n>(out + n * threadIdx.x, load<n>(in + n * threadIdx.x));
}
template <typename T, int n> __global__ void read_only(const T* in, T* out) {
  store<n>(out + n * threadIdx.x, load_read_only<n>(in + n * threadIdx.x));
}
template <typename T, int n> __global__ void where(const T* in, T* out) {
  store<n>(out + n * threadIdx.x, load_read_only_where<n>(threadIdx.x < 5, in + n * threadIdx.x));
}
template <typename T, int n> __global__ void streaming(const T* in, T* out) {
  store_streaming<n>(out + n * threadIdx.x, load_streaming<n>(in + n * threadIdx.x));
}
template <int n> __global__ void add(const float* in, float* out) { atomic_add<n>(out + threadIdx.x, load<n>(in)); }
"""
VECTORS = [
    ("float", 1, 4),
    ("float", 2, 8),
    ("float", 4, 16),
    ("half", 1, 2),
    ("half", 2, 4),
    ("half", 4, 8),
    ("half", 8, 16),
    ("bfloat16", 8, 16),
]


def compiled_program(text: str, names: Iterable[str], architecture: int) -> Any:
    """Compile with NVRTC, for the kernels of some name expressions."""
    program = nvrtc.createProgram(text, "kernels.cu", (), ())
    for name in names:
        nvrtc.addNameExpression(program, name)
    options = (f"--gpu-architecture=compute_{architecture}", "-std=c++17", f"-I{INCLUDE}", f"-I{cuda_include()}")
    try:
        nvrtc.compileProgram(program, options)
    except nvrtc.NVRTCError:
        pytest.fail(nvrtc.getProgramLog(program))
    return program


@cache
def ptx(architecture: int) -> dict[str, Counter[str]]:
    """Instructions of each kernel, by its name expression."""
    names = [f"{kind}<{t}, {n}>" for kind in ("ordinary", "read_only", "where", "streaming") for t, n, _ in VECTORS]
    names += [f"add<{n}>" for n in (1, 2, 4)]
    program = compiled_program(SOURCE, names, architecture)
    text = nvrtc.getPTX(program)
    text = text.decode() if isinstance(text, bytes) else text
    found = {}
    for name in names:
        lowered = nvrtc.getLoweredName(program, name)
        lowered = lowered.decode() if isinstance(lowered, bytes) else lowered
        body = re.search(rf"\.entry {re.escape(lowered)}\(.*?\n}}\n?", text, re.DOTALL)
        assert body is not None, f"{name} is not in the PTX"
        found[name] = Counter(re.findall(r"^\s*(?:@\S+ )?([a-z][\w.:]*)\b", body[0], re.MULTILINE))
    return found


def moves(kernel: Counter[str], prefix: str) -> list[tuple[str, int]]:
    """Loads or stores of a kernel: the instruction and the bytes that one moves."""
    result = []
    for instruction, count in kernel.items():
        match = re.fullmatch(rf"({re.escape(prefix)}(?:\.(?!v\d|[a-z]\d)[\w:]+)*)(?:\.v(\d))?\.[a-z](\d+)", instruction)
        if match:
            result += [(match[1], int(match[2] or 1) * int(match[3]) // 8)] * count
    return result


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("type_", "n", "size"), VECTORS)
def test_a_vector_moves_in_one_instruction(architecture, type_, n, size):
    kernels = ptx(architecture)
    ordinary = kernels[f"ordinary<{type_}, {n}>"]
    assert moves(ordinary, "ld.global") == [("ld.global", size)]
    assert moves(ordinary, "st.global") == [("st.global", size)]
    assert moves(kernels[f"read_only<{type_}, {n}>"], "ld.global") == [("ld.global.nc", size)]
    assert moves(kernels[f"where<{type_}, {n}>"], "ld.global") == [("ld.global.nc", size)]
    streaming = kernels[f"streaming<{type_}, {n}>"]
    assert moves(streaming, "ld.global") == [("ld.global.nc.L1::no_allocate", size)]
    assert moves(streaming, "st.global") == [("st.global.cs", size)]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("n", [1, 2, 4])
def test_vector_atomics_from_sm_90_and_scalars_below(architecture, n):
    kernel = ptx(architecture)[f"add<{n}>"]
    reductions = {name: count for name, count in kernel.items() if name.startswith(("red", "atom"))}
    if architecture < 90 or n == 1:
        assert reductions == {"red.global.add.f32": n}
    else:
        assert reductions == {f"red.global.add.v{n}.f32": 1}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_kernels_of_the_host_ring_compile_for_devices(good_source, architecture):
    text, instances = good_source
    program = compiled_program(text, instances, architecture)
    assert all(nvrtc.getLoweredName(program, name) for name in instances)
