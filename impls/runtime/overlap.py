"""Launches that may begin before the kernel enqueued before them has ended (programmatic dependent launch).

CuPy launches without attributes, so the driver is called directly: cuLaunchKernelEx, CUDA 12 and newer.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import KernelFault
from spmark.impls.runtime.withcupy import cupy

MIN_CAPABILITY = 90
"""Compute capability from which grids overlap."""
_PROGRAMMATIC_STREAM_SERIALIZATION = 6


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: the id, then a union of 64 bytes of which the first word is used."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_int), ("rest", ctypes.c_char * 60))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("num_attributes", ctypes.c_uint),
    )


@cache
def _launch() -> Any:
    function = ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx
    function.argtypes = (ctypes.POINTER(_Config), ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    return function


def argument_words(args: Sequence[Any], array: type[Any]) -> NDArray[np.int64]:
    """Put a kernel's arguments into words of eight bytes; an argument fills the first bytes of its word.

    All words share one array: a run of a few microseconds must not wait until the host has made an object for each.

    Parameters
    ----------
    args : sequence
        Arrays on the device and NumPy scalars of up to eight bytes.
    array : type
        Class of the arrays.

    Returns
    -------
    (len(args),) int64
    """
    return np.array([a.data.ptr if isinstance(a, array) else word_of(a) for a in args], np.int64)


def word_of(scalar: np.generic) -> int:
    """Give a scalar's bytes as a number; a negative number may fill the bytes above the scalar's own."""
    if scalar.dtype.kind in "iub":
        return int(scalar)
    return int.from_bytes(scalar.tobytes(), "little")


def launch_overlapping(
    function: int, grid: tuple[int, int, int], threads: int, args: Sequence[Any], shared_bytes: int
) -> None:
    """Enqueue on the current stream; the kernel says itself where it waits (``spmark/overlap.cuh``).

    Parameters
    ----------
    function : int
        The driver's handle.
    grid, threads, shared_bytes
        As of a plain launch.
    args : sequence
        CuPy arrays and NumPy scalars.

    Raises
    ------
    KernelFault
        The driver refuses.
    """
    words = argument_words(args, cupy.ndarray)  # the driver copies the words before it returns
    pointers = words.ctypes.data + 8 * np.arange(words.size, dtype=np.int64)
    attribute = _Attribute(_PROGRAMMATIC_STREAM_SERIALIZATION, b"", 1, b"")
    config = _Config(
        grid, (threads, 1, 1), shared_bytes, cupy.cuda.get_current_stream().ptr, ctypes.pointer(attribute), 1
    )
    status = _launch()(ctypes.byref(config), function, pointers.ctypes.data, None)
    if status:
        raise KernelFault(f"cuLaunchKernelEx: expected success, found CUDA error {status}")
