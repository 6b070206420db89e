"""Launches that do not fit the kernel: they end with a message before the kernel runs."""

from __future__ import annotations

import numpy as np
import pytest

from spmark.impls.core.errors import KernelFault, OperandError

OUT = np.zeros(32, np.float32)
COUNT = np.int32(32)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([np.zeros(32, np.int32), COUNT], "argument 0: the kernel takes f4 array, found i4 array"),
        ([np.zeros(32, np.float64), COUNT], "argument 0: the kernel takes f4 array, found f8 array"),
        ([OUT, np.int64(32)], "argument 1: the kernel takes i4, found i8"),
        ([OUT, np.float32(32)], "argument 1: the kernel takes i4, found f4"),
        ([OUT, np.zeros(1, np.int32)], "argument 1: the kernel takes i4, found i4 array"),
        ([COUNT, COUNT], "argument 0: the kernel takes f4 array, found i4"),
        ([OUT], "takes_int takes 2 arguments, found 1"),
        ([OUT, COUNT, COUNT], "takes_int takes 2 arguments, found 3"),
    ],
)
def test_arguments_that_do_not_fit_the_signature(faults, args, words):
    with pytest.raises(KernelFault, match=words):
        faults("takes_int", args)


@pytest.mark.parametrize(
    ("block", "grid", "words"),
    [
        (1025, 1, r"1 to 1024 threads, at most 64 in z, got \(1025, 1, 1\)"),
        ((1, 1, 65), 1, r"at most 64 in z, got \(1, 1, 65\)"),
        (0, 1, "1 to 1024 threads"),
        (32, (1, 65536, 1), r"thread blocks, got \(1, 65536, 1\)"),
        (32, (0, 1, 1), r"thread blocks, got \(0, 1, 1\)"),
    ],
)
def test_more_threads_or_blocks_than_a_device_has(faults, block, grid, words):
    with pytest.raises(KernelFault, match=words):
        faults("takes_int", [OUT, COUNT], block=block, grid=grid)


def test_more_shared_memory_than_a_device_has(faults):
    with pytest.raises(KernelFault, match="at most 232448 bytes of shared memory, this one uses 232449"):
        faults("takes_int", [OUT, COUNT], shared_bytes=232449)


def test_an_unknown_instance_names_the_known_ones(faults):
    with pytest.raises(KernelFault, match="no kernel is called takes_float") as caught:
        faults("takes_float", [OUT, COUNT])
    assert "takes_int" in str(caught.value)


def test_operands_must_be_contiguous_numpy_values(faults):
    with pytest.raises(OperandError, match="argument 0 of takes_int: expected a contiguous row-major array"):
        faults("takes_int", [np.zeros((8, 8), np.float32)[:, ::2], COUNT])
    with pytest.raises(OperandError, match="argument 1 of takes_int: expected an array or a NumPy scalar, found int"):
        faults("takes_int", [OUT, 32])
