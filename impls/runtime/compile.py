"""CUDA C++ to machine code without a GPU: NVRTC, many kernels side by side, and a disk cache.

The cache is keyed by the source, every header it includes (CuPy's own cache ignores those), the options, the compiler's
version, the architecture and the instance; entries are written whole or not at all, so processes may share it.

NVRTC releases Python's lock, so that threads compile side by side. NVRTC of CUDA 12 holds a lock of its own: there one
kernel is compiled after the other.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import cast

from spmark.impls.core.errors import BuildError, CompileError, DeviceError, how_to_install
from spmark.impls.core.files import cache_folder, read_sealed, whole, write_sealed
from spmark.impls.core.machine import allowed_cores, side_by_side
from spmark.impls.core.untrusted import parse_json
from spmark.impls.runtime.toolchain import INCLUDE, content, cuda_include

OPTIONS = ("-std=c++17", "-lineinfo")
"""Given to every compiler: IEEE arithmetic (no fast math, denormals kept), lines for profilers."""
_COUNTS = (r"Used (\d+) registers", r"(\d+) bytes spill stores", r"(\d+) bytes smem")
"""Where the log tells registers, spilled bytes and shared bytes."""
Ordered = tuple[Path, str, str]
"""Source, expression and architecture of a kernel, as `compile_kernel` takes them."""
_COMING: dict[Ordered, Future[Binary]] = {}
"""Kernels that were begun, and that nobody has asked for yet."""
_LOADING = Lock()


@dataclass(frozen=True)
class Binary:
    """One compiled kernel."""

    cubin: bytes
    symbol: str
    """Mangled name to load."""
    registers: int
    """Registers of a thread."""
    spill_bytes: int
    """Bytes stored to local memory because registers ran out."""
    shared_bytes: int
    """Static shared memory of a block."""


def compile_kernel(source: Path, expression: str, arch: str) -> Binary:
    """Compile one kernel for one architecture, or read it from the cache.

    Parameters
    ----------
    source : Path
        The ``.cu`` file.
    expression : str
        The kernel with its template arguments (`Instance.expression`).
    arch : str
        ``sm_80``, ``sm_90``, ``sm_100``...

    Raises
    ------
    CompileError
        The kernel does not compile; the error carries the file, the template arguments and the log.
    DeviceError
        The compiler is not installed.
    """
    begun = _COMING.pop((source, expression, arch), None)
    if begun is not None and not begun.cancel():
        return begun.result()
    return _compiled(source, expression, arch)


def begin(kernels: Iterable[Ordered]) -> None:
    """Compile kernels on other threads, in this order; `compile_kernel` takes them up, and begins those still waiting.

    Errors are those of `compile_kernel`, and are raised there.

    Parameters
    ----------
    kernels : iterable of (source, expression, architecture)
        As of `compile_kernel`; most of them will be asked for soon.
    """
    with suppress(DeviceError):
        _nvrtc()  # before CuPy compiles kernels of its own on this thread
    for kernel in kernels:
        if kernel not in _COMING:
            _COMING[kernel] = _threads().submit(_compiled, *kernel)


def drop(kernels: Iterable[Ordered] | None = None) -> None:
    """Forget kernels that were begun and not asked for, all or these; those that wait for a thread are not compiled."""
    for kernel in list(_COMING) if kernels is None else kernels:
        if begun := _COMING.pop(kernel, None):
            begun.cancel()


@cache
def _threads() -> ThreadPoolExecutor:
    """Give the threads of `begin`: fewer than cores, since compilers side by side hold each other up."""
    return ThreadPoolExecutor(max(1, len(allowed_cores()) // 3), "compiler")


def _compiled(source: Path, expression: str, arch: str) -> Binary:
    return cached(_kernel_key(source, expression, arch), lambda: _compile_nvrtc(source, expression, arch))


def cached(key: str, make: Callable[[], Binary]) -> Binary:
    """Read the binary called ``key`` from the cache, or make it and keep it.

    Parameters
    ----------
    key : str
        Hexadecimal digest of everything that the binary depends on: source, options, architecture, tool's version.
    make : callable
        Makes the binary; called where the entry is absent or damaged. Its errors pass through, and the cache stays as
        it was.
    """
    binary = kept_binary(key)
    if binary is None:
        binary = make()
        facts = asdict(binary)
        cubin = facts.pop("cubin")
        write_sealed(_place(key), json.dumps(facts).encode() + b"\n" + cubin)
    return binary


def kept_binary(key: str) -> Binary | None:
    """Read the binary called ``key`` from the cache; None where the entry is absent or damaged."""
    head, _, cubin = (read_sealed(_place(key)) or b"").partition(b"\n")  # a line of JSON, then the cubin
    try:
        binary = Binary(cubin, **parse_json(head))
    except (ValueError, TypeError):
        return None
    counts = (binary.registers, binary.spill_bytes, binary.shared_bytes)
    return binary if isinstance(binary.symbol, str) and all(isinstance(count, int) for count in counts) else None


def compile_many(kernels: Iterable[Ordered], workers: int | None = None) -> list[Binary | CompileError]:
    """Compile kernels side by side; binaries in the cache are read from there.

    Parameters
    ----------
    kernels : iterable of (source, expression, architecture)
        As of `compile_kernel`.
    workers : int, optional
        Threads at most; by default one for each core that this process may use.

    Returns
    -------
    list
        In the order given: the binary, or the error of a kernel that does not compile.

    Raises
    ------
    DeviceError
        The compiler is not installed.
    """

    def made(kernel: Ordered) -> Binary | CompileError:
        try:
            return compile_kernel(*kernel)
        except CompileError as error:
            return error

    return side_by_side(made, list(kernels), workers or len(allowed_cores()))


def kept_source(text: str, name: str) -> Path:
    """Keep a generated source beside the compiled kernels; a file with other contents is written again.

    Parameters
    ----------
    text : str
        The source.
    name : str
        Begins the file's name; a digest of the text follows.

    Raises
    ------
    BuildError
        The file cannot be written.
    """
    path = cache_folder() / "sources" / f"{name}_{hashlib.sha256(text.encode()).hexdigest()[:24]}.cu"
    try:
        if not path.is_file() or path.read_bytes() != text.encode():
            with whole(path) as part:
                part.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BuildError(f"{path}: the generated source cannot be written: {error.strerror}") from error
    return path


def nvrtc_version() -> str:
    """Give the name and the version of the compiler; the first call of a process loads the compiler."""
    return "nvrtc {}.{}".format(*_nvrtc().getVersion())


def _nvrtc() -> ModuleType:
    """Load the compiler, on one thread at a time.

    cuda-pathfinder loads the library first and its built-in functions after it. A thread that came in between would
    find the library, and fail for want of the functions.
    """
    try:
        import cupy  # noqa: F401 - whose settings say where the compiler is
        from cupy_backends.cuda.libs import nvrtc
    except ImportError as error:
        raise DeviceError(f"expected CuPy with NVRTC, found none ({error}): {how_to_install('gpu', 'dev')}") from error
    with _LOADING:
        nvrtc.getVersion()
    return cast("ModuleType", nvrtc)


def _compile_nvrtc(source: Path, expression: str, arch: str) -> Binary:
    nvrtc = _nvrtc()
    folders = (folder for folder in (source.parent, INCLUDE, cuda_include()) if folder is not None)
    target = f"--gpu-architecture={_with_features(arch)}"
    options = (*OPTIONS, target, "--ptxas-options=-v", *(f"-I{folder}" for folder in folders))
    program = nvrtc.createProgram(source.read_text(), str(source), (), ())
    try:
        nvrtc.addNameExpression(program, expression)
        nvrtc.compileProgram(program, options)
        log = nvrtc.getProgramLog(program)
        counts = (int(found[1]) if (found := re.search(count, log)) else 0 for count in _COUNTS)
        return Binary(nvrtc.getCUBIN(program), nvrtc.getLoweredName(program, expression), *counts)
    except nvrtc.NVRTCError as error:
        raise CompileError(str(source), expression, nvrtc.getProgramLog(program) or str(error)) from error
    finally:
        nvrtc.destroyProgram(program)


def _with_features(arch: str) -> str:
    """Name an architecture with what no later one has: wgmma is of sm_90a."""
    return "sm_90a" if arch == "sm_90" else arch


def _place(key: str) -> Path:
    if not re.fullmatch(r"[0-9a-f]+", key):
        raise BuildError(f"expected the key of a compiled kernel in hexadecimal digits, found {key[:80]!r}")
    return cache_folder() / key[:2] / key


def _kernel_key(source: Path, expression: str, arch: str) -> str:
    digest = hashlib.sha256("\0".join((*OPTIONS, nvrtc_version(), _with_features(arch), expression)).encode())
    digest.update(content(source))
    return digest.hexdigest()
