"""Versions of implementations: digests of the files that each is made of, which records and caches are known by.

An implementation is made of the module of its class, of the modules of `spmark.impls` that this code names, imports
inside functions included, of the CUDA and C++ sources and headers that they name, and of the data in their folders. The
names are read out of the code: nothing is imported, and a name that cannot be read stands for a whole folder.

Digests are taken of code without comments, docstrings and white space that means nothing, so that records stay valid
where only prose changes. Regular expressions find the parts: tokens and syntax trees differ between versions of Python,
and a digest must not.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Final, NamedTuple

from spmark.impls.core.files import Stamp, is_file, stamp

_FORMAT: Final = "3"
"""Counts up when the same code gets another digest: 2 leaves comments and docstrings out, 3 what is not used."""
_SKIPPED: Final = ("__pycache__", "README.md")
_FETCHED: Final = ".safetensors"
"""Of models that a checkout has and an installation fetches; the file that ships with their digests counts instead."""
_REGISTRY: Final = "table.py"
"""Whoever imports it may build all that it names. Elsewhere ``module:class`` is an offer to others."""
_FOR_TYPES = re.compile(r"^( *)if TYPE_CHECKING:\n(?:\1 +.*\n?)+", re.MULTILINE)
_MODULE = re.compile(r"\bspmark\.impls(?P<above>(?:\.\w+)*)(?P<more>:\w|\.{)?(?: import (?P<names>[\w, ()]+))?")
_SOURCE = re.compile(r"""(?:\.\./)*([\w./{}-]*\.(?:cuh?|[ch]pp|h))["'>]""")
"""Ends of texts such as ``"kernels/spmm.cu"``, ``f"{name}.cu"``, ``".cpp"`` and ``#include <spmark/vec.cuh>``."""
_log = logging.getLogger(__name__)


class _Content(NamedTuple):
    """What counts of a file, and what it names."""

    digest: str
    modules: frozenset[str] = frozenset()
    """Names after ``spmark.impls``: those of modules, and of what modules hold."""
    packages: frozenset[str] = frozenset()
    """Packages of which a module is named at run time."""
    sources: frozenset[str] = frozenset()
    """Files of CUDA and C++, or what is known of their names."""


@cache
def _content(path: str, seen: Stamp | None) -> _Content:
    if seen is None:
        return _Content("")
    content = normalised(Path(path))
    digest = hashlib.sha256(content).hexdigest()
    if not path.endswith((".py", *CPP_FILES)):
        return _Content(digest)
    text = _FOR_TYPES.sub("", content.decode("utf-8", "surrogateescape"))
    modules, packages = set[str](), set[str]()
    for found in _MODULE.finditer(text):
        above, more = found["above"], found["more"] or ""
        if more.startswith("."):
            packages.add(above)
        elif not more or path.endswith(f"{os.sep}{_REGISTRY}"):
            modules |= {above, *(f"{above}.{name}" for name in re.findall(r"\w+", found["names"] or ""))}
    return _Content(digest, *map(frozenset, (modules, packages, _SOURCE.findall(text))))


class Sources:
    """The files of a folder, with a check that they have not changed since this object was made.

    Parameters
    ----------
    root : Path
        The folder of the package ``spmark.impls``.
    """

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._began = dict(_stamps(self._root))
        self._modules = {  # by the name after ``spmark.impls``; a package's is that of its ``__init__.py``
            path[len(self._root) : -3].replace(os.sep, ".").removesuffix(".__init__"): path
            for path in self._began
            if path.endswith(".py")
        }

    def version(self, module: str) -> str:
        """Give sixteen hex digits over the code and the data that a module is made of.

        Names of files count; comments and docstrings do not. Where a file has changed since the beginning, this process
        may mix old code and new: the digest is then one that unchanged code never has.

        Raises
        ------
        ValueError
            There is no such module.
        """
        return self._version(self.closure(module))

    def version_of_used(self, files: Iterable[str]) -> str:
        """Give sixteen hex digits over what files from outside of the folder use of it, as `version`."""
        used = {one for path in files for one in self._named(path)}
        return self._version(self._reached(used))

    @cache  # noqa: B019 - the sources of a process live as long as it does
    def closure(self, module: str) -> frozenset[str]:
        """Give the files that a module is made of; a package stands for all its modules.

        Raises
        ------
        ValueError
            There is no such module.
        """
        name = "." + module.removeprefix("spmark.impls.")
        own = {*self._below(name)}
        if not own:
            raise ValueError(f"expected a module of spmark.impls, found {module!r}: mend the name")
        return self._reached(own | {*self._above(name)})

    def _reached(self, start: set[str]) -> frozenset[str]:
        reached, edge = set(start), list(start)
        while edge:
            new = self.used(edge.pop()) - reached
            reached |= new
            edge += new
        folders = {self._folder(path) for path in reached if path.endswith(".py")}
        code = (".py", *CPP_FILES)
        return frozenset(reached | {p for p in self._began if not p.endswith(code) and self._folder(p) in folders})

    @cache  # noqa: B019
    def used(self, path: str) -> frozenset[str]:
        """Give the files of the folder that the code of a file names."""
        return frozenset(self._named(path))

    def _named(self, path: str) -> Iterator[str]:
        content = _content(path, stamp(path))
        for name in content.modules:
            yield from self._above(name)
        for name in content.packages:
            yield from self._below(name)
        folder = path.rpartition(os.sep)[0] + os.sep
        sources = [one for one in self._began if one.endswith(CPP_FILES)]
        for name in content.sources:
            known = [one for one in sources if one.endswith(f"{os.sep}{name}")]
            beside = [one for one in known if one.startswith(folder)]
            # A header that is not known is one of the toolkit's.
            unread = [one for one in sources if one.startswith(folder)] if path.endswith(".py") else []
            yield from beside or known or unread

    def _above(self, name: str) -> Iterator[str]:
        """Give the files of a module and of the packages above it; what a module holds has none."""
        above = accumulate(name.split("."), "{}.{}".format)
        return (self._modules[one] for one in above if one in self._modules)

    def _below(self, name: str) -> Iterator[str]:
        """Give the files of a module, or of a package and of all below it."""
        return (path for one, path in self._modules.items() if f"{one}.".startswith(f"{name}."))

    def _folder(self, path: str) -> str:
        """Give the folder of the root that a file lies in."""
        return path[len(self._root) + 1 :].partition(os.sep)[0]

    def _version(self, files: Iterable[str]) -> str:
        now = {path: stamp(path) for path in sorted(files)}
        return _version(self._root, tuple(now.items()), any(self._began[path] != seen for path, seen in now.items()))


@cache
def _version(root: str, files: tuple[tuple[str, Stamp | None], ...], mixed: bool) -> str:
    digest = hashlib.sha256(f"{_FORMAT}\0".encode())
    for path, seen in files:
        digest.update(f"{Path(path).relative_to(root).as_posix()}\0{_content(path, seen).digest}\0".encode())
    if mixed:
        _log.warning("%s: code has changed since this process began; its records belong to no version", root)
        digest.update(b"changed while it was in use")
    return digest.hexdigest()[:16]


def _stamps(folder: str) -> Iterator[tuple[str, Stamp]]:
    """Stamp every file of code or data, which leaves out hidden files, notes and Python's caches."""
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name in _SKIPPED or entry.name.endswith(_FETCHED):
            continue
        if entry.is_dir():
            yield from _stamps(entry.path)
        elif (seen := stamp(entry.path)) is not None:
            yield entry.path, seen


SOURCES: Final = Sources(Path(__file__).parents[1])
"""The folder `impls`, as it was when this process began to load it."""


class OutsideSources:
    """The files of an implementation that stands outside of this package, with the same check.

    Parameters
    ----------
    file : Path
        Where the class stands. In a folder with an ``__init__.py`` the whole folder counts, else the file and the CUDA
        and C++ sources beside it.
    maker : str, optional
        The module that makes the class where the file is not Python.
    """

    def __init__(self, file: Path, maker: str = "") -> None:
        self._file, self._maker = file, maker
        self._began = self._now()

    def version(self) -> str:
        """Give sixteen hex digits over these files and over what they use of `spmark.impls`."""
        now = self._now()
        own = _version(str(self._file.parent), tuple(sorted(now.items())), now != self._began)
        parts = [SOURCES.version_of_used(now), own]
        if self._maker:
            parts.append(SOURCES.version(self._maker))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    def _now(self) -> dict[str, Stamp]:
        folder = self._file.parent
        if is_file(folder / "__init__.py"):
            return dict(_stamps(str(folder)))
        beside = sorted(path for path in folder.iterdir() if path.suffix in CPP_FILES)
        return {str(path): seen for path in (self._file, *beside) if (seen := stamp(path)) is not None}


_OUTSIDE: dict[str, OutsideSources] = {}


def keep_sources(module: str, sources: OutsideSources) -> None:
    """Let `implementation_version` know a module from outside of spmark by these files."""
    _OUTSIDE[module] = sources


def implementation_version(module: str) -> str:
    """Digest the code and the data that a result of an implementation depends on, as this process loaded them.

    Parameters
    ----------
    module : str
        The module of its class (`spmark.impls.table.module_of`). A package stands for all its modules, and
        ``spmark.impls.`` may be left out: ``"liteform"``.

    Raises
    ------
    ValueError
        There is no such module.
    """
    return _OUTSIDE[module].version() if module in _OUTSIDE else SOURCES.version(module)


_PYTHON = re.compile(
    r"""
    (?P<string>[rRbBuUfF]{0,2}(?:'''(?:[^\\]|\\.)*?'''|\"\"\"(?:[^\\]|\\.)*?\"\"\"|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"))
    |(?P<comment>\#[^\n]*)
    |(?P<continued>\\\n)
    |(?P<end>\n)
    |(?P<open>[(\[{])
    |(?P<close>[)\]}])
    """,
    re.VERBOSE | re.DOTALL,
)
_CPP = re.compile(
    r"""
    R"(?P<mark>[^\s()\\]*)\(.*?\)(?P=mark)"
    |"(?:[^"\\\n]|\\.)*"
    |(?<![0-9A-Fa-f])'(?:[^'\\\n]|\\.)*'
    |(?P<left_out>//(?:[^\\\n]|\\.)*|/\*(?!\s*spmark:?\s*\n).*?\*/|\\\n)
    |(?P<end>\n)
    """,
    re.VERBOSE | re.DOTALL,
)
CPP_FILES = (".cu", ".cuh", ".cpp", ".hpp", ".h")
"""Endings of CUDA and C++."""


def normalised(path: Path) -> bytes:
    """Give the part of a file that counts: the code of a file of Python, CUDA or C++, all of any other file."""
    content = path.read_bytes()
    if path.suffix not in (".py", *CPP_FILES):
        return content
    text = content.decode("utf-8", "surrogateescape")
    return (python_code(text) if path.suffix == ".py" else cpp_code(text)).encode("utf-8", "surrogateescape")


def python_code(text: str) -> str:
    """Give Python code without comments, statements that are only a string, and empty lines.

    White space that begins a statement stays; any other outside of strings becomes one space.
    """
    return "\n".join(_statements(text.replace("\r\n", "\n") + "\n"))


def _statements(text: str) -> Iterator[str]:
    """Give one statement after the other; statements in one line stay together."""
    words: list[str] = []
    only_strings, depth, at = True, 0, 0
    for match in _PYTHON.finditer(text):
        between, word, kind = text[at : match.start()], match.group(), match.lastgroup
        at = match.end()
        if not words:
            words.append(between[: len(between) - len(between.lstrip())])
        words += between.split()
        is_prose = kind != "string" or not set("bBfF") & set(word.partition(word[-1])[0])
        only_strings &= is_prose and not between.strip() and kind not in {"open", "close"}
        depth += {"open": 1, "close": -1}.get(str(kind), 0)
        if kind in {"string", "open", "close"}:
            words.append(word)
        elif kind == "end" and depth == 0:
            if len(words) > 1 and not only_strings:
                yield words[0] + " ".join(words[1:])
            words, only_strings = [], True


def cpp_code(text: str) -> str:
    """Give CUDA or C++ without comments, but for one that declares a kernel (`spmark.impls.runtime.kernelfile`).

    White space outside of strings becomes one space, and only directives have lines of their own.
    """
    lines: list[list[str]] = [[]]
    for words in _lines(text.replace("\r\n", "\n") + "\n"):
        if words and words[0].startswith("#"):
            lines += [words, []]
        else:
            lines[-1] += words
    return "\n".join(" ".join(words) for words in lines if words)


def _lines(text: str) -> Iterator[list[str]]:
    """Give the words of one line after the other; a line and its continuation count as one."""
    words: list[str] = []
    at = 0
    for match in _CPP.finditer(text):
        words += text[at : match.start()].split()
        at = match.end()
        if match["end"]:
            yield words
            words = []
        elif not match["left_out"]:
            words.append(match.group())
