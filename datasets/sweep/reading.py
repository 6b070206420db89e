"""Reading a sweep from YAML: overrides, include files, lists and wildcards of names, and errors that name the key.

The result is plain data that `spmark.datasets.sweep.model.Sweep` checks; nothing in a file is executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from spmark.datasets.cache import Cache
from spmark.datasets.sources.table import FILES, find_source, source_names
from spmark.datasets.sweep.model import ImplementationSpec, MatrixSpec, Sweep
from spmark.datasets.sweep.written import parse_matrix
from spmark.impls.core.choices import near
from spmark.impls.core.errors import DatasetError, SweepError
from spmark.impls.core.fileclass import is_file_class
from spmark.impls.core.files import is_file
from spmark.impls.core.guard import reading
from spmark.impls.core.plainyaml import MAX_BYTES, parse_yaml

_DEEPEST_INCLUDE = 8
_A_MATRIX = "{source: planetoid, name: cora}, or in a word planetoid/cora or mine.mtx"


def packaged_sweeps() -> dict[str, Path]:
    """Give the sweeps that ship with spmark, by bare name."""
    folder = Path(str(files("spmark.datasets"))) / "sweeps"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def packaged_lists() -> dict[str, Path]:
    """Give the lists of matrices that packaged sweeps include, by bare name."""
    folder = Path(str(files("spmark.datasets"))) / "sweeps" / "matrices"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def read_list(file: Path) -> list[MatrixSpec]:
    """Read a list of matrices as sweeps include it."""
    return [MatrixSpec.model_validate(one) for one in _included(file, str(file), 0)]


def read_sweep(path: str | Path, overrides: Sequence[str] = ()) -> Sweep:
    """Read and check a sweep; see `Sweep.load`."""
    file = _locate(path)
    return checked_sweep(_mapping(file, _read_yaml(file)), file, overrides)


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
            _with_folder(item, f"{where}.{number}", folders["implementations"])
            for number, item in enumerate(data["implementations"])
        ]
    with reading(file, "keys and values of a sweep", SweepError):
        try:
            return Sweep.model_validate(data)
        except ValidationError as error:
            # Pydantic reports a list with wrong items as too short as well, which says nothing new.
            items = [item for item in error.errors() if not (item["type"] == "too_short" and item["input"])]
            raise SweepError("\n".join(_explain(file, item) for item in items)) from error


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


def _mapping(file: Path, data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise SweepError(f"{file}: expected a mapping with the keys of a sweep, found {type(data).__name__}")
    return data


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
            yield _placed(_written(item, where, folder), where, folder)
        elif not isinstance(item, dict):
            raise SweepError(f"{where}: expected {_A_MATRIX}, found {item!r}")
        elif "include" in item:
            if set(item) != {"include"} or not isinstance(item["include"], str):
                raise SweepError(
                    f"{where}: expected include alone, with a file relative to {file.parent}, found {item}"
                )
            yield from _included(file.parent / item["include"], where, depth)
        elif "names" in item:
            yield from (_placed(one, where, folder) for one in _named(item, where))
        else:
            yield _placed(item, where, folder)


def _written(text: str, where: str, folder: Path) -> dict[str, Any]:
    try:
        return dict(parse_matrix(text, folder))
    except DatasetError as error:
        raise SweepError(f"{where}: {error}; in full, a matrix is {_A_MATRIX}") from error


def _with_folder(item: Any, where: str, folder: Path) -> Any:
    """Say of an implementation where its path begins, if its name is a class in a file."""
    entry = {"name": item} if isinstance(item, str) else item
    if isinstance(entry, dict) and "folder" in entry:
        raise SweepError(f"{where}: folder: unknown key; a relative path begins at the folder of the sweep's file")
    named = isinstance(entry, dict) and isinstance(entry.get("name"), str) and is_file_class(entry["name"])
    return {**entry, "folder": str(folder)} if named else item


def _placed(item: dict[str, Any], where: str, folder: Path) -> dict[str, Any]:
    if "folder" in item:
        raise SweepError(f"{where}: folder: unknown key; a relative path begins at the folder of the sweep's file")
    return item | ({"folder": str(folder)} if item.get("source") in FILES.values() else {})


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
        known = find_source(source).names(Cache.default())
        matches = [candidate for candidate in known if fnmatchcase(candidate, name)]
        if not matches:
            raise SweepError(f"{where}: expected {name!r} to match matrices of {rest['source']}, found none")
        yield from ({**rest, "name": match} for match in matches)


def _explain(file: Path, error: Any) -> str:
    """Say which key is wrong: expected, found, near misses."""
    path = [part for part in error["loc"] if part != "schema_version"]
    key = ".".join(str(part) for part in path)
    if error["type"] == "extra_forbidden":
        fields = _fields(path[:-1])
        return (
            f"{file}: {key}: unknown key; expected keys out of {', '.join(fields)}, "
            f"found {path[-1]!r}{near(str(path[-1]), fields)}"
        )
    message = str(error["msg"]).removeprefix("Value error, ").replace("Input should be", "expected", 1)
    if error["type"] == "missing":
        return f"{file}: {key}: expected this key, found none"
    if error["type"] == "too_short":
        return f"{file}: {key}: expected at least 1 item, found {error['input']!r}"
    if error["type"] == "value_error":
        return f"{file}: {message}" if not key else f"{file}: {key}: {message}"
    if error["type"] in ("enum", "literal_error"):
        choices = str(error["ctx"]["expected"]).replace(" or ", ", ").replace("'", "").split(", ")
        return f"{file}: {key}: {message}, found {error['input']!r}{near(str(error['input']), choices)}"
    return f"{file}: {key}: {message}, found {error['input']!r}"


def _fields(path: Sequence[Any]) -> list[str]:
    kinds: Mapping[str, type[BaseModel]] = {"matrices": MatrixSpec, "implementations": ImplementationSpec}
    model = kinds.get(str(path[0]), Sweep) if path else Sweep
    extra = ["include", "names"] if model is MatrixSpec else []
    return [field.alias or name for name, field in model.model_fields.items() if name != "folder"] + extra
