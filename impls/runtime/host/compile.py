"""Compile CUDA kernel sources for the host, behind the SIMT shim and under sanitizers.

One executable per source holds the requested kernel instances. It is cached by the text that the compiler would see,
and serves every later request for some of its instances. Processes that want the same executable wait for the process
that compiles it.

What of CUDA's language a C++ macro cannot express is turned into C++ first: ``__shared__`` declarations and
``__noinline__``, in preprocessed text, so that declarations in every header are seen and macros in their dimensions are
resolved.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path

from filelock import FileLock

from spmark.impls.core.errors import CompileError
from spmark.impls.core.files import whole
from spmark.impls.runtime.compile import cache_folder, content
from spmark.impls.runtime.gcc import find_gcc, run_gcc
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
