"""The host ring: CUDA kernels compiled for the host behind the SIMT shim, and launched, under sanitizers.

One executable per source holds the requested kernel instances. It is cached by the text that the compiler would see,
and serves every later request for some of its instances. Processes that want the same executable wait for the process
that compiles it.

What of CUDA's language a C++ macro cannot express is turned into C++ first: ``__shared__`` declarations and
``__noinline__``, in preprocessed text, so that declarations in every header are seen and macros in their dimensions are
resolved.

Arrays are NumPy's, and every launch is a child process under AddressSanitizer and UBSan, whose faults become
`KernelFault`. ``driver.cpp`` reads the bytes of a request: name, grid, block, dynamic shared bytes, then every
argument. The environment variable ``SPMARK_HOST_ORDER`` is the number of the order in which blocks, warps and lanes run
(see ``order.hpp``).
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import struct
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from spmark.impls.core.errors import CompileError, KernelFault, OperandError
from spmark.impls.core.files import cache_folder, whole
from spmark.impls.runtime.target import Grid, Kernel, Target
from spmark.impls.runtime.template import Instance
from spmark.impls.runtime.toolchain import INCLUDE, content, find_gcc, run_gcc

_HOST = Path(__file__).parent
_RING = ("driver", "memory", "scheduler")
_OPTIONS = (
    "-std=c++17",
    "-O1",
    "-g1",  # reports need functions and lines; descriptions of types take a third of the compiler's time
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-sanitize=vptr",  # kernels have no virtual functions
    "-fno-pie",  # with 32 bits of address randomisation, a PIE may be put where the sanitizer's heap must be
    "-no-pie",
    "-fno-omit-frame-pointer",  # reports walk the fibers' stacks by it
    "-fno-strict-aliasing",  # as device compilers: kernels look at floats as vectors of words
    "-Wno-unknown-pragmas",  # `#pragma unroll` is CUDA's
)
_NAMES = ".names"
"""Ending of the file that lists an executable's instances; it is written after the executable."""
MORE_OPTIONS: tuple[str, ...] = ()
"""Further options of kernels: tests link in what watches every access (``watcher.hpp``)."""
_FIRST_PATTERN_INIT = 12  # GCC that can fill uninitialised locals with a pattern


def compile_host(source: Path, instances: Sequence[str]) -> Path:
    """Compile a kernel source for the host.

    The cache's key is the preprocessed source (every included header with it), the options and the compiler's version,
    then the instances; processes may share the cache.

    Parameters
    ----------
    source : Path
        A ``.cu`` file.
    instances : sequence of str
        The kernels with their template arguments, such as ``spmm_csr<float, 4, 32>``: the names they are launched by.

    Returns
    -------
    Path
        An executable for `launch_host`.

    Raises
    ------
    CompileError
        The source or an instance does not compile; carries the compiler's log.
    DeviceError
        g++ is not installed.
    """
    named = ", ".join(instances)
    try:
        flat = _preprocessed(source, content(source))
    except CompileError as error:
        raise CompileError(str(source), named, error.log) from error
    options = (*_options(), *MORE_OPTIONS)
    shelf = f"{source.stem}-{_key(flat, *options, _ring_key())}"
    with _lock(shelf):
        executable = _holding(instances, shelf)
        if executable is None:
            ring = ring_objects()
            executable = cache_folder() / f"{shelf}-{_key(*instances)}"
            with whole(executable) as made:
                command = [*options, "-x", "c++-cpp-output", "-", "-x", "none", *map(str, ring), "-o", str(made)]
                run_gcc(command, flat + _table(instances), str(source), named)
                made.chmod(0o755)
            with whole(executable.with_name(executable.name + _NAMES)) as names:
                names.write_text("\n".join(instances))
    return executable


@lru_cache(maxsize=32)  # a plan loads kernels of a few sources, each many times; a text has about a megabyte
def _preprocessed(source: Path, _content: bytes) -> str:
    """Give the preprocessed text of a source with this content, with shared variables as the host ring has them."""
    unit = f'#include "{_HOST / "simt.hpp"}"\n#include "{source.resolve()}"\n'
    text = run_gcc([*_options(), "-E", "-x", "c++", f"-I{INCLUDE}", "-"], unit, str(source), "")
    try:
        return rewrite(text)
    except ValueError as error:
        raise CompileError(str(source), "", str(error)) from error


def _holding(instances: Sequence[str], shelf: str) -> Path | None:
    """Find an executable of the same source that holds these instances, and perhaps more."""
    for names in sorted(cache_folder().glob(f"{shelf}-*{_NAMES}")):
        executable = names.with_suffix("")
        if set(instances) <= set(names.read_text().splitlines()) and executable.is_file():
            return executable
    return None


def _key(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:24]


def _table(instances: Sequence[str]) -> str:
    """Give the definition of the table in which the driver looks launches up."""
    rows = "".join(f'    ::simt::Bind<&{name}>::instance("{name}"),\n' for name in instances)
    return (
        f'\n# 1 "instances"\nnamespace simt {{\nconst Instance kInstances[] = {{\n{rows}}};\n'
        f"const size_t kInstanceCount = {len(instances)};\n}}\n"
    )


@cache
def _options() -> tuple[str, ...]:
    """Give the path of g++ and the options that it takes."""
    gcc = find_gcc()
    pattern = ("-ftrivial-auto-var-init=pattern",) if gcc.major >= _FIRST_PATTERN_INIT else ()
    return gcc.path, *_OPTIONS, *pattern


@cache
def _ring_key() -> str:
    """Digest the shim's own sources, the options and the compiler's version."""
    files = sorted(path for path in _HOST.iterdir() if path.suffix in (".cpp", ".hpp"))
    return _key(find_gcc().version, *_options(), *(path.read_text() for path in files))


def ring_objects() -> list[Path]:
    """Compile the shim itself, once for all kernels of a cache."""
    objects = [cache_folder() / f"{name}-{_ring_key()}.o" for name in _RING]
    with _lock(f"ring-{_ring_key()}"):
        for name, compiled in zip(_RING, objects, strict=True):
            if not compiled.is_file():
                source = f"{_HOST / name}.cpp"
                with whole(compiled) as made:
                    command = [*_options(), "-c", "-x", "c++", "-", "-o", str(made)]
                    run_gcc(command, f'#include "{source}"\n', source, "the host ring")
    return objects


def _lock(name: str) -> FileLock:
    cache_folder().mkdir(parents=True, exist_ok=True)
    return FileLock(cache_folder() / f".{name}.lock")


_ALIGNMENT = (
    r"(?:\balignas\s*\((?P<{0}standard>[^()]*(?:\([^()]*\)[^()]*)*)\)"
    r"|__attribute__\s*\(\(aligned\((?P<{0}gnu>[^()]*)\)\)\))"
)
_ALIGNED = re.compile(_ALIGNMENT.format(""))
# CUDA takes an alignment at the very front, and behind __shared__.
_DECLARATION = re.compile(
    rf"(?:{_ALIGNMENT.format('front_')}\s*)?(?P<extern>\bextern\s+)?\b__shared__\b"
    r"(?P<declarator>[^;{}]*(?:\{[^;{}]*\}[^;{}]*)*);"
)
_VARIABLE = re.compile(r"^(?P<type>.*[\s>&*])(?P<name>[A-Za-z_]\w*)\s*(?P<dimensions>(?:\[.*\])?)$", re.DOTALL)
# Headers of GCC have the same word inside of __attribute__((...)), where it is right already.
_NOINLINE = re.compile(r"(?P<before>[(,]\s*)?\b__noinline__\b")
_BRACKETS = re.compile(r"<[^<>]*>|\([^()]*\)|\[[^\[\]]*\]|\{[^{}]*\}")
_MARKER = re.compile(r'^# (?P<line>\d+) "(?P<file>[^"]*)"', re.MULTILINE)


def rewrite(text: str) -> str:
    """Rewrite every shared variable and every ``__noinline__`` of a preprocessed source.

    ``__shared__ T name[D];`` becomes a reference to storage of its own that the host ring poisons and guards.
    ``extern __shared__ T name[];`` becomes a pointer to the launch's dynamic shared memory. Line numbers stay.

    Parameters
    ----------
    text : str
        Output of ``g++ -E``, line markers included.

    Raises
    ------
    ValueError
        A declaration has another form (several variables, an initialiser); the message names file and line.
    """
    text = _NOINLINE.sub(lambda match: match[0] if match["before"] else "__attribute__((noinline))", text)
    return _DECLARATION.sub(lambda match: _rewritten(match, text), text)


def _rewritten(match: re.Match[str], text: str) -> str:
    """Give the host's declaration for one of CUDA's."""
    declarator = match["declarator"]
    alignments = [aligned["standard"] or aligned["gnu"] for aligned in _ALIGNED.finditer(match[0])]
    variable = _VARIABLE.match(_ALIGNED.sub(" ", declarator).strip())
    if variable is None or set(",=") & set(_without_brackets(declarator)):
        raise ValueError(
            f"{_position(text, match.start())}: expected one shared variable without initialiser in a declaration, "
            f"`__shared__ TYPE NAME[SIZE];`, found `{match[0]}`"
        )
    type_, name, dimensions = variable["type"].strip(), variable["name"], variable["dimensions"]
    lines = "\n" * match[0].count("\n")
    if match["extern"]:
        return f"{type_}* const {name} = static_cast<{type_}*>(::simt::dynamic_shared());{lines}"
    shared, storage = f"{name}_shared_type", f"{name}_shared_storage"
    alignment = "".join(f", static_cast<size_t>({value})" for value in alignments)
    return (
        f"typedef {type_} {shared}{dimensions}; "
        f'static ::simt::StaticShared {storage}("{name}", sizeof({shared}), '
        f"::simt::strictest({{alignof({shared}){alignment}}})); "
        f"{shared}& {name} = *static_cast<{shared}*>({storage}.address());{lines}"
    )


def _without_brackets(declarator: str) -> str:
    """Leave out what stands in brackets of any kind."""
    while (shorter := _BRACKETS.sub("", declarator)) != declarator:
        declarator = shorter
    return declarator


def _position(text: str, offset: int) -> str:
    """Give ``file:line`` of an offset into preprocessed text."""
    markers = list(_MARKER.finditer(text, 0, offset))
    if not markers:
        return "line 1"
    line = int(markers[-1]["line"]) + text.count("\n", markers[-1].end(), offset) - 1
    return f"{markers[-1]['file']}:{line}"


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
