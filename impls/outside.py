"""Implementations of other people: in a Python or CUDA file that a person names, or offered by a distribution.

Nothing is imported before somebody names it. `spmark.impls.table` looks here for names that are not its own.
"""

from __future__ import annotations

import hashlib
import re
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from spmark.impls.core.choices import none_of
from spmark.impls.core.enums import DeviceKind, Op
from spmark.impls.core.errors import SweepError
from spmark.impls.core.fileclass import FileClass
from spmark.impls.core.files import is_file
from spmark.impls.core.offers import IMPLEMENTATION_GROUP, Offer, offers

if TYPE_CHECKING:
    from spmark.impls.core.digest import OutsideSources

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_PRIVATE = "spmark_outside_"
_IMPLS = Path(__file__).parent


@dataclass(frozen=True)
class Outside:
    """An implementation whose code is not part of spmark."""

    kind: type[Any]
    entry: str
    """``/folder/mine.py:MyKernel``, ``/folder/mine.cu``, or ``module:class`` of a distribution."""
    owner: str
    """Whose name it is, for messages."""


LOADED: dict[str, Outside] = {}
"""What this process has loaded, by name. A class that is loaded once stays."""


def load_file(named: FileClass, own: Mapping[str, str]) -> Outside:
    """Load what a person names by its file: a class, whose file is imported, or a kernel, whose file is read.

    This happens once for a process.

    Parameters
    ----------
    named : FileClass
        With an absolute path. A file in a folder with an ``__init__.py`` is imported as a part of that package.
    own : mapping of str to str
        Spmark's own implementations, whose names are taken.

    Raises
    ------
    SweepError
        The file is missing or cannot be imported, the class is missing or is not an implementation, or its name is
        taken; the message says where and what to do.
    """
    known = next((one for one in LOADED.values() if one.entry == str(named)), None)
    if known is not None:
        return known
    if not is_file(named.file):
        raise SweepError(f"{named}: expected a Python or CUDA file, found none: mend the path")
    # The files are stamped before they are read, so that a change in between shows in the version.
    if not named.label:
        from spmark.impls.runtime.kernelfile import kernel_class

        sources = _sources(named.file, kernel_class.__module__)
        kind = kernel_class(named.file, private_name(named.file))
        return _kept(Outside(kind, str(named), f"the file {named.file}"), own, sources)
    sources, module = _sources(named.file), _imported(named.file)
    defined = {name: one for name, one in vars(module).items() if isinstance(one, type)}
    classes = {name: one for name, one in defined.items() if one.__module__ == module.__name__}
    try:
        if not classes:
            raise SweepError(f"{named.file}: expected the class {named.label}, found a file without classes: write it")
        if named.label not in classes:
            raise SweepError(f"{named.file}: {none_of('a class', named.label, classes)}")
        return _kept(Outside(classes[named.label], str(named), f"the file {named.file}"), own, sources)
    except SweepError:
        if not any(one.kind.__module__ == module.__name__ for one in LOADED.values()):
            del sys.modules[module.__name__]  # a mended file is read again
        raise


def load_offer(offer: Offer, own: Mapping[str, str]) -> Outside:
    """Import what a distribution offers, whose name is not in `LOADED` yet.

    Raises
    ------
    SweepError
        The import fails, or the class is not an implementation of the name that its distribution registers.
    """
    module, sources = offer.entry.partition(":")[0], None
    with suppress(Exception):  # which loading tells better
        spec = find_spec(module)
        sources = _sources(Path(spec.origin)) if spec is not None and spec.origin is not None else None
    found = Outside(offer.load(SweepError), offer.entry, offer.owner)
    name = getattr(found.kind, "name", None)
    if name != offer.name:
        raise SweepError(
            f"{offer.entry}: expected the name {offer.name!r}, as {offer.owner} registers it, found {name!r}; mend "
            "that distribution"
        )
    return _kept(found, own, sources)


def faults(kind: Any) -> list[str]:
    """Say what keeps an object from being an implementation (`spmark.impls.core.interfaces.Implementation`).

    Returns
    -------
    list of str
        Each says what was expected and found; empty for an implementation.
    """
    if not isinstance(kind, type):
        return [f"expected a class, found {kind!r}"]
    frozen = getattr(getattr(kind, "__dataclass_params__", None), "frozen", False)
    told = {name: getattr(kind, name, None) for name in ("name", "ops", "devices", "kernels", "unsupported", "build")}
    name = told["name"]
    rules = {
        "@dataclass(frozen=True), whose fields are the tunables": frozen,
        "name: a text of letters, digits, '_', '.' and '-'": isinstance(name, str) and _NAME.fullmatch(name),
        "ops: a frozenset of members of Op": _some_of(told["ops"], Op),
        "devices: a frozenset of members of DeviceKind": _some_of(told["devices"], DeviceKind),
        "kernels: a tuple of KernelTemplate, () where there are none": isinstance(told["kernels"], tuple),
        "unsupported(problem, device)": callable(told["unsupported"]),
        "build(problem, device)": callable(told["build"]),
    }
    found = {rule: told.get(rule.partition(":")[0].partition("(")[0], "a class without it") for rule in rules}
    return [f"expected {rule}, found {found[rule]!r}" for rule, holds in rules.items() if not holds]


def _some_of(found: Any, members: type[StrEnum]) -> bool:
    return isinstance(found, frozenset) and bool(found) and all(isinstance(one, members) for one in found)


def _sources(file: Path, maker: str = "") -> OutsideSources:
    from spmark.impls.core.digest import OutsideSources  # stamps all of spmark, for which `spmark --help` does not wait

    return OutsideSources(file, maker)


def _kept(found: Outside, own: Mapping[str, str], sources: OutsideSources | None) -> Outside:
    """Keep a class under its name, unless it is no implementation or the name is taken."""
    if wrong := faults(found.kind):
        raise SweepError(f"{found.entry}: expected an implementation: {'; '.join(wrong)}")
    name = found.kind.name
    owners = [offer.owner for offer in offers(IMPLEMENTATION_GROUP).get(name, ()) if offer.entry != found.entry]
    if name in own or (_IMPLS / name).is_dir():
        owners.append("spmark")
    if name in LOADED:
        owners.append(LOADED[name].owner)
    if owners:
        raise SweepError(
            f"{found.entry}: expected a name that is free, found {name!r}, a name of {' and '.join(owners)}, too: give "
            f"the class of {found.owner} another name"
        )
    if sources is not None:
        from spmark.impls.core.digest import keep_sources

        keep_sources(found.kind.__module__, sources)
    LOADED[name] = found
    return found


def private_name(path: Path) -> str:
    """Give the name of the module of a file, or of the package of a folder."""
    return f"{_PRIVATE}{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"


def _imported(file: Path) -> ModuleType:
    """Import a file under a private name, so that it shadows no module and no module shadows it."""
    folder = file.parent
    try:
        if not is_file(folder / "__init__.py"):
            return _executed(private_name(file), file)
        package = private_name(folder)
        if package not in sys.modules:
            _executed(package, folder / "__init__.py", folder)
        return sys.modules[package] if file.name == "__init__.py" else import_module(f"{package}.{file.stem}")
    except (Exception, SystemExit) as fault:
        raise SweepError(_why_not_imported(file, fault)) from fault


def _executed(name: str, file: Path, folder: Path | None = None) -> ModuleType:
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, file, submodule_search_locations=[str(folder)] if folder else None)
    if spec is None or spec.loader is None:
        raise ImportError(f"Python has no loader for {file}")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _why_not_imported(file: Path, fault: BaseException) -> str:
    """Say where an import failed: the last line of the file's folder that was running."""
    where, line = str(file), None
    if isinstance(fault, SyntaxError) and fault.filename:
        where, line = fault.filename, fault.lineno
    else:
        frames = [at for at in traceback.extract_tb(fault.__traceback__) if Path(at.filename).parent == file.parent]
        if frames:
            where, line = frames[-1].filename, frames[-1].lineno
    hint = "mend the file"
    if isinstance(fault, ModuleNotFoundError):
        hint = (
            f"install {fault.name}; or, where {fault.name} is a file beside this one, put an __init__.py into the "
            "folder and import by `from . import ...`"
        )
    at = f"{where}:{line}" if line else where
    text = fault.msg if isinstance(fault, SyntaxError) else fault
    return f"{at}: expected a file that Python imports, found {type(fault).__name__}: {text}; {hint}"
