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
from spmark.impls.runtime.compile import content
from spmark.impls.runtime.gcc import find_gcc, run_gcc
from spmark.impls.runtime.host.rewrite import rewrite

_HOST = Path(__file__).parent
_RING = ("driver.cpp", "memory.cpp", "scheduler.cpp")
_OPTIONS = (
    "-std=c++17",
    "-O1",
    "-g1",  # reports need functions and lines; descriptions of types take a third of the compiler's time
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
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
        Where executables are kept. The key is the preprocessed source (every included header with it), the options and
        the compiler's version, then the instances; processes may share the folder.

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
    compiler, version, options = _compiler()
    named = ", ".join(instances)
    try:
        flat = _preprocessed(source, content(source), tuple(include_dirs))
    except CompileError as error:
        raise CompileError(str(source), named, error.log) from error
    options = (*options, *MORE_OPTIONS)
    shelf = f"{source.stem}-{_key(flat, version, *options, _ring_digest())}"
    cache_dir.mkdir(parents=True, exist_ok=True)
    with FileLock(cache_dir / f".{shelf}.lock"):
        executable = _holding(instances, cache_dir, shelf)
        if executable is None:
            ring = map(str, ring_objects(cache_dir))
            executable = cache_dir / f"{shelf}-{_key(*instances)}"
            with whole(executable) as made:
                command = [compiler, *options, "-x", "c++-cpp-output", "-", "-x", "none", *ring, "-o", str(made)]
                run_gcc(command, flat + _table(instances), str(source), named)
                made.chmod(0o755)
            with whole(executable.with_name(executable.name + _NAMES)) as names:
                names.write_text("\n".join(instances))
    return executable


@lru_cache(maxsize=32)  # a plan loads kernels of a few sources, each many times; a text has about a megabyte
def _preprocessed(source: Path, _content: bytes, include_dirs: tuple[Path, ...]) -> str:
    """Give the preprocessed text of a source with this content, with shared variables as the host ring has them."""
    compiler, _, options = _compiler()
    unit = f'#include "{_HOST / "simt.hpp"}"\n#include "{source.resolve()}"\n'
    includes = [f"-I{folder}" for folder in include_dirs]
    text = run_gcc([compiler, "-E", "-x", "c++", *options, *includes, "-"], unit, str(source), "")
    try:
        return rewrite(text)
    except ValueError as error:
        raise CompileError(str(source), "", str(error)) from error


def _holding(instances: Sequence[str], cache_dir: Path, shelf: str) -> Path | None:
    """Find an executable of the same source that holds these instances, and perhaps more."""
    for names in sorted(cache_dir.glob(f"{shelf}-*{_NAMES}")):
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
def _compiler() -> tuple[str, str, tuple[str, ...]]:
    """Give the path of g++, its version line, and the options that it takes."""
    gcc = find_gcc()
    pattern = ("-ftrivial-auto-var-init=pattern",) if gcc.major >= _FIRST_PATTERN_INIT else ()
    return gcc.path, gcc.version, (*_OPTIONS, *pattern)


@cache
def _ring_digest() -> str:
    """Digest the shim's own sources."""
    files = sorted(path for path in _HOST.iterdir() if path.suffix in (".cpp", ".hpp"))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()


def ring_objects(cache_dir: Path) -> list[Path]:
    """Compile the shim itself, once for all kernels of a cache."""
    compiler, version, options = _compiler()
    cache_dir.mkdir(parents=True, exist_ok=True)
    key = _key(version, *options, _ring_digest())
    objects = []
    with FileLock(cache_dir / f".ring-{key}.lock"):
        for name in _RING:
            source = _HOST / name
            object_ = cache_dir / f"{source.stem}-{key}.o"
            if not object_.is_file():
                with whole(object_) as made:
                    command = [compiler, *options, "-c", "-x", "c++", "-", "-o", str(made)]
                    run_gcc(command, f'#include "{source}"\n', str(source), "the host ring")
            objects.append(object_)
    return objects
