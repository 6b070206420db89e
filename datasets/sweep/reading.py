"""Reading a sweep from YAML: overrides, include files, lists and wildcards of names, and errors that name the key.

A matrix may be written in one word: ``source/name``, or a file by its ending, with ``@AT`` for the transpose.

The result is plain data that `spmark.datasets.sweep.model.Sweep` checks; nothing in a file is executed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from spmark.datasets.sources.table import FILES, file_ending, find_source, source_names
from spmark.datasets.sweep.model import ONE, TWO, ImplementationSpec, MatrixSpec, Sweep, Widths
from spmark.impls.core.errors import DatasetError, SweepError, near, none_of
from spmark.impls.core.files import is_file
from spmark.impls.core.outside import is_file_class
from spmark.impls.core.plainyaml import MAX_BYTES, parse_yaml
from spmark.impls.core.untrusted import reading
from spmark.records.schema import Orientation

_PACKAGED = Path(str(files("spmark.datasets"))) / "sweeps"
_DEEPEST_INCLUDE = 8
_OF_FILES = frozenset(FILES.values()).__contains__
"""Tells whether a source reads the user's own files."""
_A_MATRIX = "{source: planetoid, name: cora}, or in a word planetoid/cora or mine.mtx"
_TRANSPOSED = f"@{Orientation.TRANSPOSED}"
_FOLDERS = frozenset({".", "..", "~"})
"""What a path may begin with and a source is never called."""
_EDGES = (
    "n = numpy.loadtxt({file!r}, int, usecols=(0, 1), ndmin=2{comma}).T; "
    "a = scipy.sparse.coo_array((numpy.ones(n.shape[1]), tuple(n)), (n.max() + 1, n.max() + 1))"
)
_CONVERTED: Mapping[str, str] = {
    **dict.fromkeys((".txt", ".tsv", ".el", ".edges"), _EDGES.replace("{comma}", "")),
    ".csv": _EDGES.replace("{comma}", ", delimiter=','"),
    ".npy": "a = scipy.sparse.coo_array(numpy.load({file!r}))",
    ".pt": "t = torch.load({file!r}, weights_only=True).to_sparse_coo().coalesce(); "
    "a = scipy.sparse.coo_array((t.values().numpy(), t.indices().numpy()), t.shape)",
}
"""What gives a matrix of SciPy, by the ending of a file that states no shape, or that would have to be unpickled."""


def packaged_sweeps() -> dict[str, Path]:
    """Give the sweeps that ship with spmark, by bare name."""
    return {path.stem: path for path in sorted(_PACKAGED.glob("*.yaml"))}


def packaged_lists() -> dict[str, Path]:
    """Give the lists of matrices that packaged sweeps include, by bare name."""
    return {path.stem: path for path in sorted((_PACKAGED / "matrices").glob("*.yaml"))}


def read_list(file: Path) -> list[MatrixSpec]:
    """Read a list of matrices as sweeps include it."""
    return [MatrixSpec.model_validate(one) for one in _included(file, str(file), 0)]


def read_sweep(path: str | Path, overrides: Sequence[str] = ()) -> Sweep:
    """Read and check a sweep; see `Sweep.load`."""
    file = _locate(path)
    data = _read_yaml(file)
    if not isinstance(data, dict):
        raise SweepError(f"{file}: expected a mapping with the keys of a sweep, found {type(data).__name__}")
    return checked_sweep(data, file, overrides)


def checked_sweep(data: dict[str, Any], file: Path, overrides: Sequence[str] = ()) -> Sweep:
    """Check a sweep that is plain data, as YAML holds it.

    Parameters
    ----------
    data : dict
        Is changed.
    file : Path
        Named in errors; relative paths begin at its folder.
    overrides : sequence of str
        As in `Sweep.load`.

    Raises
    ------
    SweepError
        As `Sweep.load` raises it.
    """
    for override in overrides:
        _override(data, override)
    matrices = data.get("matrices", [])
    if not isinstance(matrices, list):
        raise SweepError(f"{file}: matrices: expected a list of matrices, each {_A_MATRIX}, found {matrices!r}")
    # Paths on the command line begin at the folder where the command is given.
    given = {override.partition("=")[0].strip() for override in overrides}
    folders = {key: Path.cwd() if key in given else file.parent.resolve() for key in ("matrices", "implementations")}
    if matrices:
        data["matrices"] = list(_matrices(matrices, file, folders["matrices"], 0))
    if isinstance(data.get("implementations"), list):
        where = f"{file}: implementations"
        data["implementations"] = [
            _placed(item, f"{where}.{number}", folders["implementations"], is_file_class, "name")
            for number, item in enumerate(data["implementations"])
        ]
    with reading(file, "keys and values of a sweep", SweepError):
        try:
            return Sweep.model_validate(data)
        except ValidationError as error:
            # Pydantic reports a list with wrong items as too short as well, which says nothing new.
            items = [item for item in error.errors() if not (item["type"] == "too_short" and item["input"])]
            raise SweepError("\n".join(_explain(file, item) for item in items)) from error


def parse_matrix(text: str, folder: Path = Path()) -> dict[str, str]:
    """Give the ``source``, ``name`` and ``orientation`` of a matrix, as a sweep's mapping has them.

    Parameters
    ----------
    text : str
        A file need not exist. A text that begins with a source's name means a matrix of that source, unless a file of
        this path exists.
    folder : Path
        Where a relative path begins.

    Raises
    ------
    DatasetError
        The text has neither form, or the source does not exist; lists what exists.
    """
    bare = text.removesuffix(_TRANSPOSED)
    orientation = str(Orientation.A if bare == text else Orientation.TRANSPOSED)
    first, _, rest = bare.partition("/")
    known = source_names()
    ending, found = file_ending(bare), is_file(folder / bare)
    if ending and (found or first not in known):
        return {"source": FILES[ending], "name": bare, "orientation": orientation}
    converting = next((how for end, how in _CONVERTED.items() if bare.lower().endswith(end)), "")
    if not first or not rest or first in _FOLDERS or (first not in known and (found or converting)):
        raise DatasetError(
            f"expected a matrix as source/name, or a file that ends in {', '.join(FILES)}; found {text!r}; "
            f"{_lines(converting, bare)}spmark list datasets says what there is"
        )
    if first not in known:
        raise DatasetError(none_of("a source", first, known))
    return {"source": first, "name": rest, "orientation": orientation}


def _lines(converting: str, name: str) -> str:
    """Give the lines of Python that write a file which is read, where they are known."""
    if not converting:
        return ""
    modules = "numpy, scipy.sparse" + ", torch" * ("torch" in converting)
    return (
        f"in Python, these lines write one of its matrix:\nimport {modules}; {converting.format(file=name)}\n"
        f"scipy.sparse.save_npz({str(Path(name).with_suffix('.npz'))!r}, a)\n"
    )


def _locate(path: str | Path) -> Path:
    file = Path(path)
    if is_file(file):
        return file
    packaged = packaged_sweeps()
    if str(path) in packaged:
        return packaged[str(path)]
    raise SweepError(
        f"{path}: expected a sweep file, or one of the packaged sweeps {', '.join(packaged)}; "
        f"found neither{near(str(path), packaged)}"
    )


def _read_yaml(file: Path) -> Any:
    with reading(file, "a YAML file", SweepError), file.open("rb") as stream:
        content = stream.read(MAX_BYTES + 1)
    return parse_yaml(content, str(file), SweepError)


def _override(data: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise SweepError(f"override {override!r}: expected key=value, such as widths=[32,64]")
    *parents, last = key.strip().split(".")
    for parent in parents:
        data = data.setdefault(parent, {})
        if not isinstance(data, dict):
            raise SweepError(f"override {override!r}: expected {parent} to hold keys, found {type(data).__name__}")
    data[last] = parse_yaml(text, f"override {override!r}: the value after '='", SweepError)


def _matrices(items: list[Any], file: Path, folder: Path, depth: int) -> Iterator[dict[str, Any]]:
    """Give a mapping for every matrix; relative paths begin at ``folder``."""
    for number, item in enumerate(items):
        where = f"{file}: matrices.{number}"
        if isinstance(item, str):
            try:
                yield _placed(parse_matrix(item, folder), where, folder, _OF_FILES, "source")
            except DatasetError as error:
                raise SweepError(f"{where}: {error}; in full, a matrix is {_A_MATRIX}") from error
        elif not isinstance(item, dict):
            raise SweepError(f"{where}: expected {_A_MATRIX}, found {item!r}")
        elif "include" in item:
            if set(item) != {"include"} or not isinstance(item["include"], str):
                raise SweepError(
                    f"{where}: expected include alone, with a file relative to {file.parent}, found {item}"
                )
            yield from _included(file.parent / item["include"], where, depth)
        elif item.keys() & {"where", "table"}:
            yield from _of_collection(item, where)
        elif "names" in item:
            yield from (_placed(one, where, folder, _OF_FILES, "source") for one in _named(item, where))
        else:
            yield _placed(item, where, folder, _OF_FILES, "source")


def _placed(item: Any, where: str, folder: Path, is_file_of: Callable[[str], bool], key: str) -> Any:
    """Say where a relative path begins, if what stands under ``key`` of an item is a file."""
    entry = {key: item} if isinstance(item, str) else item
    if isinstance(entry, dict) and "folder" in entry:
        raise SweepError(f"{where}: folder: unknown key; a relative path begins at the folder of the sweep's file")
    named = isinstance(entry, dict) and isinstance(entry.get(key), str) and is_file_of(entry[key])
    return {**entry, "folder": str(folder)} if named else item


def _included(file: Path, where: str, depth: int) -> Iterator[Any]:
    if depth == _DEEPEST_INCLUDE:
        raise SweepError(
            f"{where}: expected at most {_DEEPEST_INCLUDE} includes inside each other; is {file} circular?"
        )
    if not is_file(file):
        known = [path.name for path in file.parent.glob("*.yaml")]
        raise SweepError(f"{where}: expected a file of matrices at {file}, found none{near(file.name, known)}")
    items = _read_yaml(file)
    if not isinstance(items, list):
        raise SweepError(f"{file}: expected a list of matrices, found {type(items).__name__}")
    yield from _matrices(items, file, file.parent.resolve(), depth + 1)


def _of_collection(item: dict[str, Any], where: str) -> Iterator[dict[str, Any]]:
    """Give the matrices of the SuiteSparse collection that meet a condition or stand in a table, or a draw of them."""
    from spmark.datasets.cache import Cache
    from spmark.datasets.collection import drawn, listed_in, matching, read_index

    rest = {key: value for key, value in item.items() if key not in {"where", "table", "draw", "seed"}}
    condition, table, draw, seed = (item.get(key) for key in ("where", "table", "draw", "seed"))
    numbers = all(
        one is None or (isinstance(one, int) and not isinstance(one, bool) and one >= 0) for one in (draw, seed)
    )
    if rest.get("source") != "suitesparse" or {"name", "names"} & rest.keys() or not numbers:
        raise SweepError(
            f"{where}: expected source: suitesparse with where and table, draw and seed (whole numbers), without "
            f"names, found {item}"
        )
    cache = Cache.default()
    try:
        lines = read_index(cache).lines
        lines = lines if condition is None else matching(lines, str(condition))
        lines = lines if table is None else listed_in(lines, str(table), cache)
        lines = lines if draw is None else drawn(lines, draw, seed or 0)
    except DatasetError as error:
        raise SweepError(f"{where}: {error}") from error
    if not lines:
        raise SweepError(f"{where}: expected {item} to leave a matrix of the collection, found none")
    yield from ({**rest, "name": f"{line['group']}/{line['name']}"} for line in lines)


def _named(item: dict[str, Any], where: str) -> Iterator[Any]:
    names, rest = item["names"], {key: value for key, value in item.items() if key != "names"}
    if "name" in item or not isinstance(names, list) or not names:
        raise SweepError(f"{where}: expected either name, or names with a list of at least one, found {item}")
    for name in names:
        if not (isinstance(name, str) and "*" in name):
            yield {**rest, "name": name}
            continue
        source = rest.get("source")
        if not (isinstance(source, str) and source in source_names()):
            raise SweepError(f"{where}: expected a source to look for {name!r} in, found {source!r}")
        from spmark.datasets.cache import Cache

        known = find_source(source).names(Cache.default())
        matches = [candidate for candidate in known if fnmatchcase(candidate, name)]
        if not matches:
            raise SweepError(f"{where}: expected {name!r} to match matrices of {rest['source']}, found none")
        yield from ({**rest, "name": match} for match in matches)


def _explain(file: Path, error: Any) -> str:
    """Say which key is wrong: expected, found, near misses."""
    path = [part for part in error["loc"] if part not in ("schema_version", ONE, TWO)]
    key = ".".join(str(part) for part in path)
    if error["type"] == "extra_forbidden":
        fields = _fields(path[:-1])
        return (
            f"{file}: {key}: unknown key; expected keys out of {', '.join(fields)}, "
            f"found {path[-1]!r}{near(str(path[-1]), fields)}"
        )
    if error["type"] in {"missing", "too_short"}:
        return f"{file}: {key}: expected " + (
            "this key, found none" if error["type"] == "missing" else "at least 1 item, found []"
        )
    message = str(error["msg"]).removeprefix("Value error, ").replace("Input should be", "expected", 1)
    if error["type"] == "value_error":
        return f"{file}: {key}{': ' if key else ''}{message}"
    choices = str(error.get("ctx", {}).get("expected", "")).replace(" or ", ", ").replace("'", "").split(", ")
    return f"{file}: {key}: {message}, found {error['input']!r}{near(str(error['input']), choices)}"


def _fields(path: Sequence[Any]) -> list[str]:
    kinds: Mapping[str, type[BaseModel]] = {"matrices": MatrixSpec, "implementations": ImplementationSpec}
    model = Widths if "widths" in path else kinds.get(str(path[0]), Sweep) if path else Sweep
    extra = ["include", "names", "where", "table", "draw", "seed"] if model is MatrixSpec else []
    return [field.alias or name for name, field in model.model_fields.items() if name != "folder"] + extra
