"""Kernels that do something forbidden on purpose: each must be caught, and the message must say where."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest

from spmark.impls.core.errors import KernelFault
from spmark.impls.runtime.host import ring
from spmark.impls.runtime.host.ring import _options

FLOATS = np.linspace(1, 2, 32, dtype=np.float32)
MORE = np.linspace(1, 2, 128, dtype=np.float32)


def out(size: int = 32) -> np.ndarray:
    return np.full(size, -1, np.float32)


@pytest.mark.parametrize(
    ("kernel", "args", "block", "words"),
    [
        ("barrier_in_half_the_threads", [out()], 32, ["barrier not reached by all threads", "has exited"]),
        ("barrier_after_early_return", [out(), np.int32(31)], 32, ["barrier not reached", "(31, 0, 0) has exited"]),
        ("barrier_in_unequal_loops", [out(64)], 64, ["barrier not reached", "(0, 0, 0) has exited"]),
        (
            "missing_lane_in_shuffle",
            [out()],
            32,
            ["lane 7 of mask 0xffffffff does not arrive", "waits at __syncthreads"],
        ),
        ("lanes_in_different_collectives", [out()], 32, ["does not arrive", "__ballot_sync", "__shfl_xor_sync"]),
        (
            "missing_lane_in_shuffle",
            [out()],
            31,
            ["names lanes that the thread block does not have: its last warp has 31"],
        ),
        ("mask_without_the_caller", [out()], 32, ["does not name the calling lane 16", "thread (16, 0, 0)"]),
        ("traps", [out()], 32, ["__trap", "thread (5, 0, 0)"]),
    ],
)
def test_a_meeting_that_threads_miss(faults, kernel, args, block, words):
    with pytest.raises(KernelFault) as caught:
        faults(kernel, args, block=block)
    for word in [kernel, "thread block (0, 0, 0), thread (", *words]:
        assert word in str(caught.value)


def test_threads_that_wait_at_different_barriers(faults):
    with pytest.raises(KernelFault, match="barrier not reached by all threads") as caught:
        faults("two_different_barriers", [out(64)], block=64)
    places = re.findall(r"thread \((\d+), 0, 0\) waits at __syncthreads \(faults.cu:(\d+)\)", str(caught.value))
    assert [thread for thread, _ in places] == ["0", "32"]
    assert len({line for _, line in places}) == 2


@pytest.mark.parametrize(
    ("kernel", "args", "offset", "words"),
    [
        (
            "read_past_global",
            [FLOATS, out()],
            1,
            ["heap-buffer-overflow", "READ of size 4", "after the end of argument 0"],
        ),
        ("read_past_global", [FLOATS, out()], -1, ["heap-buffer-overflow", "READ", "before the start of argument 0"]),
        ("read_past_global", [FLOATS, out()], 60, ["heap-buffer-overflow", "after the end of argument 0 (128 bytes)"]),
        ("write_past_global", [out()], 1, ["heap-buffer-overflow", "WRITE of size 4", "after the end of argument 0"]),
        ("atomic_past_global", [out()], 1, ["heap-buffer-overflow", "after the end of argument 0"]),
        (
            "write_past_static_shared",
            [out()],
            1,
            ["heap-buffer-overflow", "WRITE", "after the end of shared variable staged"],
        ),
        ("write_past_static_shared", [out()], -1, ["before the start of shared variable staged (128 bytes)"]),
        ("index_past_static_shared<float, 32>", [out()], 1, ["index 32 out of bounds for type 'float [32]'"]),
        (
            "write_past_dynamic_shared",
            [out()],
            1,
            ["heap-buffer-overflow", "WRITE", "after the end of dynamic shared memory"],
        ),
        ("write_past_dynamic_shared", [out()], -1, ["WRITE", "before the start of dynamic shared memory (128 bytes)"]),
    ],
)
def test_out_of_bounds(faults, kernel, args, offset, words):
    with pytest.raises(KernelFault) as caught:
        faults(kernel, [*args, np.int32(offset)], shared_bytes=128)
    thread = "thread (0, 0, 0)" if offset in (-1, 60) else "thread (31, 0, 0)"
    for word in [kernel, f"thread block (0, 0, 0), {thread}", *words]:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "kernel",
    [
        "read_past_global",
        "write_past_global",
        "atomic_past_global",
        "write_past_static_shared",
        "write_past_dynamic_shared",
    ],
)
def test_the_same_kernels_run_within_bounds(faults, kernel):
    inputs = [FLOATS] if kernel == "read_past_global" else []
    result = out()
    faults(kernel, [*inputs, result, np.int32(0)], shared_bytes=128)
    expected = FLOATS if inputs else {"atomic_past_global": np.zeros(32)}.get(kernel, np.ones(32))
    np.testing.assert_array_equal(result, expected)


def test_misaligned_global_load(faults):
    with pytest.raises(KernelFault, match=r"misaligned address .*requires 16 byte alignment"):
        faults("misaligned_load", [np.tile(FLOATS, 2), MORE.copy()])


def test_misaligned_shared_load_without_alignas(faults):
    with pytest.raises(KernelFault, match=r"misaligned address .*requires 16 byte alignment"):
        faults("misaligned_shared_load", [out()], block=128)


def test_misaligned_async_copy(faults):
    with pytest.raises(KernelFault, match="copy_async: misaligned address") as caught:
        faults("misaligned_async", [MORE, out()], block=16)
    assert "thread (0, 0, 0)" in str(caught.value)


@pytest.mark.parametrize("kernel", ["reads_uninitialised_static", "reads_uninitialised_dynamic"])
def test_uninitialised_shared_memory_is_nan_in_every_block(faults, kernel):
    # 20 threads of each block write: what block 0 left must not help block 1.
    result = out(96)
    faults(kernel, [result, np.int32(20)], grid=3, shared_bytes=128)
    blocks = result.reshape(3, 32)
    assert (blocks[:, :20] == 1).all()
    assert np.isnan(blocks[:, 20:]).all()


def test_an_uninitialised_local_shows_in_the_result(faults):
    if "-ftrivial-auto-var-init=pattern" not in _options():
        pytest.skip("this g++ cannot fill locals with a pattern")
    result = out()
    faults("reads_uninitialised_local", [FLOATS, result])
    assert (np.abs(result) > 1e30).all()


def test_a_stack_that_overflows(faults):
    with pytest.raises(KernelFault, match="in kernel overflows_its_stack, thread block") as caught:
        faults("overflows_its_stack", [np.array([10**6], np.int32), out()])
    assert "stack-overflow" in str(caught.value) or "SEGV" in str(caught.value)


def test_async_copies_land_only_at_the_wait(faults):
    result = out(128)
    faults("unfinished_copy<true, true>", [MORE, result])
    np.testing.assert_array_equal(result, MORE)


@pytest.mark.parametrize("kernel", ["unfinished_copy<true, false>", "unfinished_copy<false, true>"])
def test_async_copy_without_wait_or_commit_gives_nan(faults, kernel):
    result = out(128)
    faults(kernel, [MORE, result])
    assert np.isnan(result).all()


def test_a_shuffle_from_a_lane_outside_the_mask_gives_nan(faults):
    result = out()
    faults("reads_a_lane_outside_the_mask", [result])
    assert np.isnan(result[:16]).all()
    assert (result[16:] == 1).all()


def test_a_kernel_that_does_not_end_is_stopped(faults, monkeypatch):
    monkeypatch.setattr(ring, "_TIMEOUT_S", 0.5)
    began = time.monotonic()
    with pytest.raises(KernelFault, match=r"did not finish within 0\.5 s") as caught:
        faults("never_ends", [np.zeros(1, np.int32), out()])
    assert time.monotonic() - began < 5
    assert "in kernel never_ends, thread block (0, 0, 0), thread (0, 0, 0)" in str(caught.value)


def test_a_const_argument_that_changes(faults):
    values = FLOATS.copy()
    with pytest.raises(KernelFault, match="argument 0 is const, and the kernel changed it"):
        faults("writes_to_its_input", [values])
    np.testing.assert_array_equal(values, FLOATS)


def test_the_message_has_the_launch_and_the_shapes(faults):
    with pytest.raises(KernelFault) as caught:
        faults("read_past_global", [FLOATS.reshape(4, 8), out(), np.int32(64)])
    message = str(caught.value)
    assert message.startswith("read_past_global on the host: exit code 5; grid (1, 1, 1), block (32, 1, 1)")
    assert "float32[4, 8], float32[32], int32[]" in message
