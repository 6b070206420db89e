"""Compile CUDA kernel sources for the host, behind the SIMT shim and under sanitizers.

One executable per source holds the requested kernel instances. It is cached by the text that the compiler would see,
and serves every later request for some of its instances. Processes that want the same executable wait for the process
that compiles it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path

from filelock import FileLock

from spmark.impls.core.errors import CompileError
from spmark.impls.core.files import whole
from spmark.impls.runtime.compile import cache_folder, content
from spmark.impls.runtime.gcc import find_gcc, run_gcc
from spmark.impls.runtime.host.rewrite import rewrite
from spmark.impls.runtime.toolchain import INCLUDE

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
