"""The host as a target: NumPy arrays, and every launch a child process under AddressSanitizer and UBSan.

The child's faults become `KernelFault`.

``driver.cpp`` reads the bytes of a request: name, grid, block, dynamic shared bytes, then every argument. The
environment variable ``SPMARK_HOST_ORDER`` is the number of the order in which blocks, warps and lanes run (see
``order.hpp``).
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import KernelFault, OperandError
from spmark.impls.runtime.host.compile import compile_host
from spmark.impls.runtime.target import Grid, Kernel, Target
from spmark.impls.runtime.template import Instance

Argument = NDArray[Any] | np.generic
"""An argument of a kernel: an array for a pointer, a NumPy scalar of exactly the parameter's type for a value."""


_SANITIZERS = {
    "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0:exitcode=5:allocator_may_return_null=1:redzone=256",
    "UBSAN_OPTIONS": "print_stacktrace=0:exitcode=5",
}
"""An access some rows past the end of a buffer must not reach another buffer: hence the wide red zones."""
_REPORT_LINES = 24
_TIMEOUT_S, _GRACE_S = 60.0, 2.0
"""Seconds after which a kernel is asked how far it has come, and after which it is then ended."""


def launch_host(  # noqa: PLR0917 (the launch interface of CUDA, in its order)
    executable: Path,
    instance: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared_bytes: int,
    args: Sequence[Argument],
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

    Raises
    ------
    OperandError
        An array is not contiguous.
    KernelFault
        The kernel or the launch did something illegal, or did not finish. The error carries the kernel, the shapes of
        its arguments, the thread block and thread where they are known, and the head of the report.
    """
    request = b"".join(_request(instance, grid, block, shared_bytes, args))
    with subprocess.Popen(
        [executable],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **_SANITIZERS},
    ) as child:
        try:
            result, report = child.communicate(request, timeout=_TIMEOUT_S)
            how = f"exit code {child.returncode}"
            if child.returncode < 0:
                how = f"killed by {signal.Signals(-child.returncode).name}"
        except subprocess.TimeoutExpired:
            result, report = _stop(child)
            how = f"did not finish within {_TIMEOUT_S:g} s"
        except BaseException:  # an interrupt must not wait for the kernel's end
            child.kill()
            raise
    if how != "exit code 0":
        shapes = ", ".join(f"{argument.dtype}{list(argument.shape)}" for argument in args)
        launch = f"{instance} on the host: {how}; grid {grid}, block {block}, arguments ({shapes})"
        raise KernelFault(_message(launch, report.decode(errors="replace")))
    at = 0
    for argument in args:
        written, at = result[at], at + 1
        if written:
            assert isinstance(argument, np.ndarray)  # the driver writes back arrays of pointer parameters alone
            flat = np.frombuffer(result, argument.dtype, argument.size, at)
            np.copyto(argument, flat.reshape(argument.shape))
            at += argument.nbytes


def _request(
    instance: str, grid: tuple[int, int, int], block: tuple[int, int, int], shared_bytes: int, args: Sequence[object]
) -> Iterator[bytes]:
    """Lay out a launch as ``driver.cpp`` reads it."""
    yield _sized(instance.encode())
    yield struct.pack("=6IQQ", *grid, *block, shared_bytes, len(args))
    for position, argument in enumerate(args):
        where = f"argument {position} of {instance}"
        if not isinstance(argument, np.ndarray | np.generic):
            raise OperandError(f"{where}: expected an array or a NumPy scalar, found {type(argument).__name__}")
        if not argument.flags.c_contiguous:
            raise OperandError(
                f"{where}: expected a contiguous row-major array, found strides {argument.strides} for shape "
                f"{argument.shape}: pass np.ascontiguousarray of it"
            )
        mapped = isinstance(argument, np.memmap) and not argument.flags.writeable
        form = 2 if mapped else int(isinstance(argument, np.ndarray))
        yield struct.pack("=BcQQ", form, argument.dtype.kind.encode(), argument.dtype.itemsize, argument.nbytes)
        if isinstance(argument, np.memmap) and mapped:
            yield _sized(os.fsencode(argument.filename or "")) + struct.pack("=Q", argument.offset)
        else:
            yield argument.tobytes()


def _sized(text: bytes) -> bytes:
    return struct.pack("=Q", len(text)) + text


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
    ours = [line for line in report.splitlines() if line.startswith("spmark:")]
    head = report.partition("\nShadow bytes")[0].splitlines()  # tables follow
    theirs = [line for line in head if line.strip("=") and line not in ours]
    return "\n".join((launch, *ours, *theirs[:_REPORT_LINES]))


@dataclass
class HostKernel:
    """A kernel in an executable."""

    instance: Instance
    executable: Path

    def allow_shared(self, shared_bytes: int) -> None:
        """Do nothing: the host has no limit to lift."""

    def launch(self, grid: Grid, args: Sequence[Any], shared_bytes: int = 0, overlap: bool = False) -> None:
        """Run to the end, and so before any other grid; a fault raises `KernelFault` with the sanitizer's report."""
        if all(grid):
            block = (self.instance.threads, 1, 1)
            launch_host(self.executable, self.instance.expression, grid, block, shared_bytes, args)


class HostTarget(Target):
    """Runs kernels for their results and their memory safety, each launch to its end; its times mean nothing."""

    def load(self, instances: Sequence[Instance]) -> list[Kernel]:
        """Compile one executable for each source file, holding every instance of it that is asked for."""
        expressions: dict[Path, set[str]] = {}
        for instance in instances:
            expressions.setdefault(instance.template.source, set()).add(instance.expression)
        executables = {source: compile_host(source, sorted(wanted)) for source, wanted in expressions.items()}
        return [HostKernel(instance, executables[instance.template.source]) for instance in instances]

    def synchronize(self) -> None:
        """Nothing is pending: launches run to the end."""
