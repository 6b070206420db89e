"""Kernel tables: what may be asked for, and how it is named."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from spmark.impls.core.errors import BuildError
from spmark.impls.runtime.template import KernelTemplate

SOURCE = """
template <typename T, int vector>
__device__ void helper(const T* source) {
  static_assert(vector == 1, "of another function");
}

template <typename T, int vector, bool scaled, int threads>
__global__ void kernel(const T* source) {
  static_assert(sizeof(T) * vector <= 16, "a vector is loaded at once");
  static_assert(vector != 4 || (!scaled &&
                                kWarpSize % threads == 0),
                "which spans lines");
  static_assert(vector / 3 * 3 != vector - 2 || !scaled, "of integers, in two "
                                                       "strings");
  static_assert(kRows * vector == 8, "of something that only the compiler knows");
  helper<T, vector>(source);
}

template <typename T>
__global__ void next(const T* source) {
  static_assert(sizeof(T) == 4, "of the next kernel");
}
"""
SPACE = {"T": ("float", "half"), "vector": (1, 4, 8), "scaled": (False, True), "threads": (32, 64)}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> KernelTemplate:
    source = tmp_path_factory.mktemp("kernel") / "kernel.cu"
    source.write_text(SOURCE)
    return KernelTemplate(source, "kernel", SPACE)


def test_the_table_is_what_the_source_asserts(template: KernelTemplate) -> None:
    expected = [
        (data, vector, scaled, threads)
        for data, vector, scaled, threads in product(*SPACE.values())
        if (data == "half" or vector < 8) and (vector != 4 or (not scaled and threads == 32))
        if vector != 8 or not scaled
    ]
    assert [instance.arguments for instance in template.instances()] == expected
    assert "kernel<half, 8, false, 64>" in {instance.expression for instance in template.instances()}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"T": "half", "vector": 8, "scaled": False}, "expected template arguments T, vector, scaled, threads"),
        ({"T": "double", "vector": 1, "scaled": False, "threads": 64}, "expected T out of"),
        ({"T": "float", "vector": 8, "scaled": False, "threads": 64}, "that the kernel's static_asserts allow"),
    ],
)
def test_what_is_not_in_the_table_is_refused(values: dict, words: str, template: KernelTemplate) -> None:
    with pytest.raises(BuildError, match=words):
        template.instance(**values)


def test_a_template_says_its_block_size() -> None:
    with pytest.raises(ValueError, match="threads"):
        KernelTemplate(Path("kernel.cu"), "kernel", {"T": ("float",)})
