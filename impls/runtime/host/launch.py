"""Run one launch of a host executable in a child process, and turn the child's faults into `KernelFault`.

``driver.cpp`` reads the bytes of a request: name, grid, block, dynamic shared bytes, then every argument; what follows
is for who watches the grid (``watcher.hpp``). The environment variable ``SPMARK_HOST_ORDER`` is the number of the order
in which blocks, warps and lanes run (see ``order.hpp``).
"""

from __future__ import annotations

import os
import re
import signal
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import KernelFault, OperandError

Argument = NDArray[Any] | np.generic
"""An argument of a kernel: an array for a pointer, a NumPy scalar of exactly the parameter's type for a value."""


_SANITIZER = ":".join(
    (
        "detect_leaks=0",
        "detect_stack_use_after_return=0",
        "redzone=256",  # an access some rows past the end must not reach another buffer
        "exitcode=5",
        "allocator_may_return_null=1",
    )
)
_REPORT_LINES = 24
_GRACE_S = 2.0


def launch_host(  # noqa: PLR0917 (the launch interface of CUDA, in its order)
    executable: Path,
    instance: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared_bytes: int,
    args: Sequence[Argument],
    timeout_s: float = 60,
) -> None:
    """Run a kernel to its end; arrays behind pointers to non-const are changed in place.

    Every array is copied to a buffer of its own of exactly the array's length. An array that is passed twice becomes
    two buffers. A read-only ``np.memmap`` is mapped instead, so that it may be larger than memory.

    Parameters
    ----------
    executable : Path
        From `compile_host`.
    instance : str
        One of the names it was compiled with.
    grid, block : tuple of int
        Thread blocks and threads, (x, y, z).
    shared_bytes : int
        Dynamic shared memory of a thread block.
    args : sequence of arrays and NumPy scalars
        In the order of the kernel's parameters; arrays row-major and contiguous.
    timeout_s : float
        Seconds after which the kernel is stopped.

    Raises
    ------
    OperandError
        An array is not contiguous.
    KernelFault
        The kernel or the launch did something illegal, or did not finish. The error carries the kernel, the shapes of
        its arguments, the thread block and thread where they are known, and the head of the report.
    """
    request = request_of(instance, grid, block, shared_bytes, args)
    take_back(answer_of(executable, request, instance, grid, block, args, timeout_s), args)


def answer_of(  # noqa: PLR0917 (as `launch_host`)
    executable: Path,
    request: bytes,
    instance: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    args: Sequence[Argument],
    timeout_s: float,
) -> bytes:
    """Send the bytes of a launch to a child process and give its answer.

    Raises
    ------
    KernelFault
        As of `launch_host`.
    """
    environment = {
        **os.environ,
        "ASAN_OPTIONS": _SANITIZER,
        "UBSAN_OPTIONS": "print_stacktrace=0:exitcode=5",
    }
    with subprocess.Popen(
        [str(executable)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as child:
        try:
            result, report = child.communicate(request, timeout=timeout_s)
            finished = True
        except subprocess.TimeoutExpired:
            finished = False
            result, report = _stop(child)
        except BaseException:  # an interrupt must not wait for the kernel's end
            child.kill()
            raise
    if not finished or child.returncode != 0:
        how = f"exit code {child.returncode}" if finished else f"did not finish within {timeout_s:g} s"
        if finished and child.returncode < 0:
            how = f"killed by {signal.Signals(-child.returncode).name}"
        shapes = ", ".join(f"{argument.dtype}{list(argument.shape)}" for argument in args)
        launch = f"{instance} on the host: {how}; grid {grid}, block {block}, arguments ({shapes})"
        raise KernelFault(_message(launch, report.decode(errors="replace")))
    return result


def request_of(
    instance: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared_bytes: int,
    args: Sequence[object],
) -> bytes:
    """Lay out a launch as ``driver.cpp`` reads it.

    Raises
    ------
    OperandError
        As of `launch_host`.
    """
    name = instance.encode()
    parts = [
        struct.pack("=Q", len(name)),
        name,
        struct.pack("=6IQQ", *grid, *block, shared_bytes, len(args)),
    ]
    for position, argument in enumerate(args):
        if not isinstance(argument, np.ndarray | np.generic):
            passed = type(argument).__name__
            raise OperandError(
                f"argument {position} of {instance}: expected an array or a NumPy scalar, found {passed}"
            )
        is_array = isinstance(argument, np.ndarray)
        if is_array and not argument.flags.c_contiguous:
            raise OperandError(
                f"argument {position} of {instance}: expected a contiguous row-major array, found strides "
                f"{argument.strides} for shape {argument.shape}: pass np.ascontiguousarray of it"
            )
        kind = argument.dtype.kind.encode()
        mapped = isinstance(argument, np.memmap) and not argument.flags.writeable
        form = 2 if mapped else int(is_array)
        parts.append(struct.pack("=BcQQ", form, kind, argument.dtype.itemsize, argument.nbytes))
        if isinstance(argument, np.memmap) and mapped:
            path = os.fsencode(argument.filename or "")
            parts += [struct.pack("=Q", len(path)), path, struct.pack("=Q", argument.offset)]
        else:
            parts.append(argument.tobytes())
    return b"".join(parts)


def take_back(answer: bytes, args: Sequence[Argument]) -> bytes:
    """Copy the kernel's writes into the caller's arrays, and give the bytes that follow in the answer."""
    at = 0
    for argument in args:
        written, at = answer[at], at + 1
        if written:
            assert isinstance(argument, np.ndarray)  # the driver writes back arrays of pointer parameters alone
            flat = np.frombuffer(answer, argument.dtype, argument.size, at)
            np.copyto(argument, flat.reshape(argument.shape))
            at += argument.nbytes
    return answer[at:]


def _stop(child: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Ask the child how far it has come, then end it."""
    child.terminate()
    try:
        return child.communicate(timeout=_GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.communicate()


def _message(launch: str, report: str) -> str:
    """Put together a message that locates the fault: the launch, the ring's own lines, the head of the report."""
    lines = [line for line in report.splitlines() if line and not re.fullmatch(r"=+", line)]
    ours = [line for line in lines if line.startswith("spmark:")]
    theirs = [line for line in lines if not line.startswith("spmark:")]
    tables = next((i for i, line in enumerate(theirs) if line.startswith("Shadow bytes")), None)  # left out
    return "\n".join((launch, *ours, *theirs[:tables][:_REPORT_LINES]))
