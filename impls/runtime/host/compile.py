"""Compile CUDA kernel sources for the host, behind the SIMT shim and under sanitizers.

One executable per source holds the requested kernel instances; it is cached by what the compiler would see.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from spmark.impls.core.errors import CompileError, DeviceError
from spmark.impls.runtime.host.rewrite import rewrite_shared

_HOST = Path(__file__).parent
_RING = ("driver.cpp", "hooks.cpp", "memory.cpp", "races.cpp", "scheduler.cpp")
_AT_EVERY_ACCESS = ("hooks.cpp", "races.cpp")
_OPTIONS = (
    "-std=c++17",
    "-O1",
    "-g",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-pie",  # with 32 bits of address randomisation, a PIE may be put where the sanitizer's heap must be
    "-no-pie",
    "-fno-omit-frame-pointer",  # reports walk the fibers' stacks by it
    "-fno-strict-aliasing",  # as device compilers: kernels look at floats as vectors of words
    "-Wno-unknown-pragmas",  # `#pragma unroll` is CUDA's
)
_FAST_OPTIONS = ("-O2", "-fno-sanitize=all")
# A kernel calls AddressSanitizer for every access, and the linker leads these calls through hooks.cpp.
_KERNEL_OPTIONS = ("--param=asan-instrumentation-with-call-threshold=0",)
_LINK_OPTIONS = tuple(
    f"-Wl,--wrap=__asan_{kind}{size}" for kind in ("load", "store") for size in ("2", "4", "8", "16", "N")
)
_FIRST_PATTERN_INIT = 12  # GCC that can fill uninitialised locals with a pattern
_SECONDS = 300  # a compiler that takes longer does not end


def compile_host(source: Path, instances: Sequence[str], include_dirs: Sequence[Path], cache_dir: Path) -> Path:
    """Compile a kernel source for the host.

    Parameters
    ----------
    source : Path
        A ``.cu`` file.
    instances : sequence of str
        The kernels with their template arguments, such as ``spmm_csr<float, 4, 32>``: the names they are launched by.
    include_dirs : sequence of Path
        Folders of ``#include <...>``.
    cache_dir : Path
        Where executables are kept. The key is the preprocessed source (every included header with it), the instances,
        the options and the compiler's version; writing is atomic, so processes may share the folder.

    Returns
    -------
    Path
        An executable for `launch_host`.

    Raises
    ------
    CompileError
        The source or an instance does not compile; carries the compiler's log.
    DeviceError
        There is no g++.
    """
    compiler, version, options = _compiler()
    unit = f'#include "{_HOST / "simt.hpp"}"\n#include "{source.resolve()}"\n'
    includes = [f"-I{folder}" for folder in include_dirs]
    named = ", ".join(instances)
    try:
        flat = _run([compiler, "-E", "-x", "c++", *options, *includes, "-"], unit, source, named)
        text = rewrite_shared(flat) + _table(instances)
    except ValueError as error:
        raise CompileError(str(source), named, str(error)) from error
    options = (*options, *_KERNEL_OPTIONS, *_LINK_OPTIONS)
    key = hashlib.sha256("\0".join((text, version, *options, _ring_digest())).encode()).hexdigest()[:24]
    executable = cache_dir / f"{source.stem}-{key}"
    if not executable.is_file():
        cache_dir.mkdir(parents=True, exist_ok=True)
        ring = _ring_objects(cache_dir)
        with tempfile.TemporaryDirectory(dir=cache_dir) as folder:
            made = Path(folder) / executable.name
            command = [compiler, *options, "-x", "c++-cpp-output", "-", "-x", "none", *map(str, ring), "-o", str(made)]
            _run(command, text, source, named)
            made.replace(executable)
    return executable


def _table(instances: Sequence[str]) -> str:
    """Give the definition of the table that the driver looks launches up in."""
    rows = "".join(f'    ::simt::Bind<&{name}>::instance("{name}"),\n' for name in instances)
    return (
        f'\n# 1 "instances"\nnamespace simt {{\nconst Instance kInstances[] = {{\n{rows}}};\n'
        f"const size_t kInstanceCount = {len(instances)};\n}}\n"
    )


def _run(command: Sequence[str], text: str, source: Path, instance: str) -> str:
    """Run the compiler on a text and give what it writes to standard output."""
    # Warnings of generated declarations help nobody; messages in one language can be tested.
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=_SECONDS, env=environment, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise CompileError(str(source), instance, f"g++ did not finish within {_SECONDS} s") from error
    if done.returncode != 0:
        raise CompileError(str(source), instance, done.stderr)
    return done.stdout


@cache
def _compiler() -> tuple[str, str, tuple[str, ...]]:
    """Find g++: its path, its version line, and the options that it takes."""
    path = shutil.which("g++")
    if path is None:
        raise DeviceError(
            "expected g++ (C++17) on PATH to run kernels on the host, found none: install the package g++"
        )
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    major = subprocess.run([path, "-dumpversion"], capture_output=True, text=True, check=True).stdout.split(".")[0]
    pattern = ("-ftrivial-auto-var-init=pattern",) if int(major) >= _FIRST_PATTERN_INIT else ()
    return path, version, (*_OPTIONS, *pattern)


@cache
def _ring_digest() -> str:
    """Digest the shim's own sources."""
    files = sorted(path for path in _HOST.iterdir() if path.suffix in (".cpp", ".hpp"))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()


def _ring_objects(cache_dir: Path) -> list[Path]:
    """Compile the shim itself, once for all kernels of a cache."""
    compiler, version, options = _compiler()
    key = hashlib.sha256("\0".join((version, *options, *_FAST_OPTIONS, _ring_digest())).encode()).hexdigest()[:24]
    objects = []
    for name in _RING:
        source = _HOST / name
        object_ = cache_dir / f"{source.stem}-{key}.o"
        if not object_.is_file():
            with tempfile.TemporaryDirectory(dir=cache_dir) as folder:
                made = Path(folder) / object_.name
                own = _FAST_OPTIONS if name in _AT_EVERY_ACCESS else ()
                command = [compiler, *options, *own, "-c", "-x", "c++", "-", "-o", str(made)]
                _run(command, f'#include "{source}"\n', source, "the host ring")
                made.replace(object_)
        objects.append(object_)
    return objects
